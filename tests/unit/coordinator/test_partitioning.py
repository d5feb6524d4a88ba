"""Groups land on the partitions where Kafka put them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.coordinator.partitioning import coordinator_partition, java_hash, kafka_abs
from tidelog.coordinator.records import GroupRecord, OffsetRecord, decode_record
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

OFFSETS_TOPIC = Path(__file__).parents[2] / "data/golden/offsets-topic"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 3105),
        ("polygenelubricants", -(2**31)),
        ("hello world", 1794106052),
        ("ä", 228),
        ("\U0001f600", 1772899),
        ("\ud800", 0xD800),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_smallest_number_has_no_positive_twin() -> None:
    assert [kafka_abs(value) for value in (-(2**31), -(2**31) + 1, -7, 7)] == [0, 2**31 - 1, 7, 7]
    assert coordinator_partition("polygenelubricants", 50) == 0


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        coordinator_partition("g", 0)


def test_every_group_of_kafkas_topic_is_where_we_would_look() -> None:
    seen = set()
    for folder in sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*")):
        data = (folder / "00000000000000000000.log").read_bytes()
        for position, header in headers(data):
            if header.is_control:
                continue
            for record in iterate(data, position):
                decoded = decode_record(record.key or b"", record.value)
                if isinstance(decoded, OffsetRecord | GroupRecord):
                    expected = int(folder.name.rpartition("-")[2])
                    assert coordinator_partition(decoded.key.group, 50) == expected
                    seen.add(decoded.key.group)
    assert {"simple", "doomed", "raw-classic", "java-g-classic", "cf-g-classic"} <= seen
