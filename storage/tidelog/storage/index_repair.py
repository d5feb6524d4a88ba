"""Making a segment's indexes anew from its batches, where they are missing or do not fit."""

from __future__ import annotations

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Steps
from tidelog.storage.index import CorruptIndex
from tidelog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
)
from tidelog.storage.opening import Opening, Report
from tidelog.storage.producer_log import ProducerLog, marker_of
from tidelog.storage.scan import scan_headers
from tidelog.storage.segment import Segment
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader


def bases_without_index(names: list[SegmentFile]) -> set[Offset]:
    """Asked before the active segment is opened, which makes its index files."""
    there = {(name.base_offset, name.suffix) for name in names if not name.extra}
    return {
        base
        for base, suffix in there
        if suffix == LOG_SUFFIX and not {(base, INDEX_SUFFIX), (base, TIME_INDEX_SUFFIX)} <= there
    }


def rebuild_bad_indexes(
    opening: Opening,
    segments: list[Segment],
    names: list[SegmentFile],
    unindexed: set[Offset],
    report: Report,
) -> Steps[list[Segment]]:
    """What is plainly missing or wrong is made anew; the rest is judged when it is used.

    A transaction index is no hint, so wherever there is one it is looked at. The segments
    whose files changed, to be flushed again.
    """
    with_txns = {name.base_offset for name in names if name.suffix == TXN_INDEX_SUFFIX}
    changed: list[Segment] = []
    for segment in segments:
        reason = "it is not there" if segment.base_offset in unindexed else None
        if reason is None and segment.is_active:
            reason = index_flaw(segment)
        elif reason is None and segment.base_offset in with_txns:
            reason = _txn_index_flaw(segment)
        if reason is not None:
            report.note(f"{segment.path(INDEX_SUFFIX)}: {reason}; rebuilt from the log")
            yield from rebuild_indexes(opening, segments, segment)
            changed.append(segment)
    return changed


def _txn_index_flaw(segment: Segment) -> str | None:
    try:
        segment.txn_index.sanity_check(segment.base_offset)
    except CorruptIndex as error:
        return str(error)
    return None


def _has_sound_txn_index(opening: Opening, segment: Segment) -> bool:
    is_there = opening.disk.stat(segment.path(TXN_INDEX_SUFFIX)) is not None
    return is_there and _txn_index_flaw(segment) is None


def index_flaw(segment: Segment) -> str | None:
    """Why a segment's indexes cannot be believed; None if they fit its log."""
    try:
        segment.offset_index.sanity_check()
        segment.time_index.sanity_check()
        segment.txn_index.sanity_check(segment.base_offset)
    except CorruptIndex as error:
        return str(error)
    offset, position = segment.offset_index.last_entry
    if position >= segment.size and segment.offset_index.entries > 0:
        return f"entry {offset} points to {position}, the log ends at {segment.size}"
    return None


def rebuild_indexes(opening: Opening, segments: list[Segment], segment: Segment) -> Steps[None]:
    """Make a segment's indexes from its batches, which are believed.

    A transaction index that is sound is kept: in a log that was compacted it may name aborted
    transactions whose first batches are gone. Otherwise they are found by replaying producers
    from the snapshot below the segment.
    """
    if _has_sound_txn_index(opening, segment):
        segment.reindex()
        return
    snapshots = [
        n.base_offset
        for n in map(parse_segment_file, opening.disk.list_dir(opening.directory))
        if n is not None and n.suffix == SNAPSHOT_SUFFIX and not n.extra
    ]
    producers = ProducerLog(opening.disk, opening.directory, snapshots)
    start = producers.load(segment.base_offset, opening.log_start)
    before = [other for other in segments if other.base_offset < segment.base_offset]
    yield from producers.replay(before, start, segment.base_offset)
    end = segment.size
    segment.reset_indexes()
    for count, (position, header) in enumerate(scan_headers(segment.file, 0, end)):
        note_recovered(segment, producers, position, header)
        if count % 4096 == 0:
            yield
    segment.size = end
    if not segment.is_active:
        segment.close_for_writing()


def note_recovered(
    segment: Segment, producers: ProducerLog, position: int, header: BatchHeader
) -> None:
    """Index a batch that is in the file, and let the producers' state follow."""
    segment.make_room_in_indexes()
    segment.note_batch(position, header)
    if header.producer_id >= 0:
        note_producer(segment, producers, position, header)


def note_producer(
    segment: Segment, producers: ProducerLog, position: int, header: BatchHeader
) -> None:
    """Let the producers' state follow a batch of one that is in the file."""
    completed = producers.apply(header, marker_of(segment, position, header))
    if completed is not None and completed.is_aborted:
        stable = producers.states.last_stable_offset_after(completed)
        segment.txn_index.append(
            AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )
