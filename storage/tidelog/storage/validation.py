"""What a leader demands of a batch that a client sends, and what it changes in it. Pure.

Theory: the header and the checksum are looked at for every batch, the records only where a
rule is about records: keys on a compacted topic, a lower bound on timestamps, another codec
than the topic's. Elsewhere the number of records is believed if the batch has room for them.
Each refusal is a value that carries Kafka's error code; the order of the checks is Kafka's,
because clients can see which one came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_TIMESTAMP, TimestampMs, TopicPartition
from tidelog.kernel.ports import ByteView
from tidelog.kernel.settings import TopicConfig
from tidelog.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MIN_OBSOLETE_LENGTH,
    BatchHeader,
    Codec,
    check_batch,
    read_header,
    with_log_append_time,
    with_max_timestamp_and_create_time,
)
from tidelog.wire.codecs import DEFAULT_LIMIT_BYTES
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import (
    MIN_RECORD_SIZE,
    RecordsSummary,
    decode_records,
    rebuild_batch,
    validate_records,
)

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


def refused_producer(tp: TopicPartition, code: ErrorCode, header: BatchHeader) -> Rejected:
    """A batch that does not fit what the partition knows of its producer."""
    return Rejected(
        code,
        f"{tp}: {code.name} for producer {header.producer_id} epoch {header.producer_epoch} "
        f"sequence {header.base_sequence}",
    )


@dataclass(frozen=True, slots=True)
class Accepted:
    header: BatchHeader
    data: ByteView
    """Exactly the batch: as it came, or as it had to be changed."""
    log_append_time_ms: TimestampMs


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a topic's settings demand of a batch, worked out once and not for every batch."""

    config: TopicConfig
    max_message_bytes: int
    segment_bytes: int
    codec: Codec | None
    """None: the producer's choice is kept."""
    is_append_time: bool
    after_max_ms: int
    has_lower_bound: bool
    looks_at_records: bool

    @classmethod
    def of(cls, config: TopicConfig) -> BatchRules:
        is_append_time = config.message_timestamp_type == "LogAppendTime"
        bounded = config.message_timestamp_before_max_ms != LONG_MAX and not is_append_time
        return cls(
            config,
            config.max_message_bytes,
            config.effective_segment_bytes,
            _CODEC_OF_TYPE.get(config.compression_type),
            is_append_time,
            config.message_timestamp_after_max_ms,
            has_lower_bound=bounded,
            looks_at_records=config.is_compacted or bounded,
        )


def validate(
    data: ByteView, origin: Origin, rules: BatchRules, now_ms: TimestampMs
) -> Accepted | Rejected:
    """Judge the one batch in ``data`` and bring it into the form that is stored."""
    try:
        header = check_batch(data)
        refused = _refuse_header(header, data, origin, rules)
        if refused is not None:
            return refused
        batch: ByteView = data if len(data) == header.size else memoryview(data)[: header.size]
        return _prepare(header, batch, rules, now_ms)
    except MalformedBatch as error:
        return Rejected(error.code, str(error))


def _refuse_header(
    header: BatchHeader, data: ByteView, origin: Origin, rules: BatchRules
) -> Rejected | None:
    size, is_client = header.size, origin is Origin.CLIENT
    if is_client and header.base_offset != 0:
        return _invalid(f"base offset {header.base_offset} was sent, a producer sends 0")
    if size > rules.max_message_bytes:
        return Rejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes, max.message.bytes is {rules.max_message_bytes}",
        )
    if len(data) - size >= LOG_OVERHEAD:
        return _refuse_rest(data, size)
    if header.attributes & CONTROL_BIT and is_client:
        return _invalid("a client may not write control records")
    if header.base_sequence < 0 and header.producer_id >= 0 and is_client:
        return _invalid(f"base sequence {header.base_sequence} with a producer id")
    if header.records_count <= 0 or header.last_offset_delta + 1 != header.records_count:
        return _invalid(
            f"{header.records_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        return Rejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {header.codec_id}"
        )
    if header.records_count * MIN_RECORD_SIZE > _room_for_records(header):
        return _invalid(f"a batch of {size} bytes cannot hold {header.records_count} records")
    if size > rules.segment_bytes:
        return Rejected(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {size} bytes, segment.bytes is {rules.segment_bytes}",
        )
    return None


def _refuse_rest(data: ByteView, position: int) -> Rejected:
    """What follows the batch is too long to be a torn end: another batch, or none at all."""
    rest = len(data) - position
    length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
    if length < MIN_OBSOLETE_LENGTH:
        return Rejected(
            ErrorCode.CORRUPT_MESSAGE, f"{rest} bytes follow the batch and are not another"
        )
    return _invalid(f"{rest} bytes follow the batch, one batch is allowed")


def _room_for_records(header: BatchHeader) -> int:
    """Of records that are compressed only the limit of what we would ever unpack is known."""
    is_plain = header.codec_id == Codec.NONE
    return header.size - HEADER_SIZE if is_plain else DEFAULT_LIMIT_BYTES


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_RECORD, message)


def _prepare(
    header: BatchHeader, batch: ByteView, rules: BatchRules, now_ms: TimestampMs
) -> Accepted | Rejected:
    is_marked = header.attributes & LOG_APPEND_TIME_BIT != 0
    if is_marked and rules.is_append_time:
        return Rejected(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime"
        )
    max_timestamp = header.max_timestamp
    changes_codec = rules.codec is not None and header.codec_id != rules.codec
    if rules.looks_at_records or is_marked or changes_codec:
        summary = validate_records(batch, header, is_compacted=rules.config.is_compacted)
        refused = _refuse_records(summary)
        if refused is None and rules.has_lower_bound:
            refused = _refuse_old(summary.min_timestamp, rules.config, now_ms)
        if refused is not None:
            return refused
        max_timestamp = summary.max_timestamp
    if not rules.is_append_time and max_timestamp > now_ms + rules.after_max_ms:
        return Rejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {max_timestamp} is more than {rules.after_max_ms} ms "
            f"(message.timestamp.after.max.ms) ahead of the broker's {now_ms}",
        )
    if changes_codec or rules.is_append_time or is_marked or max_timestamp != header.max_timestamp:
        return _changed(header, batch, rules, max_timestamp, now_ms)
    return Accepted(header, batch, NO_TIMESTAMP)


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


def _changed(
    header: BatchHeader,
    batch: ByteView,
    rules: BatchRules,
    max_timestamp: TimestampMs,
    now_ms: TimestampMs,
) -> Accepted | Rejected:
    """Recompress if the topic says so, then set the time."""
    changed = batch
    codec = rules.codec
    if codec is not None and header.codec_id != codec:
        changed = rebuild_batch(
            header,
            decode_records(batch, header),
            codec=codec,
            level=_level(codec, rules.config),
        )
        if len(changed) > rules.max_message_bytes:
            return Rejected(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(changed)} bytes after compression with {codec.name.lower()}, "
                f"max.message.bytes is {rules.max_message_bytes}",
            )
    append_time = NO_TIMESTAMP
    if rules.is_append_time:
        changed, append_time = with_log_append_time(changed, now_ms), now_ms
    else:
        changed = with_max_timestamp_and_create_time(changed, max_timestamp)
    return Accepted(read_header(changed), changed, append_time)


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
