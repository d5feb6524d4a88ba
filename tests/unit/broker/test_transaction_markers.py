"""Markers from a coordinator to the leaders of partitions, and what becomes of them there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from replica_lab import Lab, batch, in_lab

from tidelog.broker.leader_calls import LeaderCalls
from tidelog.broker.transaction_markers import MarkerSender, MarkerWriter
from tidelog.broker.transaction_messages import WRITE_TXN_MARKERS, Marker, MarkerOrder
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.coordinator.transactions.events import MarkersAnswered, SendMarkers
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    CoordinatorEpoch,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicPartition,
)
from tidelog.replication.partition import Partition
from tidelog.storage.txn_verification import Verification

E = ErrorCode


def place(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


@dataclass
class Groups:
    """Hears of transactions that ended in the offsets topic."""

    ended: list[tuple[int, int, bool]] = field(default_factory=list)

    def end_transaction(self, index: int, producer_id: int, *, committed: bool) -> None:
        self.ended.append((index, producer_id, committed))


class Coordinator:
    """On node 1, before writers on all nodes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.groups = Groups()
        self.calls = 0
        self.outcomes: list[MarkersAnswered] = []
        for node in (1, 2, 3):
            writer = MarkerWriter(lab.nodes[node].replicas, cast("Any", self.groups))
            lab.network.servers[NodeId(node)][WRITE_TXN_MARKERS.path] = self._counting(writer)
        self.writer = MarkerWriter(lab.nodes[1].replicas, cast("Any", self.groups))
        context = SimpleNamespace(node_id=NodeId(1), image=lab.controller.image)
        self.context: Any = context
        self.calls_to_leaders = LeaderCalls(
            lab.network.peers(NodeId(1)), lab.world.clock, lambda: False
        )
        self.sender = MarkerSender(cast("Any", context), self.calls_to_leaders, self.writer)

    def _counting(self, writer: MarkerWriter) -> Any:
        async def serve(context: Any, request: Any) -> Any:
            self.calls += 1
            return await writer.serve(context, request)

        return serve

    def send(
        self,
        *places: TopicPartition,
        producer_id: int = 9,
        commit: bool = True,
        image: MetadataImage | None = None,
        decision: int = 1,
    ) -> None:
        self.context.image = self.lab.controller.image if image is None else image
        effect = SendMarkers(
            "tx",
            ProducerId(producer_id),
            ProducerEpoch(0),
            CoordinatorEpoch(4),
            commit,
            0,
            places,
            decision,
        )
        self.sender.send(effect, self.outcomes.append)

    async def told(self, count: int) -> dict[TopicPartition, ErrorCode]:
        def answered() -> dict[TopicPartition, ErrorCode]:
            return {tp: code for one in self.outcomes for tp, code in one.outcomes}

        await self.lab.until(lambda: len(answered()) >= count)
        return answered()


def with_coordinator(script: Callable[[Lab, Coordinator], Awaitable[None]]) -> None:
    async def main(lab: Lab) -> None:
        await lab.create("here", (1, 2, 3))
        await lab.create("there", (2, 3, 1))
        await lab.create("too", (2, 1, 3))
        coordinator = Coordinator(lab)
        await script(lab, coordinator)
        await coordinator.sender.close()

    in_lab(main)


async def open_transaction(partition: Partition, sequence: int = 0) -> None:
    held = partition.begin_verification(
        ProducerId(9), ProducerEpoch(0), Sequence(sequence), begins_epoch=False
    )
    assert isinstance(held, Verification)
    data = batch("x", producer_id=9, producer_epoch=0, base_sequence=sequence, is_transactional=1)
    written = partition.append(data, acks=-1, timeout_ms=5_000, verification=held)
    assert (await written).code is E.NONE


def partition_of(lab: Lab, node: int, topic: str) -> Partition:
    found = lab.nodes[node].replicas.lookup(topic, 0)
    assert isinstance(found, Partition)
    return found


def test_markers_reach_leaders_here_and_elsewhere() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        for node, topic in ((1, "here"), (2, "there")):
            await open_transaction(partition_of(lab, node, topic))
        coordinator.send(place("here"), place("there"))
        told = await coordinator.told(2)
        assert set(told.values()) == {E.NONE}
        for node, topic in ((1, "here"), (2, "there")):
            log = partition_of(lab, node, topic).log
            assert log.last_stable_offset == log.high_watermark == 2

    with_coordinator(script)


def test_what_goes_to_one_node_in_one_turn_goes_in_one_call() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        for producer_id in range(20, 40):
            coordinator.send(place("there"), place("too"), producer_id=producer_id)
        await lab.until(lambda: len(coordinator.outcomes) == 20)
        assert coordinator.calls == 1
        assert partition_of(lab, 2, "too").log.end_offset == 20

    with_coordinator(script)


def test_a_partition_that_is_gone_needs_no_marker() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        coordinator.send(place("deleted"), place("here", 7))
        assert coordinator.outcomes == [], "never at once"
        assert await coordinator.told(2) == {place("deleted"): E.NONE, place("here", 7): E.NONE}

    with_coordinator(script)


def test_a_node_that_is_not_reached_is_an_answer() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        lab.network.cut(1, 2)
        coordinator.send(place("there"), place("here"))
        told = await coordinator.told(2)
        assert told == {place("there"): E.NETWORK_EXCEPTION, place("here"): E.NONE}

    with_coordinator(script)


def test_a_leader_that_was_replaced_before_it_answered_is_not_waited_for() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        lab.is_controller_cut = True
        lab.network.cut(2, 3)
        lab.network.cuts.add((NodeId(2), NodeId(1)))  # the marker arrives, and is not replicated
        coordinator.send(place("there"))
        await asyncio.sleep(3)
        assert coordinator.calls == 1 and coordinator.outcomes == []
        lab.controller.fence(2)
        coordinator.calls_to_leaders.follow(lab.controller.deltas[-1])
        assert await coordinator.told(1) == {place("there"): E.NETWORK_EXCEPTION}
        await lab.until(lambda: partition_of(lab, 3, "there").leader is not None)
        coordinator.outcomes.clear()
        coordinator.send(place("there"))
        assert await coordinator.told(1) == {place("there"): E.NONE}

    with_coordinator(script)


def test_a_node_that_does_not_lead_any_more_says_so() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        stale = lab.controller.image
        lab.controller.fence(2)
        await lab.until(lambda: partition_of(lab, 2, "there").leader is None)
        coordinator.send(place("there"), image=stale)
        assert await coordinator.told(1) == {place("there"): E.FENCED_LEADER_EPOCH}

    with_coordinator(script)


def test_a_marker_that_was_held_up_does_not_end_the_next_transaction() -> None:
    """Its sender gave it up, sent it again and went on; the producer kept its epoch (KIP-98)."""

    async def script(lab: Lab, coordinator: Coordinator) -> None:
        partition = partition_of(lab, 2, "there")
        await open_transaction(partition)
        coordinator.send(place("there"), commit=False)
        assert await coordinator.told(1) == {place("there"): E.NONE}
        await open_transaction(partition, sequence=1)
        coordinator.outcomes.clear()
        coordinator.send(place("there"), commit=False)
        assert await coordinator.told(1) == {place("there"): E.NONE}, "it is there already"
        assert partition.log.end_offset == 3 and partition.log.last_stable_offset == 2
        coordinator.outcomes.clear()
        coordinator.send(place("there"), commit=True, decision=2)
        assert await coordinator.told(1) == {place("there"): E.NONE}
        assert partition.log.last_stable_offset == partition.log.end_offset == 4
        coordinator.outcomes.clear()
        coordinator.send(place("there"), commit=False)
        assert await coordinator.told(1) == {place("there"): E.INVALID_TXN_STATE}
        assert partition.log.end_offset == 4

    with_coordinator(script)


def test_a_marker_that_was_held_up_is_refused_by_the_next_leader() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        stale = lab.controller.image
        lab.controller.fence(2)
        await lab.until(lambda: partition_of(lab, 3, "there").leader is not None)
        topic = stale.topics.named("there")
        assert topic is not None
        ref = PartitionRef(topic.topic_id, PartitionIndex(0))
        marker = Marker(ProducerId(9), ProducerEpoch(0), False, CoordinatorEpoch(4), 0, decision=1)
        writer = MarkerWriter(lab.nodes[3].replicas, cast("Any", coordinator.groups))
        assert await writer.write(marker, ref, LeaderEpoch(0)) is E.FENCED_LEADER_EPOCH

    with_coordinator(script)


def test_the_same_decision_is_tried_again_if_it_was_not_written() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        await open_transaction(partition_of(lab, 1, "here"))
        lab.network.cut(1, 2)
        coordinator.send(place("there"))
        assert await coordinator.told(1) == {place("there"): E.NETWORK_EXCEPTION}
        lab.network.heal()
        coordinator.outcomes.clear()
        coordinator.send(place("there"))
        assert await coordinator.told(1) == {place("there"): E.NONE}

    with_coordinator(script)


def test_an_end_in_the_offsets_topic_is_told_to_the_groups_once_it_is_replicated() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        await lab.create("__consumer_offsets", (1, 2, 3))
        lab.network.cut(1, 2)
        lab.network.cut(1, 3)
        coordinator.send(place("__consumer_offsets"), commit=False)
        await asyncio.sleep(0.3)
        assert coordinator.groups.ended == []
        lab.network.heal()
        assert await coordinator.told(1) == {place("__consumer_offsets"): E.NONE}
        assert coordinator.groups.ended == [(0, 9, False)]

    with_coordinator(script)


def test_a_call_that_is_given_up_leaves_its_answer_to_the_next() -> None:
    async def script(lab: Lab, coordinator: Coordinator) -> None:
        partition = partition_of(lab, 1, "here")
        await open_transaction(partition)
        marker = Marker(ProducerId(9), ProducerEpoch(0), True, CoordinatorEpoch(4), 0, decision=1)
        order = MarkerOrder(marker, (partition.ref,), (partition.leader_epoch,))
        given_up = asyncio.ensure_future(coordinator.writer.write_all([order]))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await coordinator.writer.write_all([order]) == [[E.NONE]]
        assert given_up.cancelled()

    with_coordinator(script)
