"""A member of the consumer protocol (KIP-848): brokers assign, members reconcile.

Heartbeats carry what the member owns whenever that changed, and everything again after one that
was not answered. What the member has to give up it commits, drops, and only then says so; what it
is given it reads from the committed offset on.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages
from tidelog.simulation.group_member import (
    HEARTBEAT_S,
    REBALANCE_TIMEOUT_MS,
    RETRY_S,
    GroupMember,
)

E = ErrorCode
_LEAVE = -1
_LEAVE_TO_COME_BACK = -2
"""Of static members: the place is kept for the next life of the instance."""


class ConsumerMember(GroupMember):
    _assigned: frozenset[int] = frozenset()
    _told: frozenset[int] | None = None
    """What the coordinator knows this member owns; None if it has to be told everything."""
    _is_fenced = False

    async def run(self) -> None:
        self._begin()
        beats = asyncio.get_running_loop().create_task(self._beat_for_ever())
        try:
            while not self.is_leaving and not self._is_fenced:
                if self.generation > 0:
                    await self._reconcile()
                await self.work()
            if not self._is_fenced:
                await self.commit(self.readers)
                await self._leave()
        finally:
            beats.cancel()

    def _begin(self) -> None:
        """Under an id that no member had before."""
        self.member_id = f"{self.name}/{self.random.randbytes(8).hex()}"
        self.generation = 0

    # --- membership --------------------------------------------------------------------

    def lose(self) -> None:
        self.readers.clear()
        self.generation, self._assigned, self._told = 0, frozenset(), None

    async def start_over(self) -> None:
        await self._leave()
        self.lose()
        self._begin()

    async def _leave(self) -> None:
        epoch = _LEAVE if self.instance_id is None else _LEAVE_TO_COME_BACK
        request = group_messages.consumer_heartbeat(
            self.plan.group, self.member_id, epoch, instance_id=self.instance_id
        )
        await self.ask(request, 2.0)

    async def _beat_for_ever(self) -> None:
        while not self.is_leaving:
            await self._beat()
            waited_s = 0.0
            while waited_s < HEARTBEAT_S and not self._has_news():
                await asyncio.sleep(RETRY_S)
                waited_s += RETRY_S

    def _has_news(self) -> bool:
        return self._told is not None and self._told != frozenset(self.readers)

    async def _beat(self) -> None:
        member_id, epoch, owned = self.member_id, self.generation, frozenset(self.readers)
        answer = await self.ask(self._heartbeat(owned), 3.0)
        if self._is_fenced or (member_id, epoch) != (self.member_id, self.generation):
            return
        if answer is None:
            self._told = None
            return
        code = ErrorCode(int(answer.error_code))
        if code is E.UNRELEASED_INSTANCE_ID:
            return  # until the session of the former life of this instance is over
        if code is E.FENCED_INSTANCE_ID:
            self._is_fenced = True
        if not self.judge(code, "ConsumerGroupHeartbeat"):
            self._told = None
            return
        self._told = owned
        self.generation = int(answer.member_epoch)
        if answer.assignment is not None:
            self._assigned = frozenset(
                int(index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )
        for index in sorted(self._assigned & self.readers.keys()):
            self.ledger.owned(self.owner, self.generation, index)

    def _heartbeat(self, owned: frozenset[int]) -> Any:
        is_full = self._told is None or self.generation == 0
        is_told = is_full or owned != self._told
        topic_id = self._topic_id()
        by_topic = {topic_id: sorted(owned)} if owned and topic_id is not None else {}
        return group_messages.consumer_heartbeat(
            self.plan.group,
            self.member_id,
            self.generation,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            topics=(self.plan.topic,) if is_full else None,
            assignor=self.plan.protocol if is_full else None,
            owned=by_topic if is_told else None,
        )

    def _topic_id(self) -> Any | None:
        known = self.client.leaders.get((self.plan.topic, 0))
        return None if known is None else known.topic_id

    # --- reconciliation ----------------------------------------------------------------

    async def _reconcile(self) -> None:
        revoked = sorted(self.readers.keys() - self._assigned)
        if revoked:
            await self.commit(revoked)
            self.drop(index for index in revoked if index not in self._assigned)
        wanted = self._assigned - self.readers.keys()
        member_id = self.member_id
        if wanted and await self._begin_to_read(wanted) and member_id == self.member_id:
            self.drop(self.readers.keys() - self._assigned)
            for index in sorted(self.readers):
                self.ledger.owned(self.owner, self.generation, index)

    async def _begin_to_read(self, wanted: frozenset[int]) -> bool:
        if self._topic_id() is None:
            await self.refresh()
            return False
        return await self.take(wanted)

    def offset_fetch(self, wanted: list[int]) -> Any:
        return group_messages.offset_fetch(
            self.plan.group,
            self.plan.topic,
            wanted,
            member_id=self.member_id,
            member_epoch=self.generation,
        )
