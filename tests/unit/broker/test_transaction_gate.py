"""Transactional writes at the door of a partition: asked about once, in order, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from replica_lab import Lab, batch, in_lab

from tidelog.broker.transaction_gate import (
    COME_AGAIN,
    GateRequest,
    TransactionGate,
    Writer,
    told_to_client,
)
from tidelog.broker.transaction_messages import Question
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, ProducerEpoch, ProducerId
from tidelog.kernel.settings import Settings
from tidelog.replication.outcomes import Produced
from tidelog.replication.partition import Partition
from tidelog.wire.batch import read_header
from tidelog.wire.control import ControlType, EndTxnMarker

E = ErrorCode
OLD = Writer("tx", adds_partitions=False, knows_abortable=False)
NEW = Writer("tx", adds_partitions=True, knows_abortable=True)


@dataclass
class Coordinator:
    """Answers when the test lets it, with what the test says."""

    says: list[ErrorCode] = field(default_factory=lambda: [E.NONE])
    asked: list[Question] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, question: Question, *, timeout_ms: float) -> Sequence[ErrorCode]:
        self.asked.append(question)
        await self.may_answer.wait()
        code = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return [code] * len(question.refs)


@dataclass
class Door:
    """A gate before one partition."""

    partition: Partition
    gate: TransactionGate
    coordinator: Coordinator
    cut_off: list[bool] = field(default_factory=list)
    """Something in it: no controller has answered for a session."""

    def write(
        self, seq: int = 0, epoch: int = 0, writer: Writer = OLD, request: GateRequest | None = None
    ) -> asyncio.Future[Produced] | Produced:
        data = batch(
            f"{epoch}-{seq}",
            producer_id=9,
            producer_epoch=epoch,
            base_sequence=seq,
            is_transactional=True,
        )
        one = self.gate.request(writer) if request is None else request
        produced = one.append(self.partition, read_header(data), data, acks=-1, timeout_ms=5_000)
        if request is None:
            one.ask()
        return produced


async def code_of(produced: asyncio.Future[Produced] | Produced) -> ErrorCode:
    return (produced if isinstance(produced, Produced) else await produced).code


def at_door(scenario: Callable[[Door], Awaitable[None]], **settings: str) -> None:
    async def script(lab: Lab) -> None:
        partition = lab.nodes[1].partition(await lab.create("t", (1, 2, 3)))
        coordinator = Coordinator()
        values = {name.replace("_", "."): value for name, value in settings.items()}
        cut_off: list[bool] = []
        gate = TransactionGate(
            lambda: Settings.of(values), coordinator, lab.world.clock, lambda: bool(cut_off)
        )
        await scenario(Door(partition, gate, coordinator, cut_off))
        await gate.close()

    in_lab(script)


def test_the_first_write_waits_for_the_coordinator_and_the_next_asks_no_more() -> None:
    async def scenario(door: Door) -> None:
        first = door.write()
        assert isinstance(first, asyncio.Future)
        await asyncio.sleep(0.1)
        assert not first.done() and door.partition.log.end_offset == 0
        door.coordinator.may_answer.set()
        assert await code_of(first) is E.NONE
        assert await code_of(door.write(1)) is E.NONE
        [question] = door.coordinator.asked
        assert (question.transactional_id, question.verify_only) == ("tx", True)

    at_door(scenario)


def test_what_the_same_producer_writes_meanwhile_follows_in_order() -> None:
    async def scenario(door: Door) -> None:
        writes = [door.write(seq) for seq in range(4)]
        await asyncio.sleep(0.1)
        door.coordinator.may_answer.set()
        results = [await one for one in writes if isinstance(one, asyncio.Future)]
        assert [(each.code, each.base_offset) for each in results] == [
            (E.NONE, offset) for offset in range(4)
        ]
        assert len(door.coordinator.asked) == 1

    at_door(scenario)


def test_partitions_of_one_request_are_asked_about_together() -> None:
    async def script(lab: Lab) -> None:
        first = lab.nodes[1].partition(await lab.create("t", (1, 2, 3)))
        second = lab.nodes[1].partition(await lab.create("u", (1, 2, 3)))
        coordinator = Coordinator()
        coordinator.may_answer.set()
        gate = TransactionGate(lambda: Settings.of({}), coordinator, lab.world.clock, lambda: False)
        request = gate.request(NEW)
        writes = [
            Door(partition, gate, coordinator).write(request=request)
            for partition in (first, second)
        ]
        request.ask()
        assert [await code_of(one) for one in writes] == [E.NONE, E.NONE]
        [question] = coordinator.asked
        assert question.refs == (first.ref, second.ref)
        assert not question.verify_only

    in_lab(script)


@pytest.mark.parametrize(
    ("said", "old", "new"),
    [
        (E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING,) * 3,
        (E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
        (E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_refusal_in_the_words_of_producers(said: E, old: E, new: E) -> None:
    async def scenario(door: Door) -> None:
        door.coordinator.says = [said]
        door.coordinator.may_answer.set()
        assert await code_of(door.write(writer=OLD)) is old
        assert await code_of(door.write(writer=NEW)) is new
        assert door.partition.log.end_offset == 0

    at_door(scenario)


def test_a_transaction_that_is_just_ending_is_waited_for() -> None:
    async def scenario(door: Door) -> None:
        door.coordinator.says = [E.CONCURRENT_TRANSACTIONS] * 3 + [E.NONE]
        door.coordinator.may_answer.set()
        assert await code_of(door.write(writer=NEW)) is E.NONE
        assert len(door.coordinator.asked) == 4

    at_door(scenario)


def test_but_not_for_ever() -> None:
    async def scenario(door: Door) -> None:
        door.coordinator.says = [E.CONCURRENT_TRANSACTIONS]
        door.coordinator.may_answer.set()
        assert await code_of(door.write(writer=NEW)) is E.NOT_ENOUGH_REPLICAS

    at_door(scenario)


@pytest.mark.parametrize("code", [E.NETWORK_EXCEPTION, E.COORDINATOR_NOT_AVAILABLE])
def test_a_leader_that_is_cut_off_sends_clients_to_look_for_another(code: E) -> None:
    """After NOT_ENOUGH_REPLICAS they would come here again."""

    async def scenario(door: Door) -> None:
        door.coordinator.says = [code]
        door.coordinator.may_answer.set()
        door.cut_off.append(True)
        assert await code_of(door.write()) is E.NOT_LEADER_OR_FOLLOWER
        assert door.partition.log.end_offset == 0
        door.coordinator.says = [E.TRANSACTION_ABORTABLE]
        assert await code_of(door.write(writer=NEW)) is E.TRANSACTION_ABORTABLE
        door.coordinator.says = [E.NONE]
        assert await code_of(door.write()) is E.NONE

    at_door(scenario)


def test_an_end_that_overtakes_the_answer_keeps_the_write_out() -> None:
    """Hazard 28: verified, and then the transaction was over."""

    async def scenario(door: Door) -> None:
        late = door.write()
        await asyncio.sleep(0.1)
        marker = EndTxnMarker(ControlType.ABORT, CoordinatorEpoch(0))
        ended = door.partition.append_marker(
            ProducerId(9), ProducerEpoch(0), marker, timeout_ms=5_000
        )
        assert (await ended).code is E.NONE
        door.coordinator.may_answer.set()
        assert await code_of(late) is E.INVALID_TXN_STATE
        assert door.partition.log.last_stable_offset == 1

    at_door(scenario)


def test_verification_can_be_switched_off_for_clients_that_add_partitions_themselves() -> None:
    async def scenario(door: Door) -> None:
        assert await code_of(door.write(writer=OLD)) is E.NONE
        assert door.coordinator.asked == []
        door.coordinator.may_answer.set()
        assert await code_of(door.write(epoch=1, writer=NEW)) is E.NONE
        assert len(door.coordinator.asked) == 1

    at_door(scenario, transaction_partition_verification_enable="false")


def test_who_waits_when_the_node_stops_is_sent_away() -> None:
    async def scenario(door: Door) -> None:
        waiting = door.write()
        await asyncio.sleep(0)
        await door.gate.close()
        assert await code_of(waiting) is E.NOT_ENOUGH_REPLICAS

    at_door(scenario)


@pytest.mark.parametrize("code", sorted(COME_AGAIN))
def test_whatever_passes_is_tried_again(code: E) -> None:
    told = told_to_client(code, NEW)
    assert told is E.NOT_ENOUGH_REPLICAS and told.retriable
