"""A member of the classic protocol: the leader among the members assigns.

Eager members give up everything before they join again. Cooperative ones keep what they have, give
back what they are told to, and join once more so that others get it (KIP-429).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.coordinator.assignors import ASSIGNORS, AssignorMember
from tidelog.coordinator.subscriptions import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition
from tidelog.simulation import group_messages
from tidelog.simulation.group_member import (
    HEARTBEAT_S,
    REBALANCE_TIMEOUT_MS,
    RETRY_S,
    SESSION_TIMEOUT_MS,
    GroupMember,
)

E = ErrorCode
COOPERATIVE: Final = "cooperative-sticky"
_JOIN_S: Final = REBALANCE_TIMEOUT_MS / 1000 + 5.0


class ClassicMember(GroupMember):
    _must_join = True
    _is_fenced = False

    async def run(self) -> None:
        beats = asyncio.get_running_loop().create_task(self._beat_for_ever())
        try:
            while not self.is_leaving and not self._is_fenced:
                if not self._must_join:
                    await self.work()
                elif not await self._join():
                    await asyncio.sleep(RETRY_S)
            if not self._is_fenced:
                await self.commit(self.readers)
                await self._leave()
        finally:
            beats.cancel()

    # --- membership --------------------------------------------------------------------

    def lose(self) -> None:
        self.readers.clear()
        self.generation = -1
        self._must_join = True

    async def start_over(self) -> None:
        await self._leave()
        self.lose()
        self.member_id = ""

    async def _leave(self) -> None:
        if self.member_id:
            request = group_messages.leave_group(self.plan.group, self.member_id, self.instance_id)
            await self.ask(request, 2.0)

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._must_join:
                continue
            generation = self.generation
            request = group_messages.heartbeat(
                self.plan.group, generation, self.member_id, self.instance_id
            )
            answer = await self.ask(request, 2.0)
            if answer is not None and generation == self.generation:
                self._heard(ErrorCode(int(answer.error_code)), "Heartbeat")

    def _heard(self, code: ErrorCode, what: str) -> bool:
        if code is E.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif code is E.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code is E.FENCED_INSTANCE_ID:
            self._is_fenced = True
        return self.judge(code, what)

    # --- rebalances --------------------------------------------------------------------

    async def _join(self) -> bool:
        """Join, sync and begin to read; False if it has to be tried again."""
        if self.plan.protocol != COOPERATIVE:
            await self.commit(self.readers)
            self.readers.clear()
        request = group_messages.join_group(
            self.plan.group, self.member_id, self.instance_id, self.plan.protocol,
            encode_subscription(self._subscription()),
            session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )  # fmt: skip
        answer = await self.ask(request, _JOIN_S)
        if answer is None:
            return False
        code = ErrorCode(int(answer.error_code))
        if code is E.MEMBER_ID_REQUIRED:
            self.member_id = str(answer.member_id)
            return await self._join()
        if not self._heard(code, "JoinGroup"):
            return False
        self.member_id, self.generation = str(answer.member_id), int(answer.generation_id)
        return await self._sync(self._assignments(answer))

    def _subscription(self) -> Subscription:
        owned = tuple(self._partition(index) for index in sorted(self.readers))
        return Subscription((self.plan.topic,), owned, self.generation)

    def _partition(self, index: int) -> TopicPartition:
        return TopicPartition(self.plan.topic, PartitionIndex(index))

    def _assignments(self, joined: Any) -> dict[str, bytes]:
        if str(joined.leader) != self.member_id or joined.skip_assignment:
            return {}
        members: list[AssignorMember] = []
        for one in joined.members:
            told = decode_subscription(bytes(one.metadata))
            members.append(
                AssignorMember(
                    str(one.member_id), frozenset(told.topics), one.group_instance_id,
                    told.owned, told.generation,
                )
            )  # fmt: skip
        counts = {self.plan.topic: self.plan.partitions}
        shares = ASSIGNORS[self.plan.protocol](counts, members)
        return {
            member: encode_assignment(Assignment(partitions))
            for member, partitions in shares.items()
        }

    async def _sync(self, assignments: dict[str, bytes]) -> bool:
        request = group_messages.sync_group(
            self.plan.group, self.generation, self.member_id, self.instance_id,
            self.plan.protocol, assignments,
        )  # fmt: skip
        answer = await self.ask(request, _JOIN_S)
        if answer is None or not self._heard(ErrorCode(int(answer.error_code)), "SyncGroup"):
            return False
        given = decode_assignment(bytes(answer.assignment)).partitions
        return await self._apply({int(one.partition) for one in given})

    async def _apply(self, share: set[int]) -> bool:
        for index in sorted(share):
            self.ledger.owned(self.owner, self.generation, index)
        revoked = sorted(self.readers.keys() - share)
        generation, self._must_join = self.generation, False
        await self.commit(revoked)
        self.drop(revoked)
        while generation == self.generation and not self._must_join:
            if await self.take(share - self.readers.keys()):
                # What was given back goes to others in another rebalance (KIP-429).
                self._must_join = self._must_join or bool(revoked)
                return True
            await asyncio.sleep(RETRY_S)
        return False
