"""A transaction coordinator without a network, for tests of its machine.

Records are written and markers acknowledged when the test says so, or at once (``is_prompt``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import TransactionSettings
from tidelog.coordinator.transactions.transaction_records import (
    TransactionRecord,
    TransactionValue,
)
from tidelog.coordinator.transactions.transactions import Transactions
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    CoordinatorEpoch,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

NONE = ErrorCode.NONE


def place(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


class TransactionDesk:
    def __init__(
        self,
        settings: TransactionSettings | None = None,
        *,
        is_prompt: bool = True,
        first_producer_id: int = 100,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.shard = Transactions(self.settings, CoordinatorEpoch(3))
        self.is_prompt = is_prompt
        self.now_ms = 1_000
        self.fresh = first_producer_id
        self.ids_are_there = True
        self.log: list[TransactionRecord] = []
        self.appends: list[e.Append] = []
        self.sent: list[e.SendMarkers] = []
        self.all_sent: list[e.SendMarkers] = []
        self.results: dict[int, e.Result] = {}
        self.requests = 0

    # --- requests ----------------------------------------------------------------------

    def ask(self, name: str, request: e.Request) -> e.Result | None:
        """The answer, or None while it waits for a write."""
        self.requests += 1
        request = replace(request, request_id=self.requests)
        if self.shard.needs_producer_id(name, request) and self.ids_are_there:
            assert not isinstance(request, e.AddPartitions)
            request = replace(request, fresh_producer_id=ProducerId(self.fresh))
            self.fresh += 1
        self.carry_out(self.shard.handle(self.now_ms, name, request))
        return self.results.get(self.requests)

    def init(
        self, name: str = "tx", timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
    ) -> e.InitResult:
        request = e.InitProducerId(0, timeout_ms, ProducerId(producer_id), ProducerEpoch(epoch))
        result = self.ask(name, request)
        assert isinstance(result, e.InitResult)
        return result

    def add(
        self,
        producer_id: int,
        epoch: int,
        *places: TopicPartition,
        name: str = "tx",
        version: int = 0,
    ) -> ErrorCode:
        request = e.AddPartitions(0, ProducerId(producer_id), ProducerEpoch(epoch), places, version)
        result = self.ask(name, request)
        assert isinstance(result, e.PartitionsResult)
        return result.error

    def verify(
        self, producer_id: int, epoch: int, *places: TopicPartition, name: str = "tx"
    ) -> e.PartitionsResult:
        request = e.AddPartitions(
            0, ProducerId(producer_id), ProducerEpoch(epoch), places, 0, verify_only=True
        )
        result = self.ask(name, request)
        assert isinstance(result, e.PartitionsResult)
        return result

    def end(
        self, producer_id: int, epoch: int, *, commit: bool, name: str = "tx", version: int = 0
    ) -> e.EndResult:
        request = e.EndTxn(0, ProducerId(producer_id), ProducerEpoch(epoch), commit, version)
        result = self.ask(name, request)
        assert isinstance(result, e.EndResult), "it waits for its record"
        return result

    # --- the world ---------------------------------------------------------------------

    def carry_out(self, effects: Iterable[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case e.Respond(request_id, result):
                    assert request_id not in self.results, "a request is answered once"
                    self.results[request_id] = result
                case e.Append():
                    self.appends.append(effect)
                case e.SendMarkers():
                    self.sent.append(effect)
                    self.all_sent.append(effect)
        if self.is_prompt:
            while self.appends:
                self.written()
            while self.sent:
                self.marked()

    def written(self, error: ErrorCode = NONE) -> None:
        """The oldest write is done."""
        append = self.appends.pop(0)
        if error is NONE:
            self.log.extend(append.records)
        self.carry_out(
            self.shard.append_finished(self.now_ms, append.transactional_id, append.write_id, error)
        )

    def marked(self, error: ErrorCode = NONE, only: Iterable[TopicPartition] = ()) -> None:
        """The leaders answer the oldest markers, or some of them."""
        effect = self.sent.pop(0)
        chosen = tuple(only) or effect.partitions
        rest = tuple(each for each in effect.partitions if each not in chosen)
        if rest:
            self.sent.insert(0, replace(effect, partitions=rest))
        answered = e.MarkersAnswered(
            effect.producer_id,
            effect.producer_epoch,
            tuple((each, error) for each in chosen),
        )
        self.carry_out(self.shard.markers_answered(self.now_ms, effect.transactional_id, answered))

    def pass_time(self, ms: int) -> None:
        """Deadlines on the way are met when they are due."""
        end_ms = self.now_ms + ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.shard.expire(self.now_ms))
        self.now_ms = end_ms

    def fail_over(self) -> None:
        """Another broker takes over from what is in the log."""
        self.appends.clear()
        self.sent.clear()
        epoch = CoordinatorEpoch(self.shard.coordinator_epoch + 1)
        self.shard = Transactions(self.settings, epoch)
        for record in self.log:
            self.shard.load(record)
        self.shard.begin()

    # --- what it looks like --------------------------------------------------------------

    def value(self, name: str = "tx") -> TransactionValue:
        found = self.shard.describe(name)
        assert isinstance(found, TransactionValue)
        return found

    def state(self, name: str = "tx") -> TransactionState:
        return self.value(name).state
