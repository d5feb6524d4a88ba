"""Small logs on a simulated disk: settings, batches, opening and looking."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from tidelog.kernel.ids import (
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.ports import Disk, in_one_go
from tidelog.kernel.settings import TopicConfig
from tidelog.simulation import InlineOffload, SimRandom
from tidelog.storage.log import Appended, Log
from tidelog.storage.log_dir import LogDirectory, open_directory
from tidelog.storage.opening import Opening, Report
from tidelog.storage.read import LogRead
from tidelog.storage.recovery import open_log
from tidelog.wire.batch import STAMP_SIZE, BatchHeader, headers, read_header, stamped_prefix
from tidelog.wire.records import Record, build_batch

T = TypeVar("T")

ROOT: Final = "/data"
TP: Final = TopicPartition("events", PartitionIndex(0))
PARTITION: Final = f"{ROOT}/events-0"
TOPIC_ID: Final = TopicId(Uuid(b"\1" * 16))
NODE: Final = NodeId(1)
CLUSTER: Final = "lab"
NOW: Final = TimestampMs(1_800_000_000_000)


def small_config(**changes: Any) -> TopicConfig:
    """Segments of a few batches and an index entry every other batch."""
    small: dict[str, Any] = {
        "internal_segment_bytes": 600,
        "index_interval_bytes": 120,
        "segment_index_bytes": 240,
        "segment_ms": 10**12,
        "file_delete_delay_ms": 1_000,
    }
    return replace(TopicConfig.defaults(), **{**small, **changes})


def batch_of(
    values: Sequence[bytes], *, timestamp: int = NOW, key: bytes | None = b"k", **fields: Any
) -> bytes:
    """A batch as a client sends it, or as a leader wrote it if ``base_offset`` is given."""
    base = fields.get("base_offset", 0)
    records = [Record(base + i, timestamp, key, value) for i, value in enumerate(values)]
    return build_batch(records, **fields)


def stamped(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """What a leader makes of a client's batch."""
    return stamped_prefix(read_header(data), base_offset, leader_epoch) + data[STAMP_SIZE:]


def append(
    log: Log, *values: bytes, epoch: int = 0, now_ms: int = NOW, **fields: Any
) -> tuple[Offset, Offset]:
    """Append one batch as leader; its first and last offset."""
    data = batch_of(values, timestamp=fields.pop("timestamp", now_ms), **fields)
    answer = log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch), now_ms=TimestampMs(now_ms))
    assert isinstance(answer, Appended), answer
    return answer.base_offset, answer.last_offset


def open_at(disk: Disk, config: TopicConfig, **known: Any) -> tuple[Log, Report]:
    """Open the one log without a ``LogDirectory``; ``known`` as in ``Opening``."""
    fields: dict[str, Any] = {"was_clean": False, **known}
    return in_one_go(open_log(Opening(disk, PARTITION, TP, config, SimRandom(5), NOW, **fields)))


def open_dir(disk: Disk, path: str = ROOT, seed: int = 5, **fields: Any) -> LogDirectory:
    given: dict[str, Any] = {"cluster_id": CLUSTER, "node_id": NODE, **fields}
    return open_directory(disk, path, SimRandom(seed), **given)


def run(work: Coroutine[Any, Any, T]) -> T:
    """To its end; for what needs no time and no other task."""
    with asyncio.Runner() as runner:
        return runner.run(work)


def open_logs(directory: LogDirectory, config: TopicConfig, now_ms: int = NOW) -> list[Report]:
    return run(
        directory.open_logs(
            InlineOffload(), lambda tp: config, now_ms=TimestampMs(now_ms), concurrency=2
        )
    )


def create(
    directory: LogDirectory, config: TopicConfig, tp: TopicPartition = TP, now_ms: int = NOW
) -> Log:
    work = directory.create_log(InlineOffload(), tp, TOPIC_ID, config, now_ms=TimestampMs(now_ms))
    return run(work)


def in_segments(log: Log) -> list[bytes]:
    """Every batch in the files, also below the log start."""
    return [
        segment.read_batch(position, header.size)
        for segment in log.segments
        for position, header in segment.batches()
    ]


def served(log: Log, start: Offset | None = None) -> list[bytes]:
    """Every batch that a replica would fetch, found by reading on and on."""
    offset = log.log_start if start is None else start
    found: list[bytes] = []
    while offset < log.end_offset:
        answer = log.read(offset, log.end_offset, 1)
        assert isinstance(answer, LogRead), answer
        if answer.records is None:  # nothing but an empty segment is left
            assert log.segments.active.size == 0, f"nothing at {offset}, end {log.end_offset}"
            break
        data = answer.records.read()
        ((_, header),) = headers(data)
        found.append(data)
        assert header.next_offset > offset
        offset = header.next_offset
    return found


def header_of(data: bytes) -> BatchHeader:
    return read_header(data)


def values_of(batches: Sequence[bytes]) -> list[bytes | None]:
    from tidelog.wire.records import decode_records

    return [record.value for data in batches for record in decode_records(data)]
