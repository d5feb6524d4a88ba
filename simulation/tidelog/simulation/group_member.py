"""What members of a group do whatever protocol they speak: read their share, and commit it.

A member reads each of its partitions from what is committed on, notes what it read as processed,
and then commits. A commit without an answer may still arrive at any later time, also after the
next one of the same member; the protocol has nothing against that. So such a member ends its
membership and begins another one: then what arrives late is fenced, and offsets never go back.

Owner: the process of the member. ``lose`` may be called while ``work`` waits.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages
from tidelog.simulation.group_ledger import GroupLedger
from tidelog.simulation.group_messages import GROUP_KEY
from tidelog.simulation.history import History, Violation
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer, NotSent, SimKafkaClient
from tidelog.simulation.sim_consumer import SimConsumer
from tidelog.simulation.sim_coordination import ELSEWHERE, Coordinator

E = ErrorCode
RETRY_S: Final = 0.100
HEARTBEAT_S: Final = 0.800
SESSION_TIMEOUT_MS: Final = 6_000
REBALANCE_TIMEOUT_MS: Final = 6_000
_ANSWER_S: Final = 6.0
"""Longer than a coordinator waits for its own log (offsets.commit.timeout.ms)."""

LOST: Final = frozenset(
    {
        E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.FENCED_INSTANCE_ID, E.FENCED_MEMBER_EPOCH,
    }
)  # fmt: skip
"""The membership is over: what the member had may be another's."""
PASSING: Final = ELSEWHERE | {
    E.REBALANCE_IN_PROGRESS, E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.UNSTABLE_OFFSET_COMMIT, E.UNKNOWN_TOPIC_OR_PARTITION,
    E.KAFKA_STORAGE_ERROR, E.STALE_MEMBER_EPOCH,
}  # fmt: skip
"""What faults excuse. An epoch is stale if a heartbeat was answered while the request was out."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What all members of a group have in common."""

    group: str
    topic: str
    partitions: int
    protocol: str
    """An assignor: of the clients in the classic protocol, of the brokers in the other."""
    is_classic: bool
    may_be_damaged: bool = False


class GroupMember(ABC):
    """``run`` until ``leave``; or the process ends before."""

    def __init__(
        self,
        client: SimKafkaClient,
        plan: GroupPlan,
        ledger: GroupLedger,
        history: History,
        random: SimRandom,
        *,
        instance_id: str | None = None,
    ) -> None:
        self.name = client.name
        self.plan = plan
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        """Or member epoch."""
        self.readers: dict[int, SimConsumer] = {}
        self.ledger = ledger
        self.client = client
        self.random = random
        self.coordinator = Coordinator(client, GROUP_KEY, plan.group)
        self.is_leaving = False
        self._history = history
        self._committed: dict[int, int] = {}

    def leave(self) -> None:
        self.is_leaving = True

    @property
    def owner(self) -> str:
        """Under which name it owns partitions."""
        return self.instance_id or self.member_id

    @abstractmethod
    async def run(self) -> None: ...

    @abstractmethod
    def lose(self) -> None:
        """The membership is over, and so is what was read and not committed."""

    @abstractmethod
    async def start_over(self) -> None:
        """End this membership, as far as anybody hears of it, and become another member."""

    # --- asking ------------------------------------------------------------------------

    async def ask(self, request: Any, timeout_s: float = _ANSWER_S) -> Any | None:
        """The answer of the coordinator; None if there is none."""
        try:
            return await self.coordinator.ask(request, timeout_s)
        except NoAnswer:
            return None

    def judge(self, code: ErrorCode, what: str) -> bool:
        """Whether a request was granted; a code that nothing excuses is a finding."""
        if code is E.NONE:
            return True
        self.coordinator.heard(code)
        self.ledger.refusals += 1
        if code in LOST:
            self.lose()
        elif code not in PASSING:
            raise Violation(f"{self.name}: {what} was answered {code.name}")
        return False

    # --- its share ---------------------------------------------------------------------

    async def take(self, partitions: Iterable[int]) -> bool:
        """Begin to read partitions where the group stands; False if nobody tells where."""
        wanted = sorted(partitions)
        if not wanted:
            return True
        generation = self.generation
        found = await self._fetch_offsets(wanted)
        if found is None or generation != self.generation:
            return False
        for index in wanted:
            position = max(0, found[index])
            self._committed[index] = position
            self.readers[index] = SimConsumer(
                self.client,
                self.name,
                (self.plan.topic, index),
                self._history,
                may_be_damaged=self.plan.may_be_damaged,
                position=position,
                max_wait_ms=100,
            )
        return True

    async def _fetch_offsets(self, wanted: list[int]) -> dict[int, int] | None:
        floors = self.ledger.floors()
        request = self.offset_fetch(wanted)
        answer = await self.ask(request)
        if answer is None:
            return None
        (group,) = answer.groups
        if not self.judge(ErrorCode(int(group.error_code)), "OffsetFetch"):
            return None
        found: dict[int, int] = {}
        for row in group.topics[0].partitions:
            code = ErrorCode(int(row.error_code))
            if not self.judge(code, "OffsetFetch"):
                return None
            index, offset = int(row.partition_index), int(row.committed_offset)
            self.ledger.fetched(self.name, index, offset, str(row.metadata), floors)
            found[index] = offset
        return found

    def offset_fetch(self, wanted: list[int]) -> Any:
        return group_messages.offset_fetch(self.plan.group, self.plan.topic, wanted)

    def drop(self, partitions: Iterable[int]) -> None:
        for index in list(partitions):
            self.readers.pop(index, None)

    async def work(self) -> None:
        """Read a little of everything, and sometimes commit."""
        for index, reader in sorted(self.readers.items()):
            begin = reader.position
            is_fine = await reader.read_some()
            if reader.position > begin:
                self.ledger.read(index, begin, reader.position)
            if not is_fine:
                await self.refresh()
        if not self.readers:
            await asyncio.sleep(RETRY_S)
        elif self.random.random() < 0.5:
            await self.commit(self.readers)

    async def refresh(self) -> None:
        try:
            await self.client.refresh([self.plan.topic])
        except NoAnswer:
            await asyncio.sleep(RETRY_S)

    async def commit(self, partitions: Iterable[int]) -> bool:
        """Of these, what was read since the last commit; whether all of it is committed."""
        offsets = {
            index: reader.position
            for index in sorted(partitions)
            if (reader := self.readers.get(index)) is not None
            and reader.position != self._committed.get(index)
        }
        if not offsets:
            return True
        floors = self.ledger.floors()
        request = group_messages.offset_commit(
            self.plan.group, self.generation, self.member_id, self.instance_id,
            self.plan.topic, offsets,
        )  # fmt: skip
        try:
            answer = await self.coordinator.ask(request, _ANSWER_S)
        except NotSent:
            return False
        except NoAnswer:
            await self.start_over()
            return False
        return self._take_committed(answer, offsets, floors)

    def _take_committed(self, answer: Any, offsets: dict[int, int], floors: dict[int, int]) -> bool:
        is_all = True
        for row in answer.topics[0].partitions:
            index = int(row.partition_index)
            if self.judge(ErrorCode(int(row.error_code)), "OffsetCommit"):
                self._committed[index] = offsets[index]
                self.ledger.committed(self.name, index, offsets[index], floors)
            else:
                is_all = False
        return is_all
