"""What the plan asks of a log, gathered on the log's own thread."""

from __future__ import annotations

from functools import partial

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import Disk
from tidelog.storage.cleaner.plan import LogFacts, SegmentFacts
from tidelog.storage.log import Log
from tidelog.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog.storage.segment import Segment
from tidelog.storage.segments import SegmentList


def log_facts(
    disk: Disk,
    log: Log,
    *,
    clean_point: Offset | None,
    uncleanable: str | None = None,
    is_paused: bool = False,
    is_wanted: bool = False,
) -> LogFacts:
    return LogFacts(
        tp=log.tp,
        config=log.config,
        segments=segment_facts(disk, log.segments, log.end_offset),
        log_start=log.log_start,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        flushed_end=log.recovery_point,
        end_offset=log.end_offset,
        clean_point=clean_point,
        uncleanable=uncleanable,
        is_paused=is_paused,
        is_wanted=is_wanted,
    )


def segment_facts(disk: Disk, segments: SegmentList, end_offset: Offset) -> list[SegmentFacts]:
    return [
        SegmentFacts(
            base_offset=segment.base_offset,
            end_offset=segments.end_of(index, end_offset),
            size=segment.size,
            is_active=segment is segments.active,
            largest_timestamp=partial(_largest_timestamp, segment),
            first_timestamp=partial(_first_timestamp, segment),
            index_bytes=_size_of(disk, segment.path(INDEX_SUFFIX)),
            time_index_bytes=_size_of(disk, segment.path(TIME_INDEX_SUFFIX)),
        )
        for index, segment in enumerate(segments)
    ]


def _size_of(disk: Disk, path: str) -> int:
    stat = disk.stat(path)
    return 0 if stat is None else stat.size


def _largest_timestamp(segment: Segment) -> TimestampMs:
    return segment.retention_timestamp()


def _first_timestamp(segment: Segment) -> TimestampMs | None:
    return segment.first_batch_timestamp
