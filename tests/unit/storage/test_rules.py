"""The pure rules of a log as tables: when to roll, what to keep, what to accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from log_lab import NOW, small_config

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.storage.retention import RetentionFacts, plan_retention
from tidelog.storage.roll import Incoming, roll_after_ms, roll_reason
from tidelog.storage.validation import Accepted, BatchRules, Origin, Rejected, validate
from tidelog.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    TimestampType,
    assemble,
    check_batch,
    read_header,
)
from tidelog.wire.records import Record, build_batch, decode_records

# --- rolling ------------------------------------------------------------------------------------


@dataclass
class Active:
    base_offset: Offset = Offset(100)
    size: int = 500
    created_ms: TimestampMs = NOW
    roll_jitter_ms: int = 0
    first_batch_timestamp: TimestampMs | None = NOW
    offset_index_is_full: bool = False
    time_index_is_full: bool = False


LIMITS: dict[str, Any] = {"internal_segment_bytes": 600, "segment_ms": 1000}


@pytest.mark.parametrize(
    ("active", "incoming", "now_ms", "expected"),
    [
        (Active(), (100, NOW, 101), 0, None),
        (Active(), (101, NOW, 101), 0, "size"),
        (Active(size=0), (601, NOW, 101), 0, "size"),
        (Active(), (1, NOW + 1000, 101), 0, None),
        (Active(), (1, NOW + 1001, 101), 0, "time"),
        (Active(roll_jitter_ms=300), (1, NOW + 701, 101), 0, "time"),
        (Active(roll_jitter_ms=300), (1, NOW + 700, 101), 0, None),
        # An empty segment has no age; its first batch sets it.
        (Active(size=0), (1, NOW + 5000, 101), 0, None),
        # The clock on the wall counts only where the records have no time.
        (Active(), (1, NOW, 101), NOW + 10**6, None),
        (Active(first_batch_timestamp=TimestampMs(-1)), (1, NOW, 101), NOW + 1001, "time"),
        (Active(first_batch_timestamp=TimestampMs(-1)), (1, NOW, 101), NOW + 1000, None),
        (Active(first_batch_timestamp=None), (1, NOW, 101), NOW + 1001, "time"),
        (Active(offset_index_is_full=True), (1, NOW, 101), 0, "offset index full"),
        (Active(time_index_is_full=True), (1, NOW, 101), 0, "time index full"),
        (Active(), (1, NOW, 100 + 2**31 - 1), 0, None),
        (Active(), (1, NOW, 100 + 2**31), 0, "offset range"),
        # The first reason is told.
        (Active(time_index_is_full=True), (101, NOW + 1001, 101), 0, "size"),
    ],
)
def test_roll_reason(
    active: Active, incoming: tuple[int, int, int], now_ms: int, expected: str | None
) -> None:
    size, timestamp, last_offset = incoming
    given = Incoming(size, TimestampMs(timestamp), Offset(last_offset))
    assert roll_reason(active, given, small_config(**LIMITS), TimestampMs(now_ms)) == expected


@pytest.mark.parametrize(
    ("policy", "lag_ms", "expected"),
    [(("delete",), 10, 1000), (("compact",), 10, 10), (("compact", "delete"), 5000, 1000)],
)
def test_a_compacted_topic_rolls_in_time_for_its_lag(
    policy: tuple[str, ...], lag_ms: int, expected: int
) -> None:
    config = small_config(**LIMITS, cleanup_policy=policy, max_compaction_lag_ms=lag_ms)
    assert roll_after_ms(config) == expected


# --- retention ----------------------------------------------------------------------------------


def facts(*segments: tuple[int, int, int]) -> list[RetentionFacts]:
    """(end offset, size, age in ms) of each."""

    def of(end: int, size: int, age_ms: int) -> RetentionFacts:
        return RetentionFacts(Offset(end), size, lambda: TimestampMs(NOW - age_ms))

    return [of(*segment) for segment in segments]


THREE = [(10, 100, 3000), (20, 100, 2000), (30, 100, 1000)]
EMPTY_LAST = [(10, 100, 3000), (20, 100, 2000), (20, 0, 0)]


@pytest.mark.parametrize(
    ("segments", "changes", "log_start", "high_watermark", "expected"),
    [
        (THREE, {}, 0, 30, None),
        # Below the log start, under any policy; never the last segment.
        (THREE, {}, 10, 30, (1, "log start offset")),
        (THREE, {"cleanup_policy": ("compact",)}, 25, 30, (2, "log start offset")),
        (THREE, {}, 30, 30, (2, "log start offset")),
        (THREE, {}, 9, 30, None),
        # By size: as long as what is left is not less than the limit.
        (THREE, {"retention_bytes": 300}, 0, 30, None),
        (THREE, {"retention_bytes": 299}, 0, 30, None),
        (THREE, {"retention_bytes": 200}, 0, 30, (1, "size")),
        (THREE, {"retention_bytes": 199}, 0, 30, (1, "size")),
        (THREE, {"retention_bytes": 0}, 0, 30, (3, "size")),
        (THREE, {"retention_bytes": 0, "cleanup_policy": ("compact",)}, 0, 30, None),
        # By time: older than, and stop at the first that is not.
        (THREE, {"retention_ms": 3000}, 0, 30, None),
        (THREE, {"retention_ms": 2999}, 0, 30, (1, "time")),
        (THREE, {"retention_ms": 999}, 0, 30, (3, "time")),
        ([(10, 100, 5), (20, 100, 2000)], {"retention_ms": 1000}, 0, 20, None),
        (THREE, {"retention_ms": 0, "cleanup_policy": ("compact",)}, 0, 30, None),
        # The order of the rules.
        (THREE, {"retention_bytes": 100, "retention_ms": 0}, 10, 30, (1, "log start offset")),
        (THREE, {"retention_bytes": 100, "retention_ms": 0}, 0, 30, (2, "size")),
        # Nothing that is not replicated.
        (THREE, {"retention_ms": 0}, 0, 29, (2, "time")),
        (THREE, {"retention_ms": 0}, 0, 9, None),
        (THREE, {"retention_bytes": 0}, 0, 20, (2, "size")),
        # An empty last segment stays.
        (EMPTY_LAST, {"retention_ms": 0}, 0, 20, (2, "time")),
        (EMPTY_LAST, {"retention_bytes": 0}, 0, 20, (2, "size")),
        ([(20, 0, 9000)], {"retention_ms": 0}, 0, 20, None),
    ],
)
def test_plan_retention(
    segments: list[tuple[int, int, int]],
    changes: dict[str, Any],
    log_start: int,
    high_watermark: int,
    expected: tuple[int, str] | None,
) -> None:
    plan = plan_retention(
        facts(*segments),
        small_config(**{"retention_bytes": -1, "retention_ms": -1, **changes}),
        log_start=Offset(log_start),
        high_watermark=Offset(high_watermark),
        now_ms=NOW,
    )
    assert (None if plan is None else (plan.count, plan.reason)) == expected


def test_time_is_asked_for_only_where_it_decides() -> None:
    def never() -> TimestampMs:
        raise AssertionError("the timestamp was read")

    segments = [RetentionFacts(Offset(10), 100, never), RetentionFacts(Offset(20), 100, never)]
    config = small_config(retention_ms=-1, retention_bytes=-1)
    known = {"log_start": Offset(0), "high_watermark": Offset(20), "now_ms": NOW}
    assert plan_retention(segments, config, **known) is None  # type: ignore[arg-type]


# --- validation ---------------------------------------------------------------------------------


def records(count: int = 2, *, key: bytes | None = b"k", timestamp: int = NOW) -> list[Record]:
    return [Record(i, timestamp, key, b"value") for i in range(count)]


def changed(data: bytes, **fields: Any) -> bytes:
    """The batch with other header fields and a checksum that fits."""
    return assemble(read_header(data)._replace(**fields), data[HEADER_SIZE:])


def judge(
    data: bytes, *, origin: Origin = Origin.CLIENT, now_ms: int = NOW, **changes: Any
) -> Accepted | Rejected:
    config = small_config(**{"internal_segment_bytes": 10**6, **changes})
    return validate(data, origin, BatchRules.of(config), TimestampMs(now_ms))


GOOD = build_batch(records())
BAD_CRC = GOOD[:-1] + bytes([GOOD[-1] ^ 1])
OLD, YOUNG = (build_batch(records(timestamp=NOW + d)) for d in (-5001, 5001))

REFUSALS = [
    ("no bytes", b"", {}, ErrorCode.INVALID_RECORD, "0 bytes left"),
    ("cut off", GOOD[:-1], {}, ErrorCode.INVALID_RECORD, "are there"),
    ("magic 1", GOOD[:16] + b"\1" + GOOD[17:], {}, ErrorCode.INVALID_RECORD, "obsolete"),
    ("magic 3", GOOD[:16] + b"\3" + GOOD[17:], {}, ErrorCode.CORRUPT_MESSAGE, "magic is 3"),
    ("checksum", BAD_CRC, {}, ErrorCode.CORRUPT_MESSAGE, "CRC"),
    ("length", GOOD[:8] + bytes(4) + GOOD[12:], {}, ErrorCode.CORRUPT_MESSAGE, "length field"),
    ("base offset", changed(GOOD, base_offset=3), {}, ErrorCode.INVALID_RECORD, "base offset 3"),
    ("too large", GOOD, {"max_message_bytes": len(GOOD) - 1}, ErrorCode.MESSAGE_TOO_LARGE,
     "max.message.bytes is"),
    ("two batches", GOOD + GOOD, {}, ErrorCode.INVALID_RECORD, "follow the batch"),
    ("no batch behind", GOOD + bytes(12), {}, ErrorCode.CORRUPT_MESSAGE, "are not another"),
    ("more records than fit", changed(GOOD, records_count=99, last_offset_delta=98), {},
     ErrorCode.INVALID_RECORD, "cannot hold 99 records"),
    ("more than is ever unpacked", changed(GOOD, attributes=1, records_count=2**31 - 1,
     last_offset_delta=2**31 - 2), {}, ErrorCode.INVALID_RECORD, "cannot hold 2147483647"),
    ("control", changed(GOOD, attributes=0x20), {}, ErrorCode.INVALID_RECORD, "control records"),
    ("no sequence", changed(GOOD, producer_id=5, producer_epoch=0), {},
     ErrorCode.INVALID_RECORD, "base sequence -1"),
    ("no records", changed(GOOD, records_count=0, last_offset_delta=-1), {},
     ErrorCode.INVALID_RECORD, "0 records"),
    ("count", changed(GOOD, records_count=3), {}, ErrorCode.INVALID_RECORD, "3 records"),
    ("codec 5", changed(GOOD, attributes=5), {}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
     "the number 5"),
    ("segment", GOOD, {"internal_segment_bytes": len(GOOD) - 1},
     ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes is"),
    ("marked append time", changed(GOOD, attributes=8),
     {"message_timestamp_type": "LogAppendTime"}, ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
    ("deltas", build_batch([records()[0], records()[1]._replace(offset=0)], last_offset_delta=1),
     {"cleanup_policy": ("compact",)}, ErrorCode.INVALID_RECORD, "offset deltas"),
    ("no keys", build_batch(records(key=None)), {"cleanup_policy": ("compact",)},
     ErrorCode.INVALID_RECORD, "needs keys"),
    ("too old", OLD, {"message_timestamp_before_max_ms": 5000}, ErrorCode.INVALID_TIMESTAMP,
     "before.max.ms"),
    ("too young", YOUNG, {"message_timestamp_after_max_ms": 5000}, ErrorCode.INVALID_TIMESTAMP,
     "after.max.ms"),
    ("not gzip", changed(GOOD, attributes=1), {"cleanup_policy": ("compact",)},
     ErrorCode.CORRUPT_MESSAGE, ""),
    ("too large after compression", GOOD,
     {"compression_type": "gzip", "max_message_bytes": len(GOOD)},
     ErrorCode.MESSAGE_TOO_LARGE, "after compression with gzip"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "changes", "code", "message"),
    [row[1:] for row in REFUSALS],
    ids=[r[0] for r in REFUSALS],
)
def test_each_refusal_has_its_code_and_says_why(
    data: bytes, changes: dict[str, Any], code: ErrorCode, message: str
) -> None:
    answer = judge(data, **changes)
    assert isinstance(answer, Rejected)
    assert (answer.code, message in answer.message) == (code, True), answer


IN_ORDER: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("checksum", {"crc": 1}, {}, "CRC"),
    ("base offset", {"base_offset": 3}, {}, "base offset 3"),
    ("too large", {}, {"max_message_bytes": 70}, "max.message.bytes"),
    ("two batches", {"trailing": 1}, {}, "follow the batch"),
    ("control", {"attributes": 0x20}, {}, "control records"),
    ("no sequence", {"producer_id": 5}, {}, "base sequence"),
    ("count", {"records_count": 9}, {}, "9 records"),
    ("codec", {"attributes": 7}, {}, "the number 7"),
    ("segment", {}, {"internal_segment_bytes": 71}, "segment.bytes"),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
@pytest.mark.parametrize("second", range(len(IN_ORDER)))
def test_the_first_of_two_faults_is_told(first: int, second: int) -> None:
    if first >= second:
        return
    fields: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    for _, header_fields, config_changes, _ in (IN_ORDER[second], IN_ORDER[first]):
        attributes = fields.get("attributes", 0) | header_fields.get("attributes", 0)
        fields = {**fields, **header_fields, "attributes": attributes}
        changes = {**changes, **config_changes}
    breaks_crc, trails = fields.pop("crc", 0), fields.pop("trailing", 0)
    data = bytearray(changed(GOOD, **fields))
    data[-1] ^= breaks_crc
    if trails:
        data += GOOD
    answer = judge(bytes(data), **changes)
    assert isinstance(answer, Rejected)
    assert IN_ORDER[first][3] in answer.message


def test_single_records_are_named_where_they_are_to_blame() -> None:
    mixed = [Record(i, NOW, None if i % 2 else b"k", b"v") for i in range(4)]
    answer = judge(build_batch(mixed), cleanup_policy=("compact",))
    assert isinstance(answer, Rejected)
    assert [index for index, _ in answer.bad_records] == [1, 3]


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (GOOD, {}),
        (GOOD, {"max_message_bytes": len(GOOD)}),
        (GOOD, {"internal_segment_bytes": len(GOOD)}),
        (GOOD, {"cleanup_policy": ("compact",)}),
        (build_batch(records(key=None)), {}),
        (build_batch(records(timestamp=-1)), {"message_timestamp_before_max_ms": 5}),
        (OLD, {"message_timestamp_before_max_ms": 5001}),
        (YOUNG, {"message_timestamp_after_max_ms": 5001}),
        (build_batch(records(), codec=Codec.ZSTD), {}),
        (build_batch(records(), codec=Codec.ZSTD), {"compression_type": "zstd"}),
    ],
)
def test_what_is_right_is_stored_as_it_came(data: bytes, changes: dict[str, Any]) -> None:
    answer = judge(data, **changes)
    assert answer == Accepted(read_header(data), data, TimestampMs(-1))


def test_one_stray_byte_behind_the_batch_is_dropped() -> None:
    answer = judge(GOOD + b"\0")
    assert isinstance(answer, Accepted)
    assert bytes(answer.data) == GOOD


def test_a_coordinator_is_believed() -> None:
    data = changed(GOOD, attributes=0x20 | 0x10, producer_id=5, base_offset=7)
    assert isinstance(judge(data, origin=Origin.COORDINATOR), Accepted)


def stored(answer: Accepted | Rejected) -> tuple[BatchHeader, bytes]:
    assert isinstance(answer, Accepted), answer
    header = check_batch(answer.data)
    assert header == answer.header
    return header, bytes(answer.data)


def test_log_append_time_is_the_brokers() -> None:
    answer = judge(OLD, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    header, data = stored(answer)
    assert isinstance(answer, Accepted)
    assert answer.log_append_time_ms == header.max_timestamp == NOW
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in decode_records(data)} == {NOW}


def test_a_create_time_topic_clears_the_mark_of_append_time() -> None:
    header, data = stored(judge(changed(GOOD, attributes=8, max_timestamp=NOW + 77)))
    assert header.timestamp_type is TimestampType.CREATE_TIME
    # With the mark every record had the time of the header, and that is what is kept.
    assert header.max_timestamp == NOW + 77
    assert decode_records(data) == decode_records(GOOD)


def test_the_largest_timestamp_is_worked_out_where_records_are_looked_at() -> None:
    data = changed(GOOD, max_timestamp=NOW + 500)
    header, _ = stored(judge(data, cleanup_policy=("compact",)))
    assert header.max_timestamp == NOW


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_another_codec_than_the_topics_is_changed(name: str) -> None:
    data = build_batch(records(50), codec=Codec.GZIP if name != "gzip" else Codec.NONE)
    header, new = stored(judge(data, compression_type=name))
    assert header.codec_id == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[name]
    assert decode_records(new) == decode_records(data)
