"""Topics, partitions, settings and features beyond what Kafka's recorded answers cover."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tidelog.controller.decisions.add_partitions import MorePartitions, decide_add_partitions
from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    ResourceReplacement,
    decide_incremental_configs,
    decide_whole_configs,
)
from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.decisions.delete_topics import Deletion, decide_delete_topics
from tidelog.controller.decisions.features import FeatureUpdate, decide_feature_updates
from tidelog.controller.metadata import records as r
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def create(scene: Scene, *topics: NewTopic) -> list[ErrorCode]:
    decision = decide_create_topics(scene.image, scene.policy, topics, scene.random)
    return [created.error.code for created in scene.take(decision)]


def test_the_records_of_a_topic_stand_in_order(scene: Scene) -> None:
    scene.create("t", (1, 2), (2, 3), retention_ms="5")
    kinds = [type(record).__name__ for record in scene.last]
    assert kinds == ["Topic", "Config", "Partition", "Partition"]
    state = scene.state("t", 1)
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 0, 0)
    assert state.directories == tuple(scene.image.brokers[NodeId(b)].log_dirs[0] for b in (2, 3))


def test_topic_ids_are_random_and_readable(scene: Scene) -> None:
    topics = [NewTopic(f"t{i}", 1, 1) for i in range(200)]
    decision = decide_create_topics(scene.image, scene.policy, topics, scene.random)
    ids = {created.topic_id for created in decision.response}
    assert len(ids) == 200
    for topic_id in ids:
        assert not str(topic_id).startswith("-")
        assert topic_id.raw[6] >> 4 == 4 and topic_id.raw[8] >> 6 == 2


def test_fenced_brokers_hold_but_do_not_count(scene: Scene) -> None:
    scene.fence(3)
    assert create(scene, NewTopic("t", 2, 3)) == [ErrorCode.NONE]
    for index in (0, 1):
        state = scene.state("t", index)
        assert state.replicas[2] == 3 and set(state.isr) == {1, 2}
    manual = NewTopic("u", assignments=((0, nodes(3)),))
    assert create(scene, manual) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    for broker in (1, 2):
        scene.fence(broker)
    assert create(scene, NewTopic("v", 1, 1)) == [ErrorCode.INVALID_REPLICATION_FACTOR]


def test_an_uneven_assignment_is_refused(scene: Scene) -> None:
    uneven = NewTopic("t", assignments=((0, nodes(1, 2)), (1, nodes(1))))
    assert create(scene, uneven) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    later = NewTopic("u", assignments=((1, nodes(1)), (0, nodes(2))))
    assert create(scene, later) == [ErrorCode.NONE]
    assert [scene.state("u", i).leader for i in (0, 1)] == [2, 1]


def test_defaults_come_from_the_settings(fresh_scene: type[Scene]) -> None:
    scene = fresh_scene(num_partitions="4", default_replication_factor="2")
    scene.start(1, 2)
    assert create(scene, NewTopic("t")) == [ErrorCode.NONE]
    assert len(scene.image.topics.named("t").partitions) == 4  # type: ignore[union-attr]
    assert len(scene.state("t").replicas) == 2


def test_deletion_can_be_forbidden(fresh_scene: type[Scene]) -> None:
    scene = fresh_scene(delete_topic_enable="false")
    scene.start(1)
    scene.create("t", (1,))
    decision = decide_delete_topics(scene.image, scene.policy, [Deletion("t")])
    assert decision.response[0].error.code is ErrorCode.TOPIC_DELETION_DISABLED
    assert decision.records == ()


def test_a_topic_is_deleted_once(scene: Scene) -> None:
    topic_id = scene.create("t", (1,)).topic_id
    both = [Deletion("t"), Deletion(topic_id=topic_id)]
    decision = decide_delete_topics(scene.image, scene.policy, both)
    codes = [deleted.error.code for deleted in decision.response]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST] and len(decision.records) == 1


def test_added_partitions_keep_the_factor(scene: Scene) -> None:
    scene.create("t", (1, 2))
    more = MorePartitions("t", 3)
    scene.take(decide_add_partitions(scene.image, [more], scene.random))
    assert [len(scene.state("t", i).replicas) for i in range(3)] == [2, 2, 2]
    wrong = MorePartitions("t", 4, (nodes(1, 2, 3),))
    decision = decide_add_partitions(scene.image, [wrong], scene.random)
    assert decision.response[0].error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def alter(scene: Scene, *operations: ConfigOperation, kind: int = 2, name: str = "t") -> ErrorCode:
    change = ResourceChange(kind, name, operations)
    [result] = scene.take(decide_incremental_configs(scene.image, scene.policy, [change]))
    return result.error.code


def test_lists_grow_and_shrink_from_what_is_in_force(scene: Scene) -> None:
    scene.create("t", (1,))
    assert alter(scene, ConfigOperation("cleanup.policy", 2, "compact")) is ErrorCode.NONE
    assert scene.image.config(2, "t")["cleanup.policy"] == "delete,compact"
    assert alter(scene, ConfigOperation("cleanup.policy", 3, "delete")) is ErrorCode.NONE
    assert scene.image.config(2, "t")["cleanup.policy"] == "compact"
    assert alter(scene, ConfigOperation("cleanup.policy", 2, "compact")) is ErrorCode.NONE
    assert scene.last == ()
    policy = ConfigOperation("log.cleanup.policy", 0, "compact")
    assert alter(scene, policy, kind=4, name="") is ErrorCode.NONE
    scene.create("u", (1,))
    assert alter(scene, ConfigOperation("cleanup.policy", 2, "delete"), name="u") == 0
    assert scene.image.config(2, "u")["cleanup.policy"] == "compact,delete"


def test_a_change_is_refused_as_a_whole(scene: Scene) -> None:
    scene.create("t", (1,))
    good, bad = ConfigOperation("retention.ms", 0, "5"), ConfigOperation("segment.ms", 0, "0")
    assert alter(scene, good, bad) is ErrorCode.INVALID_CONFIG
    assert not scene.image.config(2, "t")


def test_values_are_judged_together(scene: Scene) -> None:
    scene.create("t", (1,), max_compaction_lag_ms="100")
    assert alter(scene, ConfigOperation("min.compaction.lag.ms", 0, "101")) == 40
    assert alter(scene, ConfigOperation("min.compaction.lag.ms", 0, "100")) == 0


def test_the_whole_set_replaces_what_was_there(scene: Scene) -> None:
    scene.create("t", (1,), retention_ms="5", segment_ms="7")
    replacement = ResourceReplacement(2, "t", (("retention.ms", "6"),))
    decision = decide_whole_configs(scene.image, scene.policy, [replacement], validate_only=True)
    assert decision.records == ()
    scene.take(decide_whole_configs(scene.image, scene.policy, [replacement]))
    assert dict(scene.image.config(2, "t")) == {"retention.ms": "6"}


@pytest.mark.parametrize(("kind", "name"), [(2, "t"), (4, "")])
def test_a_new_min_isr_ends_eligibility(scene: Scene, kind: int, name: str) -> None:
    scene.create("t", (1, 2))
    scene.set_isr("t", 0, 1)
    assert scene.summary("t") == "1|1|2|0"
    change = ConfigOperation("min.insync.replicas", 0, "1")
    assert alter(scene, change, kind=kind, name=name) is ErrorCode.NONE
    assert isinstance(scene.last[-1], r.ClearElr)
    assert scene.summary("t") == "1|1||0"


def test_one_broker_cannot_have_its_own_min_isr(scene: Scene) -> None:
    change = ConfigOperation("min.insync.replicas", 0, "1")
    assert alter(scene, change, kind=4, name="1") is ErrorCode.INVALID_CONFIG


def update(scene: Scene, name: str, level: int, kind: int = 1) -> ErrorCode:
    updates = [FeatureUpdate(name, level, kind)]
    return scene.take(decide_feature_updates(scene.image, scene.policy, updates)).code


ELR = "eligible.leader.replicas.version"


def test_a_feature_needs_every_broker(scene: Scene) -> None:
    old = r.FeatureRange("transaction.version", 0, 1)
    known = scene.image.brokers[NodeId(2)].record()
    features = (*(f for f in known.features if f.name != old.name), old)
    scene.apply((r.FeatureLevel("transaction.version", 1),))
    scene.apply((dataclasses.replace(known, features=features),))
    assert update(scene, "transaction.version", 2) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(scene, "metadata.version", 29, 3) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(scene, "transaction.version", 2, 2) is ErrorCode.INVALID_UPDATE_VERSION


def test_elr_is_not_switched_off_under_those_who_need_it(scene: Scene) -> None:
    scene.create("t", (1,))
    scene.create("u", (1, 2))
    scene.set_isr("u", 0, 1)
    scene.fence(1)
    assert update(scene, ELR, 0, 2) is ErrorCode.INVALID_UPDATE_VERSION
    scene.heartbeat(1)
    assert update(scene, ELR, 0, 2) is ErrorCode.NONE
    assert scene.summary("u").split("|")[2] == ""
    assert update(scene, ELR, 1) is ErrorCode.NONE
    scene.fence(1)
    assert scene.state("t").elr == (1,)
