"""Every change of a partition is told with its cause and epoch."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest
from immutables import Map

from tidelog.broker.metrics.state_changes import StateChanges, change_of
from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.delta import delta_between
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionRef, PartitionState
from tidelog.controller.metadata.topics import TopicsImage
from tidelog.kernel.ids import (
    NO_OFFSET,
    BrokerEpoch,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    Uuid,
)

TOPIC = TopicId(Uuid(bytes(15) + b"\1"))


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def broker(number: int, *, fenced: bool = False, leaving: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        NodeId(number), IncarnationId(Uuid(bytes(16))), BrokerEpoch(1), (), (), None, fenced,
        leaving, NO_OFFSET, (), None,
    )  # fmt: skip


def image(*brokers: BrokerRegistration) -> MetadataImage:
    return MetadataImage(brokers=Map({one.broker_id: one for one in brokers}))


BEFORE = PartitionState(
    nodes(1, 2, 3), nodes(1, 2, 3), NodeId(1), LeaderEpoch(4), PartitionEpoch(9), (UNASSIGNED,) * 3
)
ALIVE = image(broker(1), broker(2), broker(3))


def after(**changes: object) -> PartitionState:
    return dataclasses.replace(BEFORE, partition_epoch=PartitionEpoch(10), **changes)  # type: ignore[arg-type]


NEXT = {"leader": NodeId(2), "leader_epoch": LeaderEpoch(5)}


@pytest.mark.parametrize(
    ("state", "brokers", "kind", "cause"),
    [
        (after(isr=nodes(1, 3)), ALIVE, "isr-shrunk", "broker 2 fell behind"),
        (after(isr=nodes(1, 3)), image(broker(2, fenced=True)), "isr-shrunk", "2 is fenced"),
        (after(isr=nodes(1, 3)), image(broker(2, leaving=True)), "isr-shrunk", "2 shuts down"),
        (after(isr=nodes(1, 3)), image(), "isr-shrunk", "2 is not registered any more"),
        (after(**NEXT), image(broker(1, fenced=True)), "leader", "broker 1 is fenced"),
        (after(**NEXT), image(broker(1, leaving=True)), "leader", "broker 1 shuts down"),
        (after(**NEXT, replicas=nodes(2, 1, 3)), ALIVE, "leader", "2 is its preferred leader"),
        (after(leader_epoch=LeaderEpoch(5)), ALIVE, "leader", "elected again"),
        (after(leader=NodeId(-1), leader_epoch=LeaderEpoch(5)), image(broker(1, fenced=True)),
         "leaderless", "broker 1 is fenced, and no replica"),
        (after(replicas=nodes(1, 2, 4)), ALIVE, "assignment", "reassigned"),
        (after(), ALIVE, "other", "noted"),
    ],
)  # fmt: skip
def test_the_cause_is_told(
    state: PartitionState, brokers: MetadataImage, kind: str, cause: str
) -> None:
    change = change_of(BEFORE, state, brokers)
    assert change is not None
    assert change.kind == kind
    assert cause in change.cause


def test_joining_the_isr_is_told() -> None:
    before = after(isr=nodes(1))
    change = change_of(before, dataclasses.replace(before, isr=nodes(1, 2)), ALIVE)
    assert change is not None
    assert (change.kind, change.cause) == ("isr-grown", "broker 2 caught up")


def test_nothing_is_told_of_nothing() -> None:
    assert change_of(BEFORE, BEFORE, ALIVE) is None


def with_partitions(base: MetadataImage, count: int, state: PartitionState) -> MetadataImage:
    topics = TopicsImage().with_topic("t", TOPIC)
    for index in range(count):
        topics = topics.with_partition(PartitionRef(TOPIC, PartitionIndex(index)), state)
    return dataclasses.replace(base, topics=topics, offset=Offset(7))


def test_lines_come_after_the_change_and_a_few_at_a_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> list[int]:
        changes = StateChanges(NodeId(1))
        one = with_partitions(ALIVE, 120, BEFORE)
        two = with_partitions(ALIVE, 120, after(isr=nodes(1, 3)))
        changes.note(delta_between(one, two))
        seen = [len(caplog.records)]
        while seen[-1] < 120:
            await asyncio.sleep(0)
            seen.append(len(caplog.records))
        assert changes.counts == {"isr-shrunk": 120}
        assert (changes.isr_shrinks, changes.isr_expands) == (120, 0)
        return seen

    with caplog.at_level(logging.INFO, "tidelog.state_change"):
        assert asyncio.run(scenario()) == [0, 50, 100, 120]
    facts = vars(caplog.records[0])
    assert facts["cause"].startswith("broker 2 fell behind")
    assert (facts["leader_epoch"], facts["partition_epoch"], facts["isr"]) == (4, 10, [1, 3])
    assert (facts["metadata_offset"], facts["former_isr"]) == (7, [1, 2, 3])


def test_what_is_not_held_here_is_not_told() -> None:
    async def scenario() -> None:
        changes = StateChanges(NodeId(9))
        changes.note(delta_between(ALIVE, with_partitions(ALIVE, 3, BEFORE)))
        assert changes.counts == {}

    asyncio.run(scenario())
