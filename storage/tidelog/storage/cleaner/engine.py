"""The heavy half of a pass: reading, mapping and filtering, off the event loop.

Nothing here knows a ``Log``: a pass works on copies of what was known of one when it began, and on
files that it opens itself. So it runs in any thread or process, and on files that nobody serves
(``tidelog log compact --dry-run``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelog.kernel.ids import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from tidelog.kernel.ports import ByteView, Disk, Steps
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.cleaner.chunks import Chunk, read_chunks
from tidelog.storage.cleaner.plan import SegmentFacts, group_segments
from tidelog.storage.cleaner.report import CleaningReport
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.cleaner.transactions import TransactionWalk
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader

if TYPE_CHECKING:
    from tidelog.storage.cleaner.columns import OpenedBatches
    from tidelog.storage.cleaner.digests import KeyDigests
    from tidelog.storage.cleaner.filtering import Filter
    from tidelog.storage.cleaner.offset_map import OffsetMap


class CleaningAborted(Exception):
    """Somebody asked for it, or the log is not the one that was planned for."""


@dataclass(frozen=True, slots=True)
class LastOfProducer:
    """What of an active producer the log must still tell after a restart."""

    epoch: ProducerEpoch
    last_data_offset: Offset | None


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment that the pass reads."""

    path: str
    facts: SegmentFacts
    dirty_position: int
    """Where in the file the dirty part begins."""


@dataclass(frozen=True, slots=True)
class PassInputs:
    """All that a pass needs to know, as it was when the pass began."""

    tp: TopicPartition
    directory: str
    config: TopicConfig
    settings: CleanerSettings
    now_ms: TimestampMs
    first_dirty: Offset
    first_uncleanable: Offset
    clean_floor: Offset
    sources: Sequence[Source]
    """Every segment below ``first_uncleanable``."""
    aborted: Sequence[AbortedTxn]
    producers: Mapping[ProducerId, LastOfProducer]
    secret: bytes
    """For the digests; see there."""


class Output(Protocol):
    """Where the batches that stay go."""

    def write(self, buffers: Sequence[ByteView], headers: Iterable[BatchHeader]) -> None: ...

    def add_aborted(self, entries: Iterable[AbortedTxn]) -> None: ...


class CleaningPass:
    """``map_keys``, then ``rewrite`` for each group in order."""

    def __init__(self, disk: Disk, inputs: PassInputs) -> None:
        self._disk = disk
        self.inputs = inputs
        self.report = CleaningReport(inputs.tp, inputs.first_dirty)
        self.abort_reason: str | None = None
        """Set by the owner; looked at between two steps."""
        self.end_offset = inputs.first_dirty
        """How far the map speaks: what lies behind stays as it is."""
        self._newest: OffsetMap | None = None
        self._filter: Filter | None = None

    def check_abort(self) -> None:
        if self.abort_reason is not None:
            raise CleaningAborted(self.abort_reason)

    # --- the map -----------------------------------------------------------------------

    def map_keys(self) -> Steps[None]:
        """Find the newest offset of each key of the dirty part, as far as memory goes."""
        from tidelog.storage.cleaner.digests import KeyDigests
        from tidelog.storage.cleaner.offset_map import OffsetMap

        inputs, report = self.inputs, self.report
        settings = inputs.settings
        most_keys = inputs.first_uncleanable - inputs.first_dirty
        newest = OffsetMap(settings.map_bytes, settings.load_factor, most_keys)
        digests = KeyDigests(inputs.secret)
        walk = TransactionWalk(inputs.aborted)
        for source in inputs.sources:
            if source.facts.end_offset <= inputs.first_dirty:
                continue
            for chunk in self._chunks(source, source.dirty_position):
                self.check_abort()
                report.bytes_mapped += chunk.size
                if not _map_chunk(chunk, newest, digests, walk, inputs):
                    report.map_is_full = True
                    break
                yield
            if report.map_is_full:
                break
            newest.latest_offset = max(newest.latest_offset, source.facts.end_offset - 1)
        report.keys = newest.size
        self.end_offset = Offset(newest.latest_offset + 1)
        self._newest = newest
        self._filter = self._make_filter(newest, digests)

    def _make_filter(self, newest: OffsetMap, digests: KeyDigests) -> Filter:
        from tidelog.storage.cleaner.filtering import Filter, FilterRules

        inputs = self.inputs
        rules = FilterRules(
            now_ms=inputs.now_ms,
            delete_retention_ms=inputs.config.delete_retention_ms,
            clean_floor=inputs.clean_floor,
            first_dirty=inputs.first_dirty,
            upper_bound=inputs.first_uncleanable,
            producers=inputs.producers,
            chunk_bytes=inputs.settings.chunk_bytes,
        )
        return Filter(rules, TransactionWalk(inputs.aborted), newest, digests, self.report)

    def _chunks(self, source: Source, start: int) -> Iterator[Chunk]:
        facts, chunk_bytes = source.facts, self.inputs.settings.chunk_bytes
        offsets = facts.base_offset, facts.end_offset
        file = self._disk.open(source.path, read_only=True)
        try:
            yield from read_chunks(file, start, facts.size, chunk_bytes, offsets)
        finally:
            file.close()

    # --- the segments ------------------------------------------------------------------

    def groups(self) -> list[Sequence[Source]]:
        """The segments to rewrite, those together that will be one."""
        sources = [s for s in self.inputs.sources if s.facts.base_offset < self.end_offset]
        facts = [source.facts for source in sources]
        ranges = group_segments(facts, self.inputs.config, self.inputs.first_uncleanable)
        return [sources[start:stop] for start, stop in ranges]

    def rewrite(self, group: Sequence[Source], output: Output) -> Steps[None]:
        """Give what stays of these segments to ``output``."""
        if self._filter is None:
            raise ValueError("the keys are not mapped yet")
        for source in group:
            for chunk in self._chunks(source, 0):
                self.check_abort()
                self.report.bytes_read += chunk.size
                filtered = self._filter.apply(chunk)
                output.write(filtered.buffers, filtered.headers)
                output.add_aborted(filtered.entries)
                yield
            self.report.segments_before += 1
        self.report.segments_after += 1


def _map_chunk(
    chunk: Chunk,
    newest: OffsetMap,
    digests: KeyDigests,
    walk: TransactionWalk,
    inputs: PassInputs,
) -> bool:
    """Put the keys of a chunk; False if the map became full before its end."""
    from tidelog.storage.cleaner.columns import open_batches

    wanted = [
        index
        for index, (_, header) in enumerate(chunk.batches)
        if not header.is_control
        and not walk.is_aborted(header)
        and header.records_count
        and header.last_offset >= inputs.first_dirty
    ]
    limit = 2 * inputs.settings.chunk_bytes
    for opened in open_batches(chunk.data, chunk.batches, wanted, limit):
        stopped_at = _put(opened, newest, digests, inputs.first_dirty)
        if stopped_at is not None:
            if stopped_at > 0:
                before = chunk.batches[stopped_at - 1][1]
                newest.latest_offset = max(newest.latest_offset, before.last_offset)
            return False
    newest.latest_offset = max(newest.latest_offset, chunk.batches[-1][1].last_offset)
    return True


def _put(
    opened: OpenedBatches, newest: OffsetMap, digests: KeyDigests, first_dirty: Offset
) -> int | None:
    """Put the keys; the index of the batch in which the map became full, if it did."""
    rows = ((opened.key_length >= 0) & (opened.offset >= first_dirty)).nonzero()[0]
    if len(rows) < len(opened.offset):
        starts, lengths = opened.key_start[rows], opened.key_length[rows]
        offsets = opened.offset[rows]
    else:
        starts, lengths, offsets = opened.key_start, opened.key_length, opened.offset
    done = newest.put(digests.of(opened.buffer, starts, lengths), offsets)
    if done == len(rows):
        return None
    return opened.indices[int(opened.batch[rows[done]])]
