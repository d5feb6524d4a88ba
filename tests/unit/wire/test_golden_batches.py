"""Every batch that Apache Kafka 4.3.1 wrote: read, agreed upon, and built again."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidelog.wire.batch import (
    BatchHeader,
    Codec,
    TimestampType,
    check_batch,
    headers,
)
from tidelog.wire.codecs import compress
from tidelog.wire.column_building import rebuild_batch_from_columns
from tidelog.wire.columns import decode_columns
from tidelog.wire.control import build_marker_batch, read_marker
from tidelog.wire.records import (
    Record,
    build_batch,
    decode_records,
    rebuild_batch,
    records_blob,
    validate_records,
)

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
FOLDERS = sorted({str(p.parent.relative_to(GOLDEN)) for p in GOLDEN.rglob("*.log")})
CASES = sorted(p.parent.name for p in GOLDEN.glob("segments/*/input.json"))
BUILT_ALIKE = {Codec.NONE, Codec.GZIP, Codec.LZ4}
"""Codecs whose bytes are the Java client's, too; the libraries of the others differ."""


def batches_in(path: Path) -> list[tuple[memoryview, BatchHeader]]:
    data = memoryview(path.read_bytes())
    found = [(data[at : at + header.size], header) for at, header in headers(data)]
    assert sum(header.size for _, header in found) == len(data)
    return found


def is_create_time(header: BatchHeader) -> bool:
    return header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_stored_batch(folder: str) -> None:
    for path in sorted((GOLDEN / folder).glob("*.log")):
        for batch, header in batches_in(path):
            assert check_batch(batch) == header
            records = decode_records(batch, header)
            columns = decode_columns(batch, header)
            assert [columns.record(index) for index in range(len(columns))] == records
            everything = np.ones(len(records), np.bool_)
            rebuilt = rebuild_batch(header, records)
            assert rebuild_batch_from_columns(columns, everything) == rebuilt
            # Readers cannot see the deltas behind a LogAppendTime, so they are not kept.
            if is_create_time(header) and header.codec_id in BUILT_ALIKE:
                assert rebuilt == batch
            else:
                assert decode_records(rebuilt) == records


def test_the_golden_logs_show_every_kind_of_batch() -> None:
    """So that the test above cannot pass by finding nothing."""
    seen: Counter[str] = Counter()
    for path in GOLDEN.rglob("*.log"):
        for _, header in batches_in(path):
            seen[f"codec {header.codec_id}"] += 1
            seen["control"] += header.is_control
            seen["transactional"] += header.is_transactional
            seen["horizon"] += header.has_delete_horizon
            seen["empty"] += header.records_count == 0
            seen["append time"] += not is_create_time(header)
    wanted = ["control", "transactional", "horizon", "empty", "append time"]
    wanted += [f"codec {codec}" for codec in range(5)]
    assert all(seen[kind] > 10 for kind in wanted), seen


def test_every_marker_is_built_the_same() -> None:
    built = 0
    for path in GOLDEN.glob("segments/*txn*/*/*.log"):
        for batch, header in batches_in(path):
            marker = read_marker(batch, header)
            if marker is None or header.has_delete_horizon:
                continue
            (record,) = decode_records(batch, header)
            again = build_marker_batch(
                marker.type,
                coordinator_epoch=marker.coordinator_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                timestamp=record.timestamp,
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
            )
            assert again == batch
            built += 1
    assert built > 100


def decoded(text: str | dict[str, Any] | None) -> bytes | None:
    match text:
        case None:
            return None
        case str():
            return base64.b64decode(text)
        case _:
            unit, length = base64.b64decode(text["repeat"]), int(text["length"])
            return (unit * (length // len(unit) + 1))[:length]


def record_of(index: int, spec: dict[str, Any]) -> Record:
    pairs = spec.get("headers", ())
    return Record(
        index,
        spec["timestamp"],
        decoded(spec["key"]),
        decoded(spec["value"]),
        tuple((key, decoded(value)) for key, value in pairs),
    )


@pytest.mark.parametrize("case", CASES)
def test_every_sent_batch_holds_the_records_of_its_input(case: str) -> None:
    steps = json.loads((GOLDEN / "segments" / case / "input.json").read_text())["steps"]
    sent = memoryview((GOLDEN / "segments" / case / "sent.bin").read_bytes())
    for step in steps:
        if step["op"] != "produce":
            continue
        spec, at = step["batch"], step["sentPosition"]
        batch = sent[at : at + step["sentLength"]]
        codec = Codec[spec.get("codec", "none").upper()]
        records = [record_of(index, record) for index, record in enumerate(spec["records"])]
        header = check_batch(batch)
        assert header.codec_id == codec
        assert decode_records(batch, header) == records
        summary = validate_records(batch, header, is_compacted=False)
        assert summary.max_timestamp == header.max_timestamp
        assert summary.offset_deltas_are_consecutive
        if codec in BUILT_ALIKE:
            assert batch == build_batch(
                records,
                codec=codec,
                producer_id=spec.get("producerId", -1),
                producer_epoch=spec.get("producerEpoch", -1),
                base_sequence=spec.get("baseSequence", -1),
                is_transactional=spec.get("transactional", False),
            )


def test_large_snappy_batches_are_framed_like_the_java_clients() -> None:
    compared = 0
    data = memoryview((GOLDEN / "segments/codec-large-blocks/sent.bin").read_bytes())
    for at, header in headers(data):
        if header.codec_id == Codec.SNAPPY:
            batch = data[at : at + header.size]
            assert compress(Codec.SNAPPY, records_blob(batch, header)) == batch[61:]
            compared += 1
    assert compared == 2
