"""The walk over what a crash may have damaged: everything from the recovery point on.

Every batch is read and checked. The log is cut before the first that is not sound; indexes,
epochs and producers are made anew from those that are.

Two things the checksum does not see are judged by the neighbours. Base offset and leader epoch
lie outside it, so a batch that the next one contradicts is not believed either. And a segment
may have lost its end without a trace, when its size had not reached the disk but the next
segment had: segments join without a gap, so a gap between them is a loss. Only compaction
makes such gaps; there the log is kept as it is, and called suspect.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from tidelog.kernel.ids import LeaderEpoch, Offset
from tidelog.kernel.ports import Steps
from tidelog.storage.epoch_cache import EpochCache, EpochEntry
from tidelog.storage.index_repair import note_producer
from tidelog.storage.names import LOG_SUFFIX
from tidelog.storage.opening import Opening, Report, Verdict
from tidelog.storage.producer_log import ProducerLog
from tidelog.storage.scan import (
    Flaw,
    Located,
    VerifyProgress,
    find_sound_batch,
    verify_batches,
)
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, Segment
from tidelog.wire.batch import HEADER_SIZE, BatchHeader, check_batch, read_header
from tidelog.wire.errors import MalformedBatch

SUSPECT_SUFFIX: Final = ".suspect"
_COPY_BYTES: Final = 4 * 1024 * 1024
_HOLE_BYTES: Final = 64
"""No disk writes less than this in one piece, so a hole is at least as large."""
_NO_LIMIT: Final = Offset(2**63 - 1)


class _Accepted(NamedTuple):
    """The last batch that was believed, and where the log stood before it."""

    segment: int
    position: int
    header: BatchHeader
    expected_offset: Offset
    epoch_before: LeaderEpoch

    @property
    def leaves_gap(self) -> bool:
        return self.header.base_offset > self.expected_offset


class _Blamed(NamedTuple):
    segment: int
    flaw: Flaw


class UncleanRecovery:
    """Run once; afterwards ``segments`` is what is left, the last one ready for writing."""

    def __init__(
        self,
        opening: Opening,
        segments: list[Segment],
        producers: ProducerLog,
        epochs: EpochCache,
        report: Report,
        *,
        verify_all: bool = False,
    ) -> None:
        self._opening = opening
        self._producers = producers
        self._epochs = epochs
        self._report = report
        self._sizes = [segment.size for segment in segments]
        self._known_epochs: tuple[EpochEntry, ...] = ()
        self._expected_offset, self._epoch = Offset(0), LeaderEpoch(-1)
        self._accepted: _Accepted | None = None
        self._blamed: _Blamed | None = None
        self.segments = segments
        self.first = 0 if verify_all else self._first_unflushed()

    def run(self) -> Steps[None]:
        if self.segments:
            base = self.segments[self.first].base_offset
            self._known_epochs = self._epochs.entries
            # Snapshots behind may tell of batches that were cut off before the crash.
            self._producers.delete_snapshots_above(base)
        progress = yield from self._walk()
        if self._blamed is not None:
            progress = yield from self._walk()
        self._producers.end_offset = progress.next_offset
        self._judge_end(progress.next_offset)

    def _first_unflushed(self) -> int:
        """The segment that holds the last flushed offset; all before it were flushed whole.

        When the recovery point is a segment's base, the one before may have been flushed while
        it was still active: its data is safe, but its indexes are not.
        """
        point = self._opening.recovery_point
        flushed = [i for i, segment in enumerate(self.segments) if segment.base_offset < point]
        return flushed[-1] if flushed else 0

    def _walk(self) -> Steps[VerifyProgress]:
        yield from self._start_histories()
        progress = self._progress()
        self._expected_offset, self._epoch = progress.next_offset, progress.leader_epoch
        self._accepted = None
        for index in range(self.first, len(self.segments)):
            flaw = yield from self._recover_segment(index, progress)
            flaw = flaw or self._gap_behind(index, progress.next_offset)
            if flaw is not None:
                self._blamed = self._blamed or self._contradicted(index, flaw)
                if self._is_to_walk_again():
                    return progress
                yield from self._cut(index, flaw, progress.next_offset)
                return progress
        self._blamed = self._blamed or self._uncorroborated()
        return progress

    def _is_to_walk_again(self) -> bool:
        """A batch that was accepted in this walk has been blamed."""
        accepted, blamed = self._accepted, self._blamed
        if accepted is None or blamed is None:
            return False
        return (accepted.segment, accepted.position) == (blamed.segment, blamed.flaw.position)

    def _judge_end(self, end: Offset) -> None:
        """Bytes may also be missing without a trace, when a file's size was never synced."""
        if end < self._floor and self._report.verdict is not Verdict.SUSPECT:
            self._report.suspect(f"the log ends at {end}, it had been flushed to {self._floor}")

    @property
    def _floor(self) -> Offset:
        """Nothing below this was under way when the node stopped."""
        return max(self._opening.recovery_point, self._opening.high_watermark)

    def _progress(self) -> VerifyProgress:
        start = self.segments[self.first].base_offset if self.segments else Offset(0)
        epoch = self._epochs.epoch_for_offset(Offset(start - 1)) if start > 0 else None
        return VerifyProgress(start, _NO_LIMIT, LeaderEpoch(-1) if epoch is None else epoch)

    def _start_histories(self) -> Steps[None]:
        if self.segments:
            base = self.segments[self.first].base_offset
            self._epochs.truncate_from_end(base)
            start = self._producers.load(base, self.segments[0].base_offset)
            yield from self._producers.replay(self.segments[: self.first], start, base)

    # --- one segment -------------------------------------------------------------------

    def _recover_segment(self, index: int, progress: VerifyProgress) -> Steps[Flaw | None]:
        segment = self.segments[index]
        is_last = index == len(self.segments) - 1
        limit = _NO_LIMIT if is_last else Offset(self.segments[index + 1].base_offset - 1)
        progress.max_offset = min(limit, Offset(segment.base_offset + MAX_RELATIVE_OFFSET))
        progress.next_offset = max(progress.next_offset, segment.base_offset)
        self._expected_offset = progress.next_offset
        segment.reset_indexes()
        flaw = self._blamed.flaw if self._blamed and self._blamed.segment == index else None
        size = self._sizes[index] if flaw is None else flaw.position
        for found in verify_batches(segment.file, size, progress):
            if isinstance(found, Flaw):
                flaw = found
            else:
                self._accept(index, found)
                yield
        self._report.bytes_verified += segment.size
        if flaw is None and not is_last:
            segment.close_for_writing()
            self._producers.end_offset = self.segments[index + 1].base_offset
            self._producers.take_snapshot()
        return flaw

    def _accept(self, index: int, batches: list[Located]) -> None:
        """Take over sound batches: indexes, epochs and producers follow."""
        segment, expected, epoch = self.segments[index], self._expected_offset, self._epoch
        before: tuple[Offset, LeaderEpoch] = expected, epoch
        has_room = segment.has_room_in_indexes(len(batches))
        for position, header in batches:
            before = expected, epoch
            if header.leader_epoch > epoch:
                epoch = header.leader_epoch
                self._epochs.assign(epoch, self._epoch_start(header, expected))
            if not has_room:
                segment.make_room_in_indexes()
            segment.note_batch(position, header)
            if header.producer_id >= 0:
                note_producer(segment, self._producers, position, header)
            expected = Offset(header.base_offset + header.last_offset_delta + 1)
        self._expected_offset, self._epoch = expected, epoch
        self._accepted = _Accepted(index, *batches[-1], *before)

    def _epoch_start(self, header: BatchHeader, expected: Offset) -> Offset:
        """The checkpoint may know of an earlier start, whose batches were compacted away."""
        for epoch, start in self._known_epochs:
            if epoch == header.leader_epoch and expected <= start <= header.base_offset:
                return start
        return header.base_offset

    # --- what the checksum does not see --------------------------------------------------

    def _gap_behind(self, index: int, end: Offset) -> Flaw | None:
        """Why the next segment cannot follow this one, which is sound and ends at ``end``."""
        if index + 1 >= len(self.segments) or self.segments[index + 1].base_offset <= end:
            return None
        following = self.segments[index + 1]
        if self._starts_far_ahead(following, end):
            return None
        reason = f"it ends at {end}, the next segment begins at {following.base_offset}"
        if self._opening.config.is_compacted:
            self._report.suspect(f"{self.segments[index].path(LOG_SUFFIX)}: {reason}")
            return None
        return Flaw(self.segments[index].size, reason)

    def _starts_far_ahead(self, segment: Segment, end: Offset) -> bool:
        """Its first batch was too far from ``end`` for an index to hold; see ``Log._roll_base``."""
        data = segment.file.pread(HEADER_SIZE, 0)
        if len(data) < HEADER_SIZE:
            return False
        return read_header(data).last_offset - end > MAX_RELATIVE_OFFSET

    def _contradicted(self, index: int, flaw: Flaw) -> _Blamed | None:
        """The batch before the flaw, if the one behind is sound and would fit without it."""
        last = self._accepted
        header = _sound_header(self.segments[index], flaw.position, self._sizes[index])
        if last is None or header is None:
            return None
        goes_back = header.base_offset < last.header.next_offset
        if goes_back and last.leaves_gap and header.base_offset >= last.expected_offset:
            return _blame(last, f"its base offset {last.header.base_offset} is contradicted")
        falls = header.leader_epoch < last.header.leader_epoch
        if falls and header.leader_epoch >= last.epoch_before:
            return _blame(last, f"its leader epoch {last.header.leader_epoch} is contradicted")
        return None

    def _uncorroborated(self) -> _Blamed | None:
        """The last batch of all, if it lies behind a gap that nothing explains."""
        last = self._accepted
        if last is None or not last.leaves_gap or self._opening.config.is_compacted:
            return None
        if last.segment != len(self.segments) - 1:
            return None
        return _blame(last, f"offsets jump from {last.expected_offset}")

    # --- cutting -----------------------------------------------------------------------

    def _cut(self, index: int, flaw: Flaw, end: Offset) -> Steps[None]:
        """Judge the damage, keep what is suspect aside, and end the log before it."""
        segment = self.segments[index]
        file_size = segment.file.size()
        later = self.segments[index + 1 :]
        data_behind = _holds_sound_batch(segment, flaw.position, file_size, end)
        yield
        data_behind |= any(_holds_sound_batch(other, 0, other.size, end) for other in later)
        cut_bytes = file_size - flaw.position + sum(other.size for other in later)
        reason = f"{segment.path(LOG_SUFFIX)} cut at {flaw.position}: {flaw.reason}"
        self._report.bytes_cut += cut_bytes
        if data_behind or end < self._floor or _was_whole(segment, flaw.position, file_size):
            self._report.suspect(reason)
            yield from self._keep_aside(segment, flaw.position, file_size)
            for other in later:
                yield from self._keep_aside(other, 0, other.size)
        else:
            if self._report.verdict is Verdict.CLEAN:
                self._report.verdict = Verdict.TORN_TAIL
            self._report.note(reason)
        delete_segments(self._opening, later)
        self.segments = self.segments[: index + 1]
        segment.make_active()
        segment.file.truncate(flaw.position)
        # What was cut off must not come back among the batches that will be written there.
        segment.file.sync()

    def _keep_aside(self, segment: Segment, start: int, end: int) -> Steps[None]:
        if start == end:
            return
        path = f"{segment.path(LOG_SUFFIX)}.{start}{SUSPECT_SUFFIX}"
        copy = self._opening.disk.open(path, create=True)
        copy.truncate(0)
        for position in range(start, end, _COPY_BYTES):
            length = min(_COPY_BYTES, end - position)
            copy.pwrite(segment.file.pread(length, position), position - start)
            yield
        copy.sync()
        copy.close()
        self._report.note(f"kept {end - start} bytes in {path}")


def _blame(last: _Accepted, reason: str) -> _Blamed:
    text = f"batch at {last.position} (offset {last.header.base_offset}): {reason}"
    return _Blamed(last.segment, Flaw(last.position, text))


def _sound_header(segment: Segment, position: int, size: int) -> BatchHeader | None:
    """The header at ``position`` if the whole batch is there and its checksum holds."""
    start = segment.file.pread(HEADER_SIZE, position)
    if len(start) < HEADER_SIZE or not 0 < read_header(start).size <= size - position:
        return None
    try:
        return check_batch(segment.file.pread(read_header(start).size, position))
    except MalformedBatch:
        return None


def _was_whole(segment: Segment, position: int, size: int) -> bool:
    """Whether a bad batch was written to its end, so that it was damaged and not torn.

    Of a torn write whole sectors are missing, and a place never written to reads as zeros. A batch
    without such a hole reached the disk, and may have been flushed and acknowledged.
    """
    start = segment.file.pread(HEADER_SIZE, position)
    if len(start) < HEADER_SIZE or not HEADER_SIZE <= read_header(start).size <= size - position:
        return False
    data = segment.file.pread(read_header(start).size, position)
    first = _HOLE_BYTES - position % _HOLE_BYTES
    bounds = [0, *range(first, len(data), _HOLE_BYTES), len(data)]
    return all(data[begin:end].strip(b"\0") for begin, end in pairwise(bounds))


def _holds_sound_batch(segment: Segment, start: int, size: int, end: Offset) -> bool:
    return find_sound_batch(segment.file, start, size, Offset(end - 1)) is not None


def delete_segments(opening: Opening, segments: list[Segment]) -> None:
    """Remove their files, the newest first, for good."""
    for segment in reversed(segments):
        segment.discard()
        for path in segment.paths():
            opening.disk.unlink(path)
    opening.disk.sync_dir(opening.directory)
