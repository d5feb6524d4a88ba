"""Kafka's own offsets topic: loaded to the groups it tells of, and written alike by our machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import ClassicGroup, GroupSettings
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import ConsumerHeartbeat, RespondConsumer
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.consumer_group import ConsumerGroup
from tidelog.coordinator.groups import Groups
from tidelog.coordinator.records import GroupRecord, decode_record
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

OFFSETS_TOPIC = Path(__file__).parents[3] / "data/golden/offsets-topic"
STEPS = json.loads((OFFSETS_TOPIC / "steps.json").read_text(encoding="utf-8"))
W_T, W_IN = (Uuid.parse(STEPS["topicIds"][name]) for name in ("w-t", "w-in"))
TOPICS = KnownTopics([TopicInfo(W_T, "w-t", 2), TopicInfo(W_IN, "w-in", 1)], 1)
Batch = list[r.ConsumerRecord]


def stored(partition: int) -> Iterator[list[Any]]:
    """The records of the groups in a partition, batch by batch."""
    data = (OFFSETS_TOPIC / f"__consumer_offsets-{partition}/00000000000000000000.log").read_bytes()
    for position, header in headers(data):
        if not header.is_control:
            found = [decode_record(each.key or b"", each.value) for each in iterate(data, position)]
            yield [each for each in found if isinstance(each, r.ConsumerRecord | GroupRecord)]


def new_groups() -> Groups:
    context = GroupContext(ConsumerGroupSettings(), TOPICS)
    return Groups.empty(GroupSettings(), context)


def loaded(partition: int, batches: int | None = None) -> Groups:
    groups = new_groups()
    for batch in list(stored(partition))[:batches]:
        for record in batch:
            groups.load(record, 0)
    return groups


@pytest.mark.parametrize("folder", sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*")))
def test_every_partition_is_loaded(folder: Path) -> None:
    groups = loaded(int(folder.name.rpartition("-")[2]))
    for group in groups:
        assert group.state.value in {"Empty", "Stable"}


def test_deleted_groups_are_gone_and_left_ones_are_empty() -> None:
    assert loaded(5).get("raw-848") is None
    assert loaded(31).get("java-g-consumer") is None
    left = loaded(16).get("cf-g-consumer")
    assert isinstance(left, ConsumerGroup)
    assert (left.state.value, left.epoch, left.target_epoch) == ("Empty", 5, 3)


def test_a_group_in_the_middle_of_its_life() -> None:
    group = loaded(5, batches=4).get("raw-848")
    assert isinstance(group, ConsumerGroup)
    members = {each.member_id[-1]: each for each in group.describe().members}
    assert (group.epoch, group.target_epoch, group.state.value) == (3, 3, "Reconciling")
    assert members["Q"].rack_id == "rack-a"
    assert [each.partitions for each in members["Q"].assigned] == [(0,)]
    assert [each.partitions for each in members["g"].target] == [(1,)]
    assert members["g"].assigned == ()


def test_a_member_loses_its_session_after_a_load() -> None:
    groups = loaded(5, batches=5)
    assert groups.next_deadline_ms() == 45_000
    effects = groups.expire(45_000)
    assert [type(effect) for effect in effects] == [e.Append]
    group = groups.get("raw-848")
    assert group is not None and group.state.value == "Empty"


def test_of_two_kinds_the_last_one_counts() -> None:
    groups = loaded(16, batches=3)
    classic = next(each for batch in stored(49) for each in batch if each.value is not None)
    key = replace(classic.key, group="cf-g-consumer")
    groups.load(replace(classic, key=key), 0)
    assert isinstance(groups.get("cf-g-consumer"), ClassicGroup)
    assert len(groups) == 1
    for record in next(stored(16)):
        groups.load(record, 0)
    assert isinstance(groups.get("cf-g-consumer"), ConsumerGroup)
    assert len(groups) == 1


# --- our records -----------------------------------------------------------------------------


def written(group_id: str) -> Iterator[tuple[str, Batch]]:
    """What our machine writes for the requests that Kafka's log is made of."""
    groups = new_groups()
    for step in STEPS["steps"]:
        request = step.get("request", {})
        if step.get("api") != "ConsumerGroupHeartbeat" or request["groupId"] != group_id:
            continue
        owned = request.get("topicPartitions")
        names = request.get("subscribedTopicNames")
        event = ConsumerHeartbeat(
            1, request["memberId"], request["memberEpoch"], request.get("instanceId"),
            request.get("rackId"), request.get("rebalanceTimeoutMs", -1),
            None if names is None else tuple(names), request.get("subscribedTopicRegex"), None,
            None if owned is None else tuple(
                (Uuid.parse(each["topicId"]), tuple(each["partitions"])) for each in owned
            ),
            "golden", "/127.0.0.1",
        )  # fmt: skip
        for effect in groups.handle(step["at"], group_id, event):
            if isinstance(effect, e.Append):
                yield (
                    step["step"],
                    [each for each in effect.records if isinstance(each, r.ConsumerRecord)],
                )
                groups.append_finished(step["at"], group_id, effect.write_id, ErrorCode.NONE)
            else:
                assert isinstance(effect, RespondConsumer)


def masked(batch: Batch) -> list[str]:
    """Without times and hashes, and in an order of its own: Kafka's is that of a hash table."""
    found = []
    for record in batch:
        value = record.value
        if isinstance(value, r.GroupEpoch):
            value = replace(value, metadata_hash=0)
        elif isinstance(value, r.TargetEpoch):
            value = replace(value, assigned_ms=0)
        found.append(repr(replace(record, value=value)))
    return sorted(found)


@pytest.mark.parametrize(
    ("partition", "group_id", "batches"),
    [(5, "raw-848", 5), (26, "raw-848-static", 3)],
)
def test_we_write_what_kafka_writes(partition: int, group_id: str, batches: int) -> None:
    """Up to the first regular expression, which is resolved at once here and later by Kafka."""
    theirs = [
        batch
        for found in stored(partition)
        if (batch := [each for each in found if isinstance(each, r.ConsumerRecord)])
    ]
    ours = list(written(group_id))[:batches]
    assert len(ours) == batches
    for (step, batch), expected in zip(ours, theirs, strict=False):
        assert masked(batch) == masked(expected), step
