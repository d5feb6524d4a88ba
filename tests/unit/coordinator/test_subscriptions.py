"""What consumers put into the bytes of the classic protocol, as real clients wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.records import GroupRecord, StoredMember, decode_record
from tidelog.coordinator.subscriptions import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from tidelog.kernel.ids import PartitionIndex, TopicPartition
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

OFFSETS_TOPIC = Path(__file__).parents[2] / "data/golden/offsets-topic"
OWNED = tuple(TopicPartition(topic, PartitionIndex(index)) for topic, index in [("t", 0), ("t", 2)])


def golden_members() -> list[StoredMember]:
    found: list[StoredMember] = []
    for folder in sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*")):
        data = (folder / "00000000000000000000.log").read_bytes()
        for position, header in headers(data):
            for record in [] if header.is_control else iterate(data, position):
                decoded = decode_record(record.key or b"", record.value)
                if isinstance(decoded, GroupRecord) and decoded.value is not None:
                    found += decoded.value.members
    return found


def test_real_clients_are_understood() -> None:
    members = [each for each in golden_members() if each.client_id != "golden"]
    assert len(members) >= 8
    for each in members:
        subscription = decode_subscription(each.subscription)
        assert subscription.topics in (("w-t",), ("w-in",))
        assigned = decode_assignment(each.assignment).partitions
        assert {partition.topic for partition in assigned} <= set(subscription.topics)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0000 00000001 0001 74 ffffffff", Subscription(("t",))),
        ("0000 00000001 0001 74 00000001 07", Subscription(("t",), user_data=b"\7")),
        (
            "0001 00000001 0001 74 ffffffff 00000001 0001 74 00000002 00000000 00000002",
            Subscription(("t",), OWNED),
        ),
        ("0002 00000000 ffffffff 00000000 00000005", Subscription((), (), 5)),
        ("0003 00000000 ffffffff 00000000 00000005 0001 72", Subscription((), (), 5, "r")),
        # Of a version to come the fields we know are read.
        ("0009 00000000 ffffffff 00000000 00000005 0001 72 ff", Subscription((), (), 5, "r")),
    ],
)
def test_versions_of_a_subscription(data: str, expected: Subscription) -> None:
    assert decode_subscription(bytes.fromhex(data)) == expected


def test_round_trips() -> None:
    subscription = Subscription(("t", "ü"), OWNED, 4, "r", b"x")
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assignment = Assignment(OWNED, b"x")
    assert decode_assignment(encode_assignment(assignment)) == assignment


@pytest.mark.parametrize("data", ["", "00", "ffff", "0000 7fffffff", "0001 00000000 ffffffff"])
def test_nonsense_is_named(data: str) -> None:
    with pytest.raises(MalformedRecord):
        decode_subscription(bytes.fromhex(data))


def test_one_that_cannot_be_read_may_want_anything() -> None:
    good = encode_subscription(Subscription(("t",)))
    assert subscribed_topics([good, good]) == frozenset({"t"})
    assert subscribed_topics([good, b"junk"]) is None
    assert subscribed_topics([]) == frozenset()
