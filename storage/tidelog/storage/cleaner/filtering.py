"""What of each batch stays.

A record stays if it is the newest of its key, as far as the offset map speaks; what lies behind
the map stays in any case. A tombstone stays until its batch's delete horizon has passed, which is
set the first time it is seen (KIP-534), and then until every replica that counts has cleaned past
it: below ``clean_floor``. So does a marker whose transaction has nothing left. A record without a
key goes: it can never be replaced. Control records are never matched by key (KAFKA-14055).

Of a batch that loses all records the header stays if a producer's state hangs on it, or the end of
what this pass covers (KAFKA-17076).

Importing this module imports numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tidelog.kernel.ids import Offset, ProducerId, TimestampMs
from tidelog.storage.cleaner.chunks import Chunk
from tidelog.storage.cleaner.columns import Bools, OpenedBatches, open_batches
from tidelog.storage.cleaner.digests import KeyDigests
from tidelog.storage.cleaner.engine import LastOfProducer
from tidelog.storage.cleaner.offset_map import OffsetMap
from tidelog.storage.cleaner.rebuilding import rebuild_batches
from tidelog.storage.cleaner.report import CleaningReport
from tidelog.storage.cleaner.transactions import TransactionWalk
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader, read_header
from tidelog.wire.control import ControlType, read_control_type
from tidelog.wire.records import decode_records, emptied_batch, rebuild_batch


@dataclass(frozen=True, slots=True)
class FilterRules:
    now_ms: TimestampMs
    delete_retention_ms: int
    clean_floor: Offset
    """Tombstones and markers at or above it stay, however old."""
    first_dirty: Offset
    """From here on every key was put into the map."""
    upper_bound: Offset
    """Where the pass would end if the map held every key."""
    producers: Mapping[ProducerId, LastOfProducer]
    chunk_bytes: int

    @property
    def new_horizon_ms(self) -> TimestampMs:
        return TimestampMs(self.now_ms + self.delete_retention_ms)

    def is_expired(self, header: BatchHeader) -> bool:
        horizon = header.delete_horizon_ms
        return horizon is not None and horizon <= self.now_ms

    def keeps_header(self, header: BatchHeader) -> bool:
        """Does the batch stay even without a record?"""
        if header.next_offset == self.upper_bound:
            return True
        last = self.producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_data_offset


class Verdict(NamedTuple):
    """What is known of a batch before its records are looked at."""

    discards_records: bool
    keeps_header: bool
    needs_horizon: bool
    """It is a marker that ends nothing any more, and nobody has noticed before."""
    entry: AbortedTxn | None


class Filtered(NamedTuple):
    """What is written in place of a chunk: bytes, and the headers of the batches in them."""

    buffers: list[bytes | memoryview]
    headers: list[BatchHeader]
    entries: list[AbortedTxn]


class Filter:
    """Give it the chunks of a log in order, from its first segment on."""

    def __init__(
        self,
        rules: FilterRules,
        walk: TransactionWalk,
        newest: OffsetMap,
        digests: KeyDigests,
        report: CleaningReport,
    ) -> None:
        self._rules = rules
        self._walk = walk
        self._newest = newest
        self._still_newest = newest.still_newest(rules.first_dirty)
        self._digests = digests
        self._report = report

    def apply(self, chunk: Chunk) -> Filtered:
        verdicts = [self._judge(chunk, position, header) for position, header in chunk.batches]
        wanted = [
            index
            for index, (_, header) in enumerate(chunk.batches)
            if not (header.is_control or verdicts[index].discards_records) and header.records_count
        ]
        replaced: dict[int, bytes] = {}
        limit = 2 * self._rules.chunk_bytes
        for opened in open_batches(chunk.data, chunk.batches, wanted, limit):
            replaced.update(self._filter_records(chunk, opened, verdicts))
        return self._assemble(chunk, verdicts, replaced)

    # --- whole batches -----------------------------------------------------------------

    def _judge(self, chunk: Chunk, position: int, header: BatchHeader) -> Verdict:
        rules, report = self._rules, self._report
        report.batches_read += 1
        report.records_read += header.records_count
        keeps_header = rules.keeps_header(header)
        if not header.is_control:
            is_aborted = self._walk.is_aborted(header)
            if is_aborted:
                report.aborted_dropped += header.records_count
            return Verdict(is_aborted, keeps_header, False, None)
        marker = _marker_in(chunk, position, header)
        is_needless = self._walk.is_needless(header, marker)
        entry = self._walk.needed_entry(header) if marker is ControlType.ABORT else None
        discards = is_needless and rules.is_expired(header)
        if discards and header.last_offset >= rules.clean_floor:
            report.hold_back(1, header.base_offset)
            discards = False
        if discards:
            report.markers_dropped += header.records_count
        needs_horizon = is_needless and not header.has_delete_horizon
        return Verdict(discards, keeps_header, needs_horizon, entry)

    def _assemble(
        self, chunk: Chunk, verdicts: list[Verdict], replaced: dict[int, bytes]
    ) -> Filtered:
        """The batches that stay, in order; those that stay as they are in as few pieces as
        possible."""
        view = memoryview(chunk.data)
        output = Filtered([], [], [v.entry for v in verdicts if v.entry is not None])
        begin = end = 0
        for index, (position, header) in enumerate(chunk.batches):
            data = replaced.get(index)
            if data is None:
                data = self._whole_batch(view, position, header, verdicts[index])
            if data is None:
                if position != end:
                    if end > begin:
                        output.buffers.append(view[begin:end])
                    begin = position
                end = position + header.size
                self._count(output, header)
            elif data:
                if end > begin:
                    output.buffers.append(view[begin:end])
                begin = end = position + header.size
                output.buffers.append(data)
                self._count(output, read_header(data))
        if end > begin:
            output.buffers.append(view[begin:end])
        return output

    def _count(self, output: Filtered, header: BatchHeader) -> None:
        output.headers.append(header)
        self._report.batches_kept += 1
        self._report.records_kept += header.records_count
        self._report.bytes_written += header.size
        horizon = header.delete_horizon_ms
        if horizon is not None:
            self._report.note_horizon(horizon)

    def _whole_batch(
        self, view: memoryview, position: int, header: BatchHeader, verdict: Verdict
    ) -> bytes | None:
        """What replaces a batch of which no record was looked at; None if it stays."""
        if verdict.discards_records or header.records_count == 0:
            return emptied_batch(header) if verdict.keeps_header else b""
        if verdict.needs_horizon:
            self._report.horizons_set += 1
            records = decode_records(view[position : position + header.size], header)
            return rebuild_batch(header, records, delete_horizon_ms=self._rules.new_horizon_ms)
        return None

    # --- records -----------------------------------------------------------------------

    def _filter_records(
        self, chunk: Chunk, opened: OpenedBatches, verdicts: list[Verdict]
    ) -> Iterator[tuple[int, bytes]]:
        """What replaces the opened batches that change."""
        headers = [chunk.batches[index][1] for index in opened.indices]
        keep = self._kept(opened, headers)
        kept = np.bincount(opened.batch[keep], minlength=len(headers))
        tombstones = np.bincount(opened.batch[keep & ~opened.has_value], minlength=len(headers))
        has_horizon = np.array([header.has_delete_horizon for header in headers], np.bool_)
        needs_horizon = (tombstones > 0) & ~has_horizon
        self._report.horizons_set += int(needs_horizon.sum())
        for position in np.flatnonzero(kept == 0).tolist():
            index = opened.indices[position]
            header = headers[position]
            yield index, emptied_batch(header) if verdicts[index].keeps_header else b""
        is_rebuilt = (kept > 0) & ((kept < opened.counts) | needs_horizon)
        new_horizons = np.where(needs_horizon, self._rules.new_horizon_ms, -1).astype(np.int64)
        yield from rebuild_batches(opened, chunk.batches, keep, is_rebuilt, new_horizons)

    def _kept(self, opened: OpenedBatches, headers: list[BatchHeader]) -> Bools:
        report, floor = self._report, self._rules.clean_floor
        has_key = opened.key_length >= 0
        is_behind = opened.offset > self._newest.latest_offset
        keep = self._is_newest(opened, has_key)
        is_expired = np.array([self._rules.is_expired(header) for header in headers], np.bool_)
        if bool(is_expired.any()):
            is_over = is_expired[opened.batch] & ~opened.has_value & keep & ~is_behind
            is_held = is_over & (opened.offset >= floor)
            is_dropped = is_over & ~is_held
            report.tombstones_dropped += int(is_dropped.sum())
            if bool(is_held.any()):
                report.hold_back(int(is_held.sum()), Offset(int(opened.offset[is_held][0])))
            keep &= ~is_dropped
        report.keyless_dropped += int((~has_key & ~is_behind).sum())
        return keep | is_behind

    def _is_newest(self, opened: OpenedBatches, has_key: Bools) -> Bools:
        """Of its key, as far as the map speaks; never without a key."""
        place = opened.offset - self._rules.first_dirty
        is_noted = (place >= 0) & (place < len(self._still_newest))
        if bool(is_noted.all()):
            return self._still_newest.take(place)
        found = np.zeros(len(place), np.bool_)
        found[is_noted] = self._still_newest[place[is_noted]]
        rows = np.flatnonzero(has_key & ~is_noted)
        starts, lengths = opened.key_start[rows], opened.key_length[rows]
        newest = self._newest.get(self._digests.of(opened.buffer, starts, lengths))
        found[rows] = opened.offset[rows] >= newest
        return found


def _marker_in(chunk: Chunk, position: int, header: BatchHeader) -> ControlType | None:
    if header.records_count == 0:
        return None
    data = memoryview(chunk.data)[position : position + header.size]
    return read_control_type(decode_records(data, header)[0].key)
