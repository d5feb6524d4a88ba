"""A transactional producer of a simulation, in one of its lives.

It sends one request at a time and repeats it until it is answered, as long as the answer is that
it may help; so a batch is written once, and the answers can be judged: its sequence is never out of
order. Whoever begins under its name after it fences it, and so does the coordinator that gives up
waiting for it (``Fenced``): then nobody knows what became of its last transaction.

``deeds`` has every write and every end, for ``check_transactional_log``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import transaction_messages
from tidelog.simulation.group_messages import GROUP_KEY, TRANSACTION_KEY
from tidelog.simulation.history import PartitionName, Violation
from tidelog.simulation.sim_client import NoAnswer, NotSent, SimKafkaClient
from tidelog.simulation.sim_coordination import ELSEWHERE, Coordinator
from tidelog.simulation.transaction_messages import Producer
from tidelog.testing.checkers import End, Outcome, Poll, Write
from tidelog.wire.records import Record, build_batch

E = ErrorCode
RETRY_S: Final = 0.100
TRANSACTION_TIMEOUT_MS: Final = 5_000
_ANSWER_S: Final = 5.0
_END: Final = "EndTxn"
_PRODUCE: Final = "Produce"

_AGAIN: Final = ELSEWHERE | {
    E.CONCURRENT_TRANSACTIONS, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION,
    E.LEADER_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT, E.KAFKA_STORAGE_ERROR, E.UNSTABLE_OFFSET_COMMIT,
}  # fmt: skip
_FENCED: Final = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH})


class Fenced(Exception):
    """Somebody else has the name now, or the coordinator ended the transaction."""


class MustAbort(Exception):
    """The transaction cannot go on (KIP-890)."""


@dataclass(slots=True)
class Deeds:
    """Of all producers and readers of a run."""

    writes: list[Write] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    fenced: int = 0

    def count(self, outcome: Outcome) -> int:
        return sum(end.outcome is outcome for end in self.ends)


class Transactor:
    def __init__(
        self, client: SimKafkaClient, name: str, life: str, deeds: Deeds, *, is_new: bool
    ) -> None:
        self.life = life
        self.who = Producer(name)
        self.client = client
        self.is_new = is_new
        self._deeds = deeds
        self._coordinator = Coordinator(client, TRANSACTION_KEY, name)
        self._sequences: dict[PartitionName, int] = {}
        self._added: set[object] = set()
        self._number = 0

    @property
    def transaction(self) -> str:
        return f"{self.life}.{self._number}"

    # --- a transaction -----------------------------------------------------------------

    async def begin_life(self) -> None:
        """An epoch that fences whoever had the name before."""
        request = transaction_messages.init_producer_id(self.who.name, TRANSACTION_TIMEOUT_MS)
        answer = await self._ask_coordinator(request, "InitProducerId")
        self._go_on_as(answer)

    def _go_on_as(self, answer: Any) -> None:
        who = replace(
            self.who, producer_id=int(answer.producer_id), epoch=int(answer.producer_epoch)
        )
        if who != self.who:
            self._sequences.clear()
        self.who = who

    async def run(self, work: Callable[[], Awaitable[None]], *, commit: bool) -> Outcome:
        """``work`` within a transaction; what is known of its outcome."""
        self._number += 1
        self._added.clear()
        outcome = Outcome.UNKNOWN
        try:
            try:
                await work()
            except MustAbort:
                commit = False
            await self.end(commit=commit)
            outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        except Fenced:
            self._deeds.fenced += 1
            raise
        finally:
            self._deeds.ends.append(End(self.transaction, outcome))
        return outcome

    async def write(self, partition: PartitionName, text: str) -> None:
        """``text`` after the name of the transaction, so that no other write is like it."""
        value = f"{self.transaction}:{text}"
        self._deeds.writes.append(Write(self.life, partition, value, self.transaction))
        if not self.is_new and partition not in self._added:
            request = transaction_messages.add_partition(self.who, *partition)
            await self._ask_coordinator(request, "AddPartitionsToTxn")
            self._added.add(partition)
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [Record(0, 1_000, None, value.encode())],
            producer_id=self.who.producer_id,
            producer_epoch=self.who.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        await self._ask_leader(partition, batch)
        self._sequences[partition] = sequence + 1

    async def commit_offset(self, group: str, partition: PartitionName, offset: int) -> None:
        if not self.is_new and group not in self._added:
            request = transaction_messages.add_offsets(self.who, group)
            await self._ask_coordinator(request, "AddOffsetsToTxn")
            self._added.add(group)
        request = transaction_messages.commit_offset(
            self.who, group, *partition, offset, is_new=self.is_new
        )
        await self._ask(Coordinator(self.client, GROUP_KEY, group), request, "TxnOffsetCommit")

    async def end(self, *, commit: bool) -> None:
        request = transaction_messages.end(self.who, commit=commit, is_new=self.is_new)
        answer = await self._ask_coordinator(request, _END)
        if self.is_new:
            self._go_on_as(answer)

    # --- asking until it is answered ---------------------------------------------------

    async def _ask_coordinator(self, request: Any, what: str) -> Any:
        return await self._ask(self._coordinator, request, what)

    async def _ask(self, coordinator: Coordinator, request: Any, what: str) -> Any:
        while True:
            try:
                answer = await coordinator.ask(request, _ANSWER_S)
            except NoAnswer:
                await asyncio.sleep(RETRY_S)
                continue
            code = _code(answer)
            if self._is_granted(code, what):
                return answer
            coordinator.heard(code)
            await asyncio.sleep(RETRY_S)

    async def _ask_leader(self, partition: PartitionName, batch: bytes) -> None:
        request = transaction_messages.produce(self.who, *partition, batch, is_new=self.is_new)
        while True:
            try:
                known = self.client.leaders.get(partition)
                if known is None or known.leader < 0:
                    raise NotSent("no leader is known")
                answer = await self.client.call(known.leader, request, _ANSWER_S)
                (row,) = answer.responses[0].partition_responses
                if self._is_granted(ErrorCode(int(row.error_code)), f"{_PRODUCE} to {partition}"):
                    return
            except NoAnswer:
                pass
            await asyncio.sleep(RETRY_S)
            try:
                await self.client.refresh([partition[0]])
            except NoAnswer:
                await asyncio.sleep(RETRY_S)

    def _is_granted(self, code: ErrorCode, what: str) -> bool:
        # A new client whose transaction was aborted for it is one epoch behind, as if it had ended
        # it: a commit is then the wrong end (KIP-890), which is fatal as being fenced is.
        is_wrong_end = self.is_new and what == _END and code is E.INVALID_TXN_STATE
        if code in _FENCED or is_wrong_end:
            raise Fenced(f"{self.life}: {what} was answered {code.name}")
        # While a leader asked the coordinator about a batch, the transaction was ended by another:
        # its marker was here before the answer.
        is_too_late = what.startswith(_PRODUCE) and code is E.INVALID_TXN_STATE
        if code is E.TRANSACTION_ABORTABLE or is_too_late:
            raise MustAbort(what)
        if code is not E.NONE and code not in _AGAIN:
            raise Violation(f"{self.transaction} of {self.who}: {what} was answered {code.name}")
        return code is E.NONE


def _code(answer: Any) -> ErrorCode:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return ErrorCode(int(row.partition_error_code))
    if hasattr(answer, "topics"):
        return ErrorCode(int(answer.topics[0].partitions[0].error_code))
    return ErrorCode(int(answer.error_code))
