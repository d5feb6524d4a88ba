"""Transactional producers for simulated clusters, and what a reader sees of what they did.

``Transactor`` speaks raw requests of the old way (AddPartitionsToTxn 3, Produce 11, EndTxn 3) or
the new one (Produce 12, EndTxn 5: KIP-890), tries again while that may help, and tells what is
known of each transaction. What it wrote is judged at the end against what a reader of
committed data sees, which is worked out here the way clients do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset
from tidelog.replication.outcomes import IsolationLevel
from tidelog.replication.partition import Partition
from tidelog.simulation.kafka_messages import Structs
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.testing.checkers import End, Outcome, Write
from tidelog.wire.batch import headers
from tidelog.wire.control import read_marker
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.records import Record, build_batch, decode_records

E = ErrorCode
COME_AGAIN: Final = frozenset(
    {
        E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR,
        E.CONCURRENT_TRANSACTIONS, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT, E.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
_TRANSACTION_KEY: Final = 1
_PATIENCE: Final = 400
_PAUSE_S: Final = 0.1


class Refused(Exception):
    """An answer after which trying again does not help."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass
class Deeds:
    """What all producers of a run did."""

    writes: list[Write] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    late_ends: list[ErrorCode] = field(default_factory=list)


class Transactor:
    """One life of a producer; ``is_new``: it works as transaction.version=2 has it."""

    def __init__(
        self,
        client: SimKafkaClient,
        name: str,
        life: str,
        topic: str,
        partitions: int,
        deeds: Deeds,
        *,
        is_new: bool,
        timeout_ms: int = 5_000,
        answer_s: float = 4.0,
    ) -> None:
        """``answer_s``: how long it waits for a coordinator or a leader to answer."""
        self.name = name
        self.life = life
        self.producer_id = self.epoch = -1
        self._client = client
        self._topic, self._partitions = topic, partitions
        self._deeds = deeds
        self._is_new = is_new
        self._timeout_ms = timeout_ms
        self._answer_s = answer_s
        self._coordinator = -1
        self._sequences: dict[int, int] = {}
        self._added: set[int] = set()
        self._number = 0

    # --- requests that are tried again -------------------------------------------------

    async def begin(self) -> None:
        """An id and an epoch that fences whoever had the name before."""
        s = Structs(ApiKey.INIT_PRODUCER_ID, 4)
        request = s.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout=duration_i32(self._timeout_ms)
        )
        answer = await self._ask_coordinator(request)
        self._go_on_as(int(answer.producer_id), int(answer.producer_epoch))

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch
        self._added.clear()

    async def transaction(self, random: SimRandom, *, commit: bool, size: int = 4) -> Outcome:
        """Write a few records and end; what is known of the outcome."""
        self._number += 1
        transaction = f"{self.life}-{self._number}"
        outcome = Outcome.UNKNOWN
        try:
            for index in range(size):
                await self._write(random.randrange(0, self._partitions), index, transaction)
            await self.end(self.epoch, commit=commit)
            outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        finally:
            self._deeds.ends.append(End(transaction, outcome))
        return outcome

    async def end(self, epoch: int, *, commit: bool) -> None:
        s = Structs(ApiKey.END_TXN, 5 if self._is_new else 3)
        request = s.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        answer = await self._ask_coordinator(request)
        if self._is_new:
            self._go_on_as(int(answer.producer_id), int(answer.producer_epoch))
        self._added.clear()

    async def write_unended(self, random: SimRandom) -> None:
        """The beginning of a transaction that nobody will end."""
        self._number += 1
        await self._write(random.randrange(0, self._partitions), 0, f"{self.life}-{self._number}")

    async def _write(self, partition: int, index: int, transaction: str) -> None:
        value = f"{transaction}-{index}"
        self._deeds.writes.append(Write(self.life, (self._topic, partition), value, transaction))
        if not self._is_new and partition not in self._added:
            await self._add(partition)
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [Record(0, 1_000, None, value.encode())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        await self._ask_leader(partition, self._produce(partition, batch))
        self._sequences[partition] = sequence + 1

    def _produce(self, partition: int, batch: bytes) -> Any:
        s = Structs(ApiKey.PRODUCE, 12 if self._is_new else 11)
        data = s.PartitionProduceData(index=partition, records=batch)
        return s.ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout=duration_i32(3_000),
            topic_data=(s.TopicProduceData(name=self._topic, partition_data=(data,)),),
        )

    async def _add(self, partition: int) -> None:
        s = Structs(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        request = s.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(
                s.AddPartitionsToTxnTopic(name=self._topic, partitions=(partition,)),
            ),
        )
        await self._ask_coordinator(request)
        self._added.add(partition)

    async def _ask_coordinator(self, request: Any) -> Any:
        for _ in range(_PATIENCE):
            try:
                if self._coordinator < 0:
                    await self._find_coordinator()
                answer = await self._client.call(self._coordinator, request, self._answer_s)
            except NoAnswer:
                self._coordinator = -1
            else:
                code = _code(answer)
                if code is E.NONE:
                    return answer
                if code not in COME_AGAIN:
                    raise Refused(code)
                if code is not E.CONCURRENT_TRANSACTIONS:
                    self._coordinator = -1
            await asyncio.sleep(_PAUSE_S)
        raise TimeoutError(f"{self.name}: no answer to {type(request).__name__}")

    async def _find_coordinator(self) -> None:
        await self._client.refresh([self._topic])
        s = Structs(ApiKey.FIND_COORDINATOR, 4)
        request = s.FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=(self.name,))
        found = (await self._client.call_any(request, 2.0)).coordinators[0]
        if ErrorCode(int(found.error_code)) is not E.NONE:
            raise NoAnswer("the coordinator is not known")
        self._coordinator = int(found.node_id)

    async def _ask_leader(self, partition: int, request: Any) -> None:
        for _ in range(_PATIENCE):
            try:
                known = self._client.leaders.get((self._topic, partition))
                if known is None or known.leader < 0:
                    await self._client.refresh([self._topic])
                    continue
                answer = await self._client.call(known.leader, request, self._answer_s + 1.0)
            except NoAnswer:
                pass
            else:
                row = answer.responses[0].partition_responses[0]
                code = ErrorCode(int(row.error_code))
                if code is E.NONE:
                    return
                if code not in COME_AGAIN:
                    raise Refused(code)
            self._client.leaders.pop((self._topic, partition), None)
            await asyncio.sleep(_PAUSE_S)
        raise TimeoutError(f"{self.name}: partition {partition} takes nothing")


def _code(answer: Any) -> ErrorCode:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return ErrorCode(int(row.partition_error_code))
    return ErrorCode(int(answer.error_code))


# --- reading ---------------------------------------------------------------------------


def committed_records(partition: Partition) -> list[tuple[int, str]]:
    """What a consumer under read_committed would show, by the rules clients follow."""
    shown: list[tuple[int, str]] = []
    position = int(partition.log.log_start)
    while True:
        read = partition.read_for_consumer(Offset(position), 1 << 20, IsolationLevel.READ_COMMITTED)
        assert read.code is ErrorCode.NONE, read.code
        if read.records is None:
            return shown
        aborted = sorted((int(t.first_offset), int(t.producer_id)) for t in read.aborted)
        for offset, value in _shown(read.records.read(), aborted, position):
            position = max(position, offset + 1)
            if value is not None:
                shown.append((offset, value))


def _shown(
    data: bytes, aborted: list[tuple[int, int]], position: int
) -> Iterator[tuple[int, str | None]]:
    """(offset, value) of every batch's records; None where there is nothing to show."""
    skipped: set[int] = set()
    for at, header in headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        batch = data[at : at + header.size]
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                skipped.discard(header.producer_id)
            yield int(header.last_offset), None
            continue
        is_hidden = header.is_transactional and header.producer_id in skipped
        for record in decode_records(batch, header):
            assert record.value is not None
            is_shown = not is_hidden and record.offset >= position
            yield record.offset, record.value.decode() if is_shown else None
