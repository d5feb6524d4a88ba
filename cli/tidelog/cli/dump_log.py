"""The batches and records of a ``.log`` file.

A dump shows what is there rather than what should be: a batch with a wrong checksum is printed
with ``isvalid: false``, and the walk goes on as long as the length fields lead it from batch to
batch. Where they do not, the rest of the file is counted as invalid bytes.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.cli.dump_items import Item, Line, Notice, OptionalLong, Problem, Remark, Value
from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk, File
from tidelog.storage.scan import scan_headers
from tidelog.wire.batch import (
    MAGIC,
    MAX_SEQUENCE,
    BatchHeader,
    Codec,
    TimestampType,
    crc_is_valid,
)
from tidelog.wire.control import ControlType, read_control_type, read_marker_value
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import Record, decode_records

RECORD_INDENT: Final = "| "

_TIMESTAMP_NAMES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Depth:
    """How much of a log to show."""

    records: bool
    data: bool
    metadata: bool


def log_items(
    disk: Disk, path: str, base_offset: Offset, depth: Depth, max_bytes: int | None
) -> Iterator[Item]:
    yield Remark(f"Log starting offset: {base_offset}")
    file = disk.open(path, read_only=True)
    try:
        size = file.size()
        end = size if max_bytes is None else min(size, max_bytes)
        valid = yield from _batches(file, path, end, depth)
    finally:
        file.close()
    if valid < end and max_bytes is None:
        left = end - valid
        yield Remark(f"Found {left} invalid bytes at the end of {os.path.basename(path)}")
        yield Problem(f"{path}: no whole batch at position {valid}, where {left} bytes are left")


def _batches(file: File, path: str, end: int, depth: Depth) -> Generator[Item, None, int]:
    """Returns where the last batch ends."""
    valid = 0
    last_offset: int | None = None
    gaps: list[tuple[int, int]] = []
    try:
        for position, header in scan_headers(file, 0, end):
            if header.magic != MAGIC:
                yield Problem(f"{path}: batch at {position}: magic is {header.magic}, not {MAGIC}")
                break
            batch = file.pread(header.size, position)
            valid = position + header.size
            yield from _batch_items(path, header, position, batch)
            if not depth.records:
                continue
            for record in (yield from _decoded(path, header, position, batch)):
                if last_offset is not None and record.offset != last_offset + 1:
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                yield _record_line(header, record, depth)
    except MalformedBatch as error:
        yield Problem(f"{path}: {error}")
    if gaps:
        # Compaction leaves such gaps, so they are no fault.
        pairs = (f"\n  {first} is followed by {second}" for first, second in gaps)
        yield Notice(f"Non-consecutive offsets in {os.path.abspath(path)}{''.join(pairs)}")
    return valid


def _batch_items(path: str, header: BatchHeader, position: int, batch: bytes) -> Iterator[Item]:
    is_valid = crc_is_valid(batch, 0, header)
    yield Line(
        "batch",
        {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.records_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": OptionalLong(header.delete_horizon_ms),
            "position": position,
            _TIMESTAMP_NAMES[header.timestamp_type]: header.max_timestamp,
            "size": header.size,
            "magic": header.magic,
            "compresscodec": _codec_name(header.codec_id),
            "crc": header.crc,
            "isvalid": is_valid,
        },
    )
    if not is_valid:
        yield Problem(f"{path}: batch at {position}: its checksum is wrong")


def _codec_name(codec_id: int) -> str:
    try:
        return Codec(codec_id).name.lower()
    except ValueError:
        return f"unknown({codec_id})"


def _decoded(
    path: str, header: BatchHeader, position: int, batch: bytes
) -> Generator[Item, None, list[Record]]:
    """The records of a batch; none, and a problem, if they make no sense."""
    try:
        return decode_records(batch, header)
    except MalformedBatch as error:
        yield Problem(f"{path}: records of the batch at {position}: {error}")
        return []


def _record_line(header: BatchHeader, record: Record, depth: Depth) -> Line:
    fields: dict[str, Value] = {}
    hidden: dict[str, Value] = {}
    if depth.metadata:
        fields = {
            "offset": record.offset,
            _TIMESTAMP_NAMES[header.timestamp_type]: record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": _sequence(header, record),
            "headerKeys": [key for key, _ in record.headers],
        }
        if header.is_control:
            fields |= _control_fields(record)
    if depth.data and not header.is_control:
        fields |= {} if record.key is None else {"key": record.key}
        fields |= {} if record.value is None else {"payload": record.value}
        hidden = {"headerValues": [value for _, value in record.headers]}
    return Line("record", fields, RECORD_INDENT, hidden)


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE


def _control_fields(record: Record) -> dict[str, Value]:
    control_type = read_control_type(record.key)
    if control_type is ControlType.ABORT or control_type is ControlType.COMMIT:
        marker = read_marker_value(control_type, record.value)
        return {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}
    if control_type is None:
        return {"controlType": "UNKNOWN"}
    return {"controlType": f"{control_type.name}({control_type.value})"}
