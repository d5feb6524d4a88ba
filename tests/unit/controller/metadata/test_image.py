"""How single records change the image."""

from __future__ import annotations

import pytest

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.delta import advance, delta_between
from tidelog.controller.metadata.image import InconsistentMetadata, MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.snapshot import (
    DamagedSnapshot,
    image_from_records,
    image_to_records,
)
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    Uuid,
)

A, B = (TopicId(Uuid(bytes([n]) * 16)) for n in (1, 2))
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ZERO = PartitionIndex(0)


def image_of(*records: r.MetadataRecord) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image = image.apply(record, Offset(image.offset + 1))
    return image


def partition(topic_id: TopicId = A, **fields: object) -> r.Partition:
    usual: dict[str, object] = {"replicas": (ONE, TWO), "isr": (ONE, TWO), "leader": ONE}
    return r.Partition(topic_id, ZERO, **{**usual, **fields})  # type: ignore[arg-type]


def register(broker: NodeId, epoch: int) -> r.RegisterBroker:
    return r.RegisterBroker(broker, IncarnationId(Uuid(bytes(16))), BrokerEpoch(epoch))


TOPIC = r.Topic("a", A)


def state(image: MetadataImage, topic_id: TopicId = A) -> PartitionState:
    found = image.topics.partition(PartitionRef(topic_id, ZERO))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("change", "leader_epoch"),
    [
        ({"isr": (ONE,)}, 0),
        ({"leader": TWO}, 1),
        ({"leader": ONE}, 1),  # the same leader again: a new epoch all the same
        ({"leader": r.LEADERLESS, "isr": ()}, 1),
        ({"elr": (TWO,)}, 0),
        ({}, 0),
    ],
)
def test_epochs_of_a_change(change: dict[str, object], leader_epoch: int) -> None:
    record = r.PartitionChange(A, ZERO, **change)  # type: ignore[arg-type]
    after = state(image_of(TOPIC, partition(), record))
    assert (after.leader_epoch, after.partition_epoch) == (leader_epoch, 1)


def test_directories_follow_their_replicas() -> None:
    d1, d2, d3 = (DirectoryId(Uuid(bytes([n]) * 16)) for n in (11, 12, 13))
    image = image_of(
        TOPIC,
        partition(directories=(d1, d2)),
        r.PartitionChange(
            A, ZERO, replicas=(THREE, TWO, ONE), directories=(d3, d2, d1), adding=(THREE,)
        ),
        r.PartitionChange(A, ZERO, replicas=(TWO, THREE), adding=()),
    )
    assert state(image).directories == (d2, d3)


def test_a_replica_that_leaves_the_assignment_restarts_empty() -> None:
    image = image_of(TOPIC, partition(), r.PartitionChange(A, ZERO, replicas=(TWO,), isr=(TWO,)))
    assert state(image).restarts_empty == (ONE,)
    again = image.apply(r.PartitionChange(A, ZERO, replicas=(TWO, ONE)), Offset(9))
    assert state(again).restarts_empty == (ONE,)
    emptied = again.apply(r.ReplicaRestartsEmpty(A, ZERO, ONE, emptied=True), Offset(10))
    assert state(emptied).restarts_empty == ()


def test_clearing_eligible_replicas_spares_partitions_that_need_them() -> None:
    below_min = partition(isr=(ONE,), elr=(TWO,))
    nobody = partition(B, isr=(), leader=r.LEADERLESS, elr=(TWO,), last_known_elr=(TWO,))
    image = image_of(TOPIC, r.Topic("b", B), below_min, nobody, r.ClearElr(""))
    assert state(image).elr == ()
    assert state(image).partition_epoch == 0
    assert (state(image, B).elr, state(image, B).last_known_elr) == ((TWO,), (TWO,))
    assert image.topics.counting_on(TWO) == [PartitionRef(B, ZERO)]


def test_a_recreated_topic_is_another_topic() -> None:
    """Hazard 9: nothing of the old topic answers for the new one."""
    config = r.Config(2, "a", "retention.ms", "1")
    image = image_of(TOPIC, config, partition(), r.RemoveTopic(A), r.Topic("a", B))
    assert image.topics.named("a") == image.topics.by_id[B]
    assert image.topics.partition(PartitionRef(A, ZERO)) is None
    assert not image.config(2, "a")
    assert image.topics.led_by(ONE) == []
    with pytest.raises(InconsistentMetadata):
        image.apply(r.PartitionChange(A, ZERO, isr=(ONE,)), Offset(9))


@pytest.mark.parametrize(
    "record",
    [
        partition(B),
        r.PartitionChange(A, PartitionIndex(7), isr=(ONE,)),
        partition(A),
        r.Topic("a", B),
        r.Topic("b", A),
        r.RemoveTopic(B),
        r.UnregisterBroker(TWO, BrokerEpoch(1)),
        r.UnregisterBroker(ONE, BrokerEpoch(6)),
        r.BrokerRegistrationChange(ONE, BrokerEpoch(4), fenced=False),
        r.ReplicaRestartsEmpty(B, ZERO, ONE),
    ],
    ids=repr,
)
def test_a_record_that_does_not_fit_stops_the_node(record: r.MetadataRecord) -> None:
    image = image_of(TOPIC, partition(), register(ONE, 5))
    with pytest.raises(InconsistentMetadata):
        image.apply(record, Offset(9))


def test_a_controlled_shutdown_notes_its_offset() -> None:
    change = r.BrokerRegistrationChange(ONE, BrokerEpoch(0), in_controlled_shutdown=True)
    image = image_of(register(ONE, 0), r.NoOp(), change)
    assert image.brokers[ONE].controlled_shutdown_at == 2
    assert not image.brokers[ONE].is_active
    assert image.apply(register(ONE, 3), Offset(3)).brokers[ONE].controlled_shutdown_at == -1


def test_a_delta_names_what_changed_and_nothing_else() -> None:
    before = image_of(TOPIC, partition(), register(ONE, 2), r.Config(2, "a", "x", "1"))
    records: list[r.MetadataRecord] = [
        r.PartitionChange(A, ZERO, isr=(ONE,)),
        r.Config(2, "a", "x", "2"),
        r.Config(2, "a", "x", "1"),  # and back again
        r.RemoveTopic(A),
        r.Topic("a", B),
        partition(B),
        r.FeatureLevel("f", 1),
    ]
    after, delta = advance(before, [(Offset(4 + i), record) for i, record in enumerate(records)])
    assert (delta.topics_created, delta.topics_deleted) == ((B,), (A,))
    assert delta.partitions == (PartitionRef(B, ZERO),)
    assert delta.configs == ((2, "a"),)
    assert (delta.features, delta.brokers) == (("f",), ())
    assert delta == delta_between(before, after)
    assert advance(after, [(Offset(20), r.NoOp())])[1].is_empty


def small_image() -> MetadataImage:
    return image_of(TOPIC, partition(), register(ONE, 2), r.FeatureLevel("f", 1))


@pytest.mark.parametrize("missing", range(5))
def test_a_snapshot_that_lost_a_record_is_refused(missing: int) -> None:
    """Hazard 15: a cluster must never seem to have no topics because a snapshot is damaged."""
    records = list(image_to_records(small_image()))
    del records[missing]
    with pytest.raises((DamagedSnapshot, InconsistentMetadata)):
        image_from_records(records, Offset(3))


def test_an_empty_or_overlong_snapshot_is_refused() -> None:
    with pytest.raises(DamagedSnapshot):
        image_from_records([], Offset(3))
    records = list(image_to_records(small_image()))
    with pytest.raises(DamagedSnapshot):
        image_from_records([*records, r.NoOp()], Offset(3))
    assert image_from_records(records, Offset(3)) == small_image()


def test_what_a_record_does_not_touch_is_shared() -> None:
    """The cost of a record does not grow with the cluster: the rest is not even copied."""
    topics = [r.Topic(f"t{i}", TopicId(Uuid(i.to_bytes(16, "big")))) for i in range(100, 300)]
    before = image_of(*topics, TOPIC, partition())
    after = before.apply(r.PartitionChange(A, ZERO, leader=TWO), Offset(999))
    assert state(after).leader_epoch == LeaderEpoch(1)
    assert after.brokers is before.brokers and after.configs is before.configs
    for topic in topics:
        assert after.topics.by_id[topic.topic_id] is before.topics.by_id[topic.topic_id]
