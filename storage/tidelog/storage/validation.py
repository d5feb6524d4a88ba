"""What a leader demands of a batch that a client sends, and what it changes in it. Pure.

Theory: the header and the checksum are looked at for every batch, the records only where a
rule is about records: keys on a compacted topic, a lower bound on timestamps, another codec
than the topic's. Each refusal is a value that carries Kafka's error code; the order of the
checks is Kafka's, because clients can see which one came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_TIMESTAMP, TimestampMs
from tidelog.kernel.ports import ByteView
from tidelog.kernel.settings import TopicConfig
from tidelog.wire.batch import (
    BatchHeader,
    Codec,
    TimestampType,
    check_batch,
    read_header,
    with_log_append_time,
    with_max_timestamp_and_create_time,
)
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import RecordsSummary, decode_records, rebuild_batch, validate_records

LONG_MAX: Final = 2**63 - 1
_CODEC_OF_TYPE: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Origin(Enum):
    """Who made a batch; only clients are distrusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing was appended."""

    code: ErrorCode
    message: str
    bad_records: tuple[tuple[int, str], ...] = ()
    """Index in the batch and what is wrong, where single records are to blame."""


@dataclass(frozen=True, slots=True)
class Accepted:
    header: BatchHeader
    data: ByteView
    """Exactly the batch: as it came, or as it had to be changed."""
    log_append_time_ms: TimestampMs


def validate(
    data: ByteView, origin: Origin, config: TopicConfig, now_ms: TimestampMs
) -> Accepted | Rejected:
    """Judge the one batch in ``data`` and bring it into the form that is stored."""
    try:
        header = check_batch(data)
    except MalformedBatch as error:
        return Rejected(error.code, str(error))
    refused = _refuse_header(header, len(data), origin, config)
    if refused is not None:
        return refused
    batch: ByteView = data if len(data) == header.size else memoryview(data)[: header.size]
    try:
        return _prepare(header, batch, config, now_ms)
    except MalformedBatch as error:
        return Rejected(error.code, str(error))


def _refuse_header(
    header: BatchHeader, available: int, origin: Origin, config: TopicConfig
) -> Rejected | None:
    if origin is Origin.CLIENT and header.base_offset != 0:
        return _invalid(f"base offset {header.base_offset} was sent, a producer sends 0")
    if header.size > config.max_message_bytes:
        return Rejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {header.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if available - header.size > 1:
        return _invalid(f"{available - header.size} bytes follow the batch, one batch is allowed")
    if header.is_control and origin is Origin.CLIENT:
        return _invalid("a client may not write control records")
    if header.has_producer_id and header.base_sequence < 0 and origin is Origin.CLIENT:
        return _invalid(f"base sequence {header.base_sequence} with a producer id")
    if header.records_count <= 0 or header.last_offset_delta + 1 != header.records_count:
        return _invalid(
            f"{header.records_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.codec_id > max(Codec):
        return Rejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {header.codec_id}"
        )
    if header.size > config.effective_segment_bytes:
        return Rejected(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {header.size} bytes, segment.bytes is {config.effective_segment_bytes}",
        )
    return None


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_RECORD, message)


def _prepare(
    header: BatchHeader, batch: ByteView, config: TopicConfig, now_ms: TimestampMs
) -> Accepted | Rejected:
    codec = _CODEC_OF_TYPE.get(config.compression_type, header.codec_id)
    is_append_time = config.message_timestamp_type == "LogAppendTime"
    marked_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    if marked_append_time and is_append_time:
        return Rejected(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime"
        )
    max_timestamp = header.max_timestamp
    has_lower_bound = config.message_timestamp_before_max_ms != LONG_MAX and not is_append_time
    if header.codec_id != codec or config.is_compacted or marked_append_time or has_lower_bound:
        summary = validate_records(batch, header, is_compacted=config.is_compacted)
        refused = _refuse_records(summary)
        if refused is None and has_lower_bound:
            refused = _refuse_old(summary.min_timestamp, config, now_ms)
        if refused is not None:
            return refused
        max_timestamp = summary.max_timestamp
    if not is_append_time and max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        return Rejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {max_timestamp} is more than {config.message_timestamp_after_max_ms} ms "
            f"(message.timestamp.after.max.ms) ahead of the broker's {now_ms}",
        )
    return _store_form(header, batch, Codec(codec), max_timestamp, config, now_ms)


def _refuse_records(summary: RecordsSummary) -> Rejected | None:
    if not summary.offset_deltas_are_consecutive:
        return _invalid("the records' offset deltas are not 0, 1, 2 and so on")
    if summary.null_keys:
        bad = tuple((index, "a compacted topic needs a key") for index in summary.null_keys)
        return Rejected(ErrorCode.INVALID_RECORD, "a compacted topic needs keys", bad)
    return None


def _refuse_old(
    min_timestamp: TimestampMs, config: TopicConfig, now_ms: TimestampMs
) -> Rejected | None:
    if (
        min_timestamp == NO_TIMESTAMP
        or min_timestamp >= now_ms - config.message_timestamp_before_max_ms
    ):
        return None
    return Rejected(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {min_timestamp} is more than {config.message_timestamp_before_max_ms} ms "
        f"(message.timestamp.before.max.ms) behind the broker's {now_ms}",
    )


def _store_form(
    header: BatchHeader,
    batch: ByteView,
    codec: Codec,
    max_timestamp: TimestampMs,
    config: TopicConfig,
    now_ms: TimestampMs,
) -> Accepted | Rejected:
    """Recompress if the topic says so, then set the time; unchanged bytes where nothing is."""
    changed = batch
    if header.codec_id != codec:
        changed = rebuild_batch(
            header, decode_records(batch, header), codec=codec, level=_level(codec, config)
        )
        if len(changed) > config.max_message_bytes:
            return Rejected(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(changed)} bytes after compression with {codec.name.lower()}, "
                f"max.message.bytes is {config.max_message_bytes}",
            )
    append_time = NO_TIMESTAMP
    if config.message_timestamp_type == "LogAppendTime":
        changed, append_time = with_log_append_time(changed, now_ms), now_ms
    elif header.timestamp_type is TimestampType.LOG_APPEND_TIME or (
        header.max_timestamp != max_timestamp
    ):
        changed = with_max_timestamp_and_create_time(changed, max_timestamp)
    stored = header if changed is batch else read_header(changed)
    return Accepted(stored, changed, append_time)


def _level(codec: Codec, config: TopicConfig) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
