"""Kafka's own records of its offsets topic: read, understood, and written back byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.coordinator import consumer_records as consumer
from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.records import (
    GroupKey,
    GroupRecord,
    GroupValue,
    OffsetKey,
    OffsetRecord,
    OffsetValue,
    StoredMember,
    UnsupportedRecord,
    decode_record,
    encode_record,
)
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

OFFSETS_TOPIC = Path(__file__).parents[2] / "data/golden/offsets-topic"
FOLDERS = sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*"))
GROUP = bytes.fromhex("0002 0001 67")
KEY = bytes.fromhex("0001 0001 67 0001 74 00000007")


def stored(folder: Path) -> Iterator[tuple[int, bytes, bytes | None]]:
    data = (folder / "00000000000000000000.log").read_bytes()
    for position, header in headers(data):
        if not header.is_control:
            for record in iterate(data, position):
                assert record.key is not None
                yield int(record.offset), record.key, record.value


def dumped(folder: Path) -> dict[int, tuple[dict[str, object], dict[str, object] | None]]:
    found = {}
    line = re.compile(r"^\| offset: (\d+) .*? key: (\{.*\}) payload: (.*)$")
    for text in (folder / "dump.txt").read_text(encoding="utf-8").splitlines():
        if match := line.match(text):
            payload = None if match[3] == "<DELETE>" else json.loads(match[3])
            found[int(match[1])] = (json.loads(match[2]), payload)
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kafkas_records_are_written_back_byte_for_byte(folder: Path) -> None:
    for _, key, value in stored(folder):
        record = decode_record(key, value)
        if isinstance(record, UnsupportedRecord):
            assert record.key_type in {4, *range(9, 17)}
        else:
            assert encode_record(record) == (key, value)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_say_what_kafkas_own_decoder_says(folder: Path) -> None:
    dump = dumped(folder)
    for offset, key, value in stored(folder):
        record = decode_record(key, value)
        expected_key, expected = dump[offset]
        match record:
            case OffsetRecord(place, found):
                data = {"group": place.group, "topic": place.topic, "partition": place.partition}
                assert expected_key["data"] == data
                assert_offset(found, expected)
            case GroupRecord(place, value_found):
                assert expected_key["data"] == {"group": place.group}
                assert_group(value_found, expected)
            case consumer.ConsumerRecord(place, _):
                assert expected_key["type"] == str(place.key_type)
            case UnsupportedRecord(key_type, _, _):
                assert expected_key["type"] == str(key_type)


def assert_offset(found: OffsetValue | None, expected: dict[str, object] | None) -> None:
    if found is None or expected is None:
        assert found is None and expected is None
        return
    data = expected["data"]
    assert isinstance(data, dict)
    assert (found.offset, found.metadata) == (data["offset"], data["metadata"])
    assert found.commit_ms == data["commitTimestamp"]
    assert found.leader_epoch == data.get("leaderEpoch", -1)
    assert found.expire_ms == data.get("expireTimestamp")
    assert str(found.topic_id) == data.get("topicId", str(ZERO_UUID))


def assert_group(found: GroupValue | None, expected: dict[str, object] | None) -> None:
    if found is None or expected is None:
        assert found is None and expected is None
        return
    data = expected["data"]
    assert isinstance(data, dict)
    assert (found.protocol_type, found.generation) == (data["protocolType"], data["generation"])
    assert (found.protocol, found.leader) == (data["protocol"], data["leader"])
    assert found.state_changed_ms == data["currentStateTimestamp"]
    theirs = [(m["memberId"], m["groupInstanceId"], m["sessionTimeout"]) for m in data["members"]]
    assert theirs == [(m.member_id, m.instance_id, m.session_timeout_ms) for m in found.members]


MEMBER = StoredMember("m", None, "c", "/h", 300, 100, b"s", b"a")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("0000 0000000000000005 0001 6d 0000000000000009", OffsetValue(5, -1, "m", 9)),
        (
            "0001 0000000000000005 0001 6d 0000000000000009 000000000000000a",
            OffsetValue(5, -1, "m", 9, 10),
        ),
        ("0002 0000000000000005 0001 6d 0000000000000009", OffsetValue(5, -1, "m", 9)),
        ("0003 0000000000000005 00000002 0001 6d 0000000000000009", OffsetValue(5, 2, "m", 9)),
        ("0004 0000000000000005 00000002 02 6d 0000000000000009 00", OffsetValue(5, 2, "m", 9)),
        (
            "0004 0000000000000005 00000002 02 6d 0000000000000009 01 00 10" + "07" * 16,
            OffsetValue(5, 2, "m", 9, None, Uuid(b"\7" * 16)),
        ),
    ],
)
def test_every_version_of_an_offset_is_read(data: str, value: OffsetValue) -> None:
    key = OffsetKey("g", "t", 7)
    assert decode_record(KEY, bytes.fromhex(data)) == OffsetRecord(key, value)


@pytest.mark.parametrize(
    ("data", "rebalance_ms", "changed_ms"),
    [
        ("0000 0001 63 00000001 0001 70 0001 6d 00000001 {m} {ch} 00000064 {b}", 100, -1),
        ("0001 0001 63 00000001 0001 70 0001 6d 00000001 {m} {ch} {t} {b}", 300, -1),
        ("0002 0001 63 00000001 0001 70 0001 6d {at} 00000001 {m} {ch} {t} {b}", 300, 9),
        ("0003 0001 63 00000001 0001 70 0001 6d {at} 00000001 {m} ffff {ch} {t} {b}", 300, 9),
        ("0004 02 63 00000001 02 70 02 6d {at} 02 {flexible} 00", 300, 9),
    ],
)
def test_every_version_of_a_group_is_read(data: str, rebalance_ms: int, changed_ms: int) -> None:
    text = data.format(
        m="0001 6d", ch="0001 63 0002 2f68", t="0000012c 00000064", at="0000000000000009",
        b="00000001 73 00000001 61",
        flexible="02 6d 00 02 63 03 2f68 0000012c 00000064 02 73 02 61 00",
    )  # fmt: skip
    member = StoredMember("m", None, "c", "/h", rebalance_ms, 100, b"s", b"a")
    value = GroupValue("c", 1, "p", "m", changed_ms, (member,))
    decoded = decode_record(bytes.fromhex("0002 0001 67"), bytes.fromhex(text))
    assert decoded == GroupRecord(GroupKey("g"), value)


def test_a_classic_member_of_an_upgraded_group_survives_the_round_trip() -> None:
    classic = consumer.ClassicMemberMetadata(9, (consumer.ClassicProtocol("range", b"\1\2"),))
    member = consumer.ConsumerMember("i", "r", "c", "h", ("t", "u"), None, 5, "uniform", classic)
    record = consumer.ConsumerRecord(consumer.ConsumerKey(5, "g", "m"), member)
    assert decode_record(*encode_record(record)) == record


def test_unknown_types_are_a_value_of_their_own() -> None:
    key = bytes.fromhex("0063 0001")
    assert decode_record(key, b"x") == UnsupportedRecord(99, key, b"x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (KEY[:-1], None),
        (bytes.fromhex("0002 ffff"), None),
        (KEY, b""),
        (KEY, bytes.fromhex("0005") + bytes(40)),
        (KEY, bytes.fromhex("ffff") + bytes(40)),
        (KEY, bytes.fromhex("0003 0000000000000005 00000002 0009 6d 0000000000000009")),
        (KEY, bytes.fromhex("0004 0000000000000005 00000002 02 ff 0000000000000009 00")),
        (KEY, bytes.fromhex("0004 0000000000000005 00000002 02 6d 0000000000000009 01 00 01 07")),
        (GROUP, bytes.fromhex("0003 0000 00000000 ffff ffff") + b"\x7f" * 12),
        (bytes.fromhex("0003 0001 67"), bytes.fromhex("0001 00000001 00")),
        (bytes.fromhex("0003 0001 67"), bytes.fromhex("0000 00000001 01 00 01 07")),
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_named(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(key, value)
