"""Transactional writes at the door of a partition (KIP-890).

The first write of a transaction to a partition waits until the coordinator has said that the
partition is part of it; with transaction.version=2 the question itself makes it one. Whatever the
same producer writes to that partition meanwhile waits behind it, in order. All partitions of one
request are asked about in one question.

A coordinator that cannot answer now looks to the client like a partition with too few replicas:
that is what clients of every version try again after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidelog.broker.transaction_messages import Question
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId
from tidelog.kernel.ids import Sequence as SequenceNumber
from tidelog.kernel.ports import ByteView, Clock
from tidelog.kernel.settings import Settings
from tidelog.replication.outcomes import Produced
from tidelog.replication.partition import Partition
from tidelog.storage.txn_verification import Verification
from tidelog.wire.batch import BatchHeader

_BUSY_BACKOFF_S: Final = 0.01
_BUSY_PATIENCE_MS: Final = 1_000.0
"""How long a transaction that is just ending is waited for; then the client tries again."""
COME_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)

_Key = tuple[PartitionRef, ProducerId, ProducerEpoch]


@dataclass(frozen=True, slots=True)
class Writer:
    """In whose name, and under which rules, a request writes."""

    transactional_id: str
    adds_partitions: bool
    """Whether the leader makes the partition part of the transaction."""
    knows_abortable: bool
    """Whether the client knows TRANSACTION_ABORTABLE."""


def told_to_client(code: ErrorCode, writer: Writer) -> ErrorCode:
    """The coordinator's verdict in the words that producers understand."""
    if code in COME_AGAIN:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not writer.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Coordinators(Protocol):
    """The transaction coordinators of the cluster."""

    async def ask(self, question: Question, *, timeout_ms: float) -> Sequence[ErrorCode]:
        """What the right one says of each partition."""
        ...


class TransactionGate:
    """Owner: the broker role, which calls ``close``."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        coordinators: Coordinators,
        clock: Clock,
        is_cut_off: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._coordinators = coordinators
        self._clock = clock
        self._is_cut_off = is_cut_off
        self._verdicts: dict[_Key, asyncio.Future[ErrorCode]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, writer: Writer) -> GateRequest:
        return GateRequest(self, writer)

    def verdict(self, key: _Key) -> asyncio.Future[ErrorCode] | None:
        """Of a question that is on its way."""
        return self._verdicts.get(key)

    def expect(self, key: _Key) -> asyncio.Future[ErrorCode]:
        verdict: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._verdicts[key] = verdict
        # The first callback: whoever comes after it is told to ask anew, or finds it open.
        verdict.add_done_callback(lambda _: self._verdicts.pop(key, None))
        return verdict

    def ask(
        self, writer: Writer, keys: Sequence[_Key], verdicts: Sequence[asyncio.Future[ErrorCode]]
    ) -> None:
        """One question about partitions of one producer."""
        if not writer.adds_partitions and not self._settings().get_bool(
            "transaction.partition.verification.enable"
        ):
            for verdict in verdicts:
                verdict.set_result(ErrorCode.NONE)
            return
        task = asyncio.get_running_loop().create_task(self._ask(writer, keys, verdicts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(
        self, writer: Writer, keys: Sequence[_Key], verdicts: Sequence[asyncio.Future[ErrorCode]]
    ) -> None:
        _, producer_id, epoch = keys[0]
        question = Question(
            writer.transactional_id,
            producer_id,
            epoch,
            not writer.adds_partitions,
            tuple(ref for ref, _, _ in keys),
        )
        codes: Sequence[ErrorCode] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(keys)
        try:
            codes = [self._judged(code) for code in await self._patiently(question)]
        finally:
            for verdict, code in zip(verdicts, codes, strict=True):
                if not verdict.done():
                    verdict.set_result(code)

    def _judged(self, code: ErrorCode) -> ErrorCode:
        """Where nobody can be asked, because this broker is cut off, another leads by now.

        A client that is told to come again would come here again, and not look for that one.
        """
        is_in_vain = code in COME_AGAIN and self._is_cut_off()
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_in_vain else code

    async def _patiently(self, question: Question) -> Sequence[ErrorCode]:
        """The transaction before this one may have its markers yet to be written."""
        until_ms = self._clock.monotonic_ms() + _BUSY_PATIENCE_MS
        timeout_ms = self._settings().get_int("request.timeout.ms")
        while True:
            codes = await self._coordinators.ask(question, timeout_ms=timeout_ms)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes
            if not is_busy or self._clock.monotonic_ms() >= until_ms:
                return codes
            await asyncio.sleep(_BUSY_BACKOFF_S)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(slots=True)
class GateRequest:
    """The transactional batches of one request; ``ask`` when all are there."""

    gate: TransactionGate
    writer: Writer
    _new: dict[tuple[ProducerId, ProducerEpoch], list[_Key]] = field(default_factory=dict)
    _verdicts: dict[_Key, asyncio.Future[ErrorCode]] = field(default_factory=dict)

    def append(
        self,
        partition: Partition,
        header: BatchHeader,
        data: ByteView,
        *,
        acks: int,
        timeout_ms: float,
    ) -> asyncio.Future[Produced] | Produced:
        """Append as soon as the coordinator agrees, behind what waits for it already."""

        def write(held: Verification | None) -> asyncio.Future[Produced]:
            return partition.append(data, acks=acks, timeout_ms=timeout_ms, verification=held)

        held, verdict = self.verify(
            partition, header.producer_id, header.producer_epoch, header.base_sequence
        )
        if isinstance(held, ErrorCode):
            return Produced(held)
        return write(held) if verdict is None else _after(verdict, self.writer, held, write)

    def verify(
        self,
        partition: Partition,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: SequenceNumber,
    ) -> tuple[Verification | ErrorCode | None, asyncio.Future[ErrorCode] | None]:
        """What to write with, and the verdict to wait for, if there is one."""
        held = partition.begin_verification(
            producer_id, epoch, sequence, begins_epoch=self.writer.adds_partitions
        )
        key = (partition.ref, producer_id, epoch)
        verdict = self.gate.verdict(key)
        if isinstance(held, Verification) and verdict is None:
            verdict = self.gate.expect(key)
            self._new.setdefault((producer_id, epoch), []).append(key)
            self._verdicts[key] = verdict
        return held, verdict

    def ask(self) -> None:
        for keys in self._new.values():
            self.gate.ask(self.writer, keys, [self._verdicts[key] for key in keys])


def _after(
    verdict: asyncio.Future[ErrorCode],
    writer: Writer,
    held: Verification | None,
    write: Callable[[Verification | None], asyncio.Future[Produced]],
) -> asyncio.Future[Produced]:
    produced: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()

    def decided(done: asyncio.Future[ErrorCode]) -> None:
        code = done.result()
        if code is not ErrorCode.NONE:
            told = told_to_client(code, writer)
            is_new = told is ErrorCode.INVALID_TXN_STATE
            message = "the partition was not added to the transaction" if is_new else None
            _finish(produced, Produced(told, message=message))
            return
        write(held).add_done_callback(lambda written: _finish(produced, written.result()))

    verdict.add_done_callback(decided)
    return produced


def _finish(produced: asyncio.Future[Produced], result: Produced) -> None:
    if not produced.done():
        produced.set_result(result)
