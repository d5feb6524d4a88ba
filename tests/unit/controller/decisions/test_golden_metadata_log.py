"""Three nodes of Apache Kafka 4.3.1 went through kills, restarts, elections and reassignments.

The same sequence of commands and failures is put to the decisions here, and after every step each
partition must stand as Kafka's metadata log says. Assignments that Kafka drew by lot are given.

Twice: once with the page cache trusted as Kafka does, where nothing may differ, and once with the
default, fsync, where the differences are those of the table at the end, for the reasons given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.controller.decisions.add_partitions import MorePartitions, decide_add_partitions
from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    decide_incremental_configs,
)
from tidelog.controller.decisions.delete_topics import Deletion, decide_delete_topics
from tidelog.controller.decisions.features import FeatureUpdate, decide_feature_updates
from tidelog.controller.decisions.leaders import decide_elections
from tidelog.controller.decisions.producer_ids import decide_producer_ids
from tidelog.controller.decisions.reassignment import (
    ReassignmentRequest,
    decide_reassignments,
    ongoing_reassignments,
)
from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId, Offset, PartitionIndex, TopicId, TopicPartition, Uuid

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene

GOLDEN = Path(__file__).parents[3] / "data" / "golden" / "metadata-log"
LINE = re.compile(r"\| offset: (\d+) .* payload: (\{.*\})$")

State = dict[str, Any]


def kafka_log() -> Iterator[tuple[int, str, dict[str, Any]]]:
    text = (GOLDEN / "00000000000000000000.log.dump.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        found = LINE.match(line)
        if found:
            record = json.loads(found[2])
            yield int(found[1]), record["type"].removesuffix("_RECORD"), record["data"]


LOG = list(kafka_log())
STEPS = {
    step["step"]: step
    for step in json.loads((GOLDEN / "steps.json").read_text(encoding="utf-8"))["steps"]
}


def nodes(ids: list[int] | None) -> tuple[NodeId, ...] | None:
    return None if ids is None else tuple(map(NodeId, ids))


def to_record(kind: str, data: dict[str, Any]) -> r.MetadataRecord | None:
    """Kafka's record as ours, as far as topics and partitions are concerned."""
    if kind == "TOPIC":
        return r.Topic(data["name"], TopicId(Uuid.parse(data["topicId"])))
    if kind == "REMOVE_TOPIC":
        return r.RemoveTopic(TopicId(Uuid.parse(data["topicId"])))
    if kind == "PARTITION":
        return r.Partition(
            topic_id=TopicId(Uuid.parse(data["topicId"])),
            partition=PartitionIndex(data["partitionId"]),
            replicas=nodes(data["replicas"]) or (),
            isr=nodes(data["isr"]) or (),
            leader=NodeId(data["leader"]),
        )
    if kind == "PARTITION_CHANGE":
        return r.PartitionChange(
            topic_id=TopicId(Uuid.parse(data["topicId"])),
            partition=PartitionIndex(data["partitionId"]),
            isr=nodes(data.get("isr")),
            leader=NodeId(data["leader"]) if "leader" in data else None,
            replicas=nodes(data.get("replicas")),
            removing=nodes(data.get("removingReplicas")),
            adding=nodes(data.get("addingReplicas")),
            leader_recovery=data.get("leaderRecoveryState"),
            elr=nodes(data.get("eligibleLeaderReplicas")),
            last_known_elr=nodes(data.get("lastKnownElr")),
        )
    return None


class Kafka:
    """Kafka's own state, moved along its log."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.at = -1

    def records(self, up_to: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Moves to an offset; yields what lies on the way."""
        for offset, kind, data in LOG:
            if self.at < offset <= up_to:
                record = to_record(kind, data)
                if kind == "PARTITION_CHANGE" or kind == "PARTITION":
                    topic = self.image.topics.by_id[TopicId(Uuid.parse(data["topicId"]))]
                    data = {**data, "topic": topic.name}
                if record is not None:
                    self.image = self.image.apply(record, Offset(offset))
                yield kind, data
        self.at = up_to

    def advance(self, up_to: int) -> None:
        for _ in self.records(up_to):
            pass


def visible(state: PartitionState) -> State:
    return {
        "leader": state.leader,
        "isr": list(state.isr),
        "elr": list(state.elr),
        "last known": list(state.last_known_elr),
        "leader epoch": state.leader_epoch,
        "partition epoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "adding": list(state.adding),
        "removing": list(state.removing),
        "recovery": state.leader_recovery.name,
    }


def all_visible(image: MetadataImage) -> dict[str, State]:
    return {
        f"{topic.name}-{ref.partition}": visible(topic.partitions[ref.partition])
        for topic in image.topics
        for ref in topic.refs()
    }


Differences = dict[str, dict[str, tuple[Any, Any]]]


class Replay:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.kafka = Kafka()
        self.differences: dict[int, Differences] = {}
        """By the offset in Kafka's log up to which the step goes."""

    def compare(self, step: str, up_to: int) -> None:
        self.kafka.advance(up_to)
        ours, theirs = all_visible(self.scene.image), all_visible(self.kafka.image)
        assert ours.keys() == theirs.keys(), step
        found = {
            name: {
                field: (theirs[name][field], value)
                for field, value in ours[name].items()
                if value != theirs[name][field]
            }
            for name in ours
        }
        self.differences[up_to] = {name: fields for name, fields in found.items() if fields}

    def create(self, name: str, up_to: int, **configs: str) -> None:
        lists = {
            data["partitionId"]: tuple(data["replicas"])
            for kind, data in self.kafka.records(up_to)
            if kind == "PARTITION"
        }
        self.scene.create(name, *(lists[i] for i in sorted(lists)), **configs)
        self.compare(f"create {name}", up_to)

    def leaders_report(self, step: str, up_to: int) -> None:
        """Each ISR that a leader reported to Kafka is reported here."""
        for kind, data in list(self.kafka.records(up_to)):
            if kind == "PARTITION_CHANGE":
                error = self.scene.set_isr(data["topic"], data["partitionId"], *data["isr"])
                assert error is ErrorCode.NONE
        self.compare(step, up_to)

    def restart(self, broker: int, *, clean: bool, registered: int, unfenced: int) -> None:
        epoch = self.scene.epoch(broker)
        request = self.scene.registration(broker, previous_epoch=epoch if clean else -1)
        assert self.scene.register(request).error.code is ErrorCode.NONE
        self.compare(f"{broker} registers", registered)
        assert not self.scene.heartbeat(broker).is_fenced
        self.compare(f"{broker} is unfenced", unfenced)

    def shut_down(self, broker: int, relieved: int) -> None:
        begun = self.scene.heartbeat(broker, wants_shut_down=True, lowest=0)
        assert not begun.should_shut_down
        self.compare(f"{broker} is relieved", relieved)
        waiting = self.scene.heartbeat(broker, wants_shut_down=True, lowest=0)
        assert not waiting.should_shut_down and not self.scene.last
        assert self.scene.heartbeat(broker, wants_shut_down=True).should_shut_down

    def elect(self, step: str) -> None:
        request = STEPS[step]["request"]
        wanted = request["topicPartitions"]
        partitions = None
        if wanted is not None:
            partitions = [
                TopicPartition(topic["topic"], PartitionIndex(index))
                for topic in wanted
                for index in topic["partitions"]
            ]
        answer = self.scene.take(
            decide_elections(
                self.scene.image, self.scene.policy, request["electionType"], partitions
            )
        )
        ours = {
            (topic.topic, one.partition, int(one.error.code), one.error.message)
            for topic in answer.topics
            for one in topic.partitions
        }
        theirs = {
            (topic["topic"], one["partitionId"], one["errorCode"], one["errorMessage"])
            for topic in STEPS[step]["response"]["replicaElectionResults"]
            for one in topic["partitionResult"]
        }
        assert ours == theirs

    def reassign(self, step: str, topic: str, index: int, up_to: int) -> None:
        [wanted] = STEPS[step]["request"]["topics"][0]["partitions"]
        partition = TopicPartition(topic, PartitionIndex(index))
        request = ReassignmentRequest(partition, nodes(wanted["replicas"]))
        [result] = self.scene.take(
            decide_reassignments(self.scene.image, self.scene.policy, [request])
        )
        assert result.error.code is ErrorCode.NONE, result
        self.compare(step, up_to)

    def listed(self) -> list[tuple[str, int, list[int], list[int], list[int]]]:
        return [
            (
                one.partition.topic,
                one.partition.partition,
                list(one.replicas),
                list(one.adding),
                list(one.removing),
            )
            for one in ongoing_reassignments(self.scene.image, None)
        ]


def alter_configs(replay: Replay, step: str, up_to: int) -> None:
    changes = [
        ResourceChange(
            resource["resourceType"],
            resource["resourceName"],
            tuple(
                ConfigOperation(c["name"], c["configOperation"], c["value"])
                for c in resource["configs"]
            ),
        )
        for resource in STEPS[step]["request"]["resources"]
    ]
    scene = replay.scene
    results = scene.take(decide_incremental_configs(scene.image, scene.policy, changes))
    assert all(result.error.code is ErrorCode.NONE for result in results)
    written = {
        (record.resource_name, record.name, record.value)
        for record in scene.last
        if isinstance(record, r.Config)
    }
    theirs = {
        (data["resourceName"], data["name"], data["value"])
        for kind, data in replay.kafka.records(up_to)
        if kind == "CONFIG"
    }
    assert written == theirs
    replay.compare(step, up_to)


def topics_come_to_be(replay: Replay) -> None:
    replay.compare("three brokers start", 23)
    replay.create("auto3", 34)
    replay.create("fixed", 38)
    replay.create("two", 44, min_insync_replicas="2", retention_ms="3600000")
    replay.create("single", 49, min_insync_replicas="1")
    unclean = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
    replay.create("unclean", 55, **unclean)
    replay.create("__consumer_offsets", 65, cleanup_policy="compact")
    replay.create("__transaction_state", 74, min_insync_replicas="2")
    alter_configs(replay, "alter topic config: set and append", 81)
    alter_configs(replay, "delete a topic config", 82)
    alter_configs(replay, "cluster default broker config", 83)
    alter_configs(replay, "min.insync.replicas of a topic changed (clears ELR)", 85)
    scene = replay.scene
    n = NodeId
    more = [
        MorePartitions("auto3", 5, ((n(3), n(1), n(2)), (n(1), n(2), n(3)))),
        MorePartitions("fixed", 4, ((n(3), n(2), n(1)),)),
    ]
    scene.take(decide_add_partitions(scene.image, more, scene.random))
    replay.compare("add partitions", 88)
    block = scene.take(decide_producer_ids(scene.image, n(1), scene.epoch(1)))
    assert (block.first, scene.image.next_producer_id) == (0, 1000)


def a_broker_is_killed_and_comes_back(replay: Replay) -> None:
    scene = replay.scene
    scene.fence(3)
    replay.compare("kill -9 node 3", 136)
    replay.elect("preferred election while the preferred leader is down")
    replay.elect("unclean election: no replica alive / not needed")
    replay.create("while-down", 152)
    replay.restart(3, clean=False, registered=165, unfenced=169)
    replay.leaders_report("3 is in sync again", 189)
    replay.elect("preferred election for all")
    replay.compare("preferred election for all", 209)


def a_broker_is_stopped_and_comes_back(replay: Replay) -> None:
    replay.shut_down(2, relieved=230)
    replay.restart(2, clean=True, registered=253, unfenced=257)
    replay.leaders_report("2 is in sync again", 276)


def replicas_move(replay: Replay) -> None:
    scene = replay.scene
    replay.reassign("reassign two-0 from 3,2 to 1,2", "two", 0, 287)
    assert replay.listed() == [("two", 0, [1, 2, 3], [1], [3])]
    assert scene.set_isr("two", 0, 1, 2, 3) is ErrorCode.NEW_LEADER_ELECTED
    replay.compare("two-0 has moved", 288)
    assert replay.listed() == []
    replay.reassign("reassign single-0 from 3 to 1", "single", 0, 290)
    replay.reassign("shrink fixed-0 to 1,2", "fixed", 0, 291)
    replay.reassign("grow two-1 to 2,3,1", "two", 1, 292)
    assert scene.set_isr("two", 1, 1, 2, 3) is ErrorCode.NONE
    replay.compare("two-1 has grown", 294)
    assert scene.set_isr("single", 0, 1, 3) is ErrorCode.NEW_LEADER_ELECTED
    replay.compare("single-0 has moved", 295)
    scene.fence(3)
    replay.compare("kill -9 node 3 to keep a reassignment waiting", 334)
    replay.reassign("reassign two-0 to 3,2 while 3 is down", "two", 0, 339)
    assert replay.listed() == [("two", 0, [3, 2, 1], [3], [1])]
    replay.reassign("cancel", "two", 0, 342)


def the_rest(replay: Replay) -> None:
    scene = replay.scene
    replay.restart(3, clean=False, registered=360, unfenced=365)
    replay.leaders_report("3 is in sync once more", 383)
    [deleted] = scene.take(decide_delete_topics(scene.image, scene.policy, [Deletion("auto3")]))
    assert deleted.error.code is ErrorCode.NONE
    replay.compare("delete auto3", 396)
    replay.create("auto3", 398)
    for level, upgrade_type in ((1, 2), (2, 1)):
        update = FeatureUpdate("transaction.version", level, upgrade_type)
        answer = scene.take(decide_feature_updates(scene.image, scene.policy, [update]))
        assert answer.code is ErrorCode.NONE
    replay.shut_down(1, relieved=416)
    replay.restart(1, clean=True, registered=441, unfenced=448)
    replay.leaders_report("1 is in sync again", 461)
    replay.shut_down(3, relieved=485)
    replay.shut_down(2, relieved=500)
    replay.shut_down(1, relieved=516)
    replay.compare("stop all", 519)


CHAPTERS: list[Callable[[Replay], None]] = [
    topics_come_to_be,
    a_broker_is_killed_and_comes_back,
    a_broker_is_stopped_and_comes_back,
    replicas_move,
    the_rest,
]


@pytest.fixture
def replay(scene: Scene) -> Replay:
    return Replay(scene)


def play(replay: Replay) -> None:
    for chapter in CHAPTERS:
        chapter(replay)


def test_with_the_page_cache_trusted_every_step_is_kafkas(replay: Replay) -> None:
    change = ResourceChange(4, "", (ConfigOperation("log.flush.policy", 0, "page-cache"),))
    scene = replay.scene
    scene.take(decide_incremental_configs(scene.image, scene.policy, [change]))
    play(replay)
    assert {step: d for step, d in replay.differences.items() if d} == {}
    assert len(replay.differences) > 40


BEHIND_BY_ONE = "one change fewer: the place in the ELR was not taken away and given back"
KEEPS_ELR = "an unclean restart costs no replica its place when acknowledged means fsynced"
ELECTED_CLEANLY = "so the only replica is elected from the ELR, not as last known leader"

# What is different with fsync: partition and field, from and to which offset, and why.
DIFFERENCES = [
    ("two-0", "elr", 165, 169, KEEPS_ELR),
    ("two-1", "elr", 165, 169, KEEPS_ELR),
    ("single-0", "elr", 165, 165, KEEPS_ELR),
    ("single-0", "recovery", 169, 294, ELECTED_CLEANLY),
    ("two-0", "partition epoch", 165, 519, BEHIND_BY_ONE),
    ("two-1", "partition epoch", 165, 519, BEHIND_BY_ONE),
    ("single-0", "partition epoch", 165, 519, BEHIND_BY_ONE),
]


def test_with_fsync_only_the_known_differences_remain(replay: Replay) -> None:
    play(replay)
    found = {
        (name, field, offset)
        for offset, differing in replay.differences.items()
        for name, fields in differing.items()
        for field in fields
    }
    expected = {
        (name, field, offset)
        for name, field, first, last, _ in DIFFERENCES
        for offset in replay.differences
        if first <= offset <= last
    }
    assert found == expected
    epochs = {
        theirs - ours
        for differing in replay.differences.values()
        for fields in differing.values()
        for theirs, ours in [fields.get("partition epoch", (1, 0))]
    }
    assert epochs == {1}
