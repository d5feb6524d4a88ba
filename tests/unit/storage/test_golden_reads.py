"""Every fetch and timestamp look-up that Apache Kafka 4.3.1 answered is answered the same."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from golden import GOLDEN, Case, open_clean

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.storage.log import Log
from tidelog.storage.read import LogRead
from tidelog.wire.batch import headers

Line = dict[str, Any]
READ_COMMITTED = 1


def grouped(name: str) -> dict[tuple[str, str], list[Line]]:
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for text in (GOLDEN / "reads" / name).read_text().splitlines():
        line = json.loads(text)
        groups[line["case"], line["files"]].append(line)
    return groups


FETCHES = grouped("fetch.jsonl")
LOOKUPS = grouped("list-offsets.jsonl")


def opened(key: tuple[str, str], lines: list[Line], tmp_path: Path) -> Log:
    case = Case(key[0])
    start = max((line.get("logStartOffset", 0) for line in lines), default=0)
    made = case.copy(key[1], tmp_path / "log")
    log = open_clean(made, case.tp, case.config(), now_ms=0, log_start=start)
    log.advance_high_watermark(log.end_offset)
    return log


def answer(log: Log, line: Line) -> Line:
    committed = line["isolationLevel"] == READ_COMMITTED
    limit = log.last_stable_offset if committed else log.high_watermark
    offset = Offset(line["fetchOffset"])
    read = log.read(offset, limit, line["partitionMaxBytes"])
    if isinstance(read, ErrorCode):
        return {"errorCode": int(read), "recordsLength": 0}
    assert isinstance(read, LogRead)
    data = read.records.read() if read.records else b""
    aborted = log.aborted_transactions(offset, read)
    return {
        "errorCode": 0,
        "highWatermark": log.high_watermark,
        "lastStableOffset": log.last_stable_offset,
        "logStartOffset": log.log_start,
        "abortedTransactions": [
            {"producerId": txn.producer_id, "firstOffset": txn.first_offset} for txn in aborted
        ]
        if committed
        else None,
        "recordsLength": len(data),
        "recordsSha256": hashlib.sha256(data).hexdigest(),
        "batchBaseOffsets": abridged([header.base_offset for _, header in headers(data)]),
    }


def abridged(offsets: list[Offset]) -> list[Offset | str]:
    """The form of the golden lines: of many offsets only the first and last six."""
    return [*offsets] if len(offsets) <= 12 else [*offsets[:6], "…", *offsets[-6:]]


@pytest.mark.parametrize("key", sorted(FETCHES), ids="/".join)
def test_every_fetch(key: tuple[str, str], tmp_path: Path) -> None:
    log = opened(key, FETCHES[key], tmp_path)
    for line in FETCHES[key]:
        ours = answer(log, line)
        assert ours == {name: line[name] for name in ours}, line


def look_up(log: Log, line: Line) -> tuple[int, int]:
    match line["timestamp"]:
        case -1:
            committed = line["isolationLevel"] == READ_COMMITTED
            return (log.last_stable_offset if committed else log.high_watermark), -1
        case -2 | -4:
            return log.log_start, -1
        case -3:
            found = log.find_max_timestamp()
        case timestamp:
            found = log.find_by_time(TimestampMs(timestamp))
    hidden = log.last_stable_offset if line["isolationLevel"] else log.high_watermark
    if found is None or found.offset >= hidden:
        return -1, -1
    return found.offset, found.timestamp


@pytest.mark.parametrize("key", sorted(LOOKUPS), ids="/".join)
def test_every_timestamp_look_up(key: tuple[str, str], tmp_path: Path) -> None:
    log = opened(key, FETCHES.get(key, []), tmp_path)
    for line in LOOKUPS[key]:
        assert look_up(log, line) == (line["offset"], line["resultTimestamp"]), line
