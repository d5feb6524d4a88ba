"""A compacted log on a simulated disk, beside a list of all that was ever written to it.

``CleanerWorld`` writes, cleans, crashes and reads. After each pass and each restart the log is
held to what compaction promises: a reader from the beginning ends with the newest value of every
key and never sees an aborted record; what is there is what was written, at its own offset; nothing
behind the cleaned part is missing; a tombstone stays as long as somebody may need it, and no
longer; producers go on where they were.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from log_lab import NOW, PARTITION, TP, create, open_dir, open_logs, small_config

from tidelog.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from tidelog.kernel.settings import TopicConfig
from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash
from tidelog.storage.cleaner.cleaning import NO_FLOOR, Cleaning, LogCleaner
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import Appended, Log
from tidelog.storage.log_dir import LogDirectory
from tidelog.storage.opening import Verdict
from tidelog.storage.read import LogRead
from tidelog.wire.batch import BatchHeader, Codec, check_batch, headers
from tidelog.wire.control import ControlType, EndTxnMarker, read_marker
from tidelog.wire.records import Record, build_batch, decode_records

CONFIG = small_config(
    cleanup_policy=("compact",),
    internal_segment_bytes=500,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
"""A few batches per segment, and no share of dirt too small to clean."""

Written = tuple[bytes, bytes | None]
EPOCH = LeaderEpoch(0)


@dataclass
class Line:
    """One record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    is_visible: bool
    """Not part of a transaction that is open or was aborted."""
    first_pass_ms: int | None = None
    """When a pass first covered it."""
    highest_floor: int = 0
    """The highest clean floor that any pass over it was given."""


@dataclass
class Model:
    records: dict[int, Line] = field(default_factory=dict)
    markers: set[int] = field(default_factory=set)
    aborted: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Abort marker → producer and first offset of the transaction."""
    open_txns: dict[int, list[int]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def state(self, below: int) -> dict[bytes, bytes]:
        """The newest value of every key, as a reader of committed records sees it."""
        found: dict[bytes, bytes] = {}
        for offset in sorted(self.records):
            record = self.records[offset]
            if offset >= below or not record.is_visible:
                continue
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found

    def newest(self, below: int) -> dict[bytes, Line]:
        visible = (self.records[o] for o in sorted(self.records) if o < below)
        return {record.key: record for record in visible if record.is_visible}


class CleanerWorld:
    def __init__(self, config: TopicConfig, seed: int = 0, *, map_bytes: int = 1 << 16) -> None:
        self.config = config
        self.random = SimRandom(seed)
        self.disk = SimDisk(sector_bytes=64)
        self.settings = CleanerSettings(map_bytes=map_bytes, chunk_bytes=200)
        self.now = int(NOW)
        self.model = Model()
        self.cleaned_to = 0
        """No pass ever read further."""
        self.crashes = 0
        self.passes = 0
        self._start()

    # --- writing -----------------------------------------------------------------------

    def write(self, records: list[Written], codec: Codec = Codec.NONE) -> None:
        self._append(records, codec, -1, is_transactional=False)

    def write_as(
        self,
        producer_id: int,
        records: list[Written],
        *,
        is_transactional: bool = False,
        codec: Codec = Codec.NONE,
    ) -> None:
        is_transactional = is_transactional or producer_id in self.model.open_txns
        self._append(records, codec, producer_id, is_transactional=is_transactional)

    def _append(
        self, records: list[Written], codec: Codec, producer_id: int, *, is_transactional: bool
    ) -> None:
        stamped = [Record(i, self.now + i, key, value) for i, (key, value) in enumerate(records)]
        sequence = self.model.sequences.get(producer_id, -1) + 1
        batch = build_batch(
            stamped,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else sequence,
            is_transactional=is_transactional,
        )
        answer = self.log.append_as_leader(batch, leader_epoch=EPOCH, now_ms=TimestampMs(self.now))
        assert isinstance(answer, Appended), answer
        assert not answer.is_duplicate
        offsets = [answer.base_offset + i for i in range(len(records))]
        for offset, (key, value) in zip(offsets, records, strict=True):
            visible = not is_transactional
            self.model.records[offset] = Line(offset, key, value, visible)
        if producer_id >= 0:
            self.model.sequences[producer_id] = sequence + len(records) - 1
        if is_transactional:
            self.model.open_txns.setdefault(producer_id, []).extend(offsets)

    def end_txn(self, producer_id: int, *, commit: bool) -> None:
        offsets = self.model.open_txns.pop(producer_id, None)
        if offsets is None:
            return
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        answer = self.log.append_marker(
            ProducerId(producer_id),
            ProducerEpoch(0),
            EndTxnMarker(kind, 0),  # type: ignore[arg-type]
            leader_epoch=EPOCH,
            now_ms=TimestampMs(self.now),
        )
        assert isinstance(answer, Appended), answer
        self.model.markers.add(answer.base_offset)
        if not commit:
            self.model.aborted[answer.base_offset] = producer_id, offsets[0]
        for offset in offsets:
            self.model.records[offset].is_visible = commit

    def roll(self) -> None:
        self.log.roll(self.log.end_offset, TimestampMs(self.now))

    def commit(self) -> None:
        self.log.flush_now()
        self.log.advance_high_watermark(self.log.end_offset)
        self.directory.write_high_watermarks()

    # --- cleaning ----------------------------------------------------------------------

    def clean(self, *, floor: int | None = None) -> CleaningReport | None:
        """One pass, if one is due; then everything that must hold."""
        self.log.flush_now()
        report = self._pass(NO_FLOOR if floor is None else Offset(floor))
        self.check()
        return report

    def _pass(self, floor: Offset) -> CleaningReport | None:
        cleaner = LogCleaner(self.disk, self.log, self.settings, self.random)
        now_ms = TimestampMs(self.now)
        plan = cleaner.plan(now_ms, self.directory.clean_points.get(TP))
        if not plan.is_due:
            return None
        self.passes += 1
        self.note_pass(plan.first_uncleanable, floor)
        report = cleaner.begin(plan, now_ms, clean_floor=floor).run_here()
        assert report.outcome is Outcome.CLEANED, report
        assert report.clean_point is not None
        assert report.clean_point > plan.first_dirty
        self.directory.clean_points.set(TP, report.clean_point)
        self._check_nothing_is_kept_too_long(report.clean_point, floor)
        return report

    def note_pass(self, end: Offset, floor: Offset) -> None:
        self.cleaned_to = max(self.cleaned_to, end)
        for record in self.model.records.values():
            if record.offset < end:
                record.highest_floor = max(record.highest_floor, floor)
                if record.first_pass_ms is None:
                    record.first_pass_ms = self.now

    def clean_and_crash(
        self, nth: int, *, landed_bytes: int = 0, by_power: bool, floor: int | None = None
    ) -> bool:
        """A pass that ends before its nth change to the disk; whether it came that far."""
        self.log.flush_now()
        self.disk.on_operation(CrashAt(nth, landed_bytes=landed_bytes))
        has_crashed = False
        try:
            self._pass(NO_FLOOR if floor is None else Offset(floor))
        except SimulatedCrash:
            has_crashed = True
            self.crashes += 1
        self.disk.on_operation(None)
        if has_crashed:
            self.restart(by_power=by_power)
        self.check()
        return has_crashed

    def restart(self, *, by_power: bool) -> None:
        self.disk = self.disk.power_loss(self.random) if by_power else self.disk.kill()
        end = self.log.end_offset
        self._start()
        assert self.log.end_offset == end, "the end of the log moved"
        self.log.advance_high_watermark(self.log.end_offset)

    def _start(self) -> None:
        self.directory: LogDirectory = open_dir(self.disk)
        reports = open_logs(self.directory, self.config, self.now)
        if not reports:
            create(self.directory, self.config, now_ms=self.now)
        else:
            assert reports[0].verdict is Verdict.CLEAN, reports[0]
        self.log: Log = self.directory.logs[TP]

    # --- judging -----------------------------------------------------------------------

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        found = []
        for segment in self.log.segments:
            for position, header in segment.batches():
                data = segment.read_batch(position, header.size)
                check_batch(data)
                found.append((header, data))
        return found

    def check(self) -> None:
        self._check_stored()
        self._check_transaction_index()
        limit = self.log.last_stable_offset
        if not self.model.open_txns and self.log.high_watermark == self.log.end_offset:
            assert limit == self.log.end_offset, "the last stable offset sticks"
        seen = self.read_committed()
        for record in seen:
            written = self.model.records[record.offset]
            assert written.is_visible or record.offset >= limit, f"aborted {record} appears"
        state: dict[bytes, bytes] = {}
        for record in seen:
            assert record.key is not None
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
        assert state == self.model.state(limit)
        self._check_tombstones(limit)
        self._check_producers()

    def _check_stored(self) -> None:
        """What is there is what was written, in order, and nothing new is missing."""
        last = -1
        stored: set[int] = set()
        for header, data in self.batches():
            assert header.base_offset > last
            last = header.last_offset
            for record in decode_records(data, header):
                stored.add(record.offset)
                if header.is_control:
                    assert record.offset in self.model.markers
                    continue
                written = self.model.records[record.offset]
                assert (record.key, record.value) == (written.key, written.value)
                assert header.base_offset <= record.offset <= header.last_offset
        everything = set(self.model.records) | self.model.markers
        missing = {offset for offset in everything - stored if offset >= self.cleaned_to}
        assert missing == set(), "records are gone that no pass has read"

    def _check_transaction_index(self) -> None:
        """A batch of an aborted transaction, even an empty one, is known for what it is."""
        indexed = {
            txn.last_offset for segment in self.log.segments for txn in segment.txn_index.all()
        }
        there = [h for h, _ in self.batches() if h.is_transactional and not h.is_control]
        for marker, (producer_id, first) in self.model.aborted.items():
            is_met = any(
                h.producer_id == producer_id and first <= h.base_offset < marker for h in there
            )
            assert marker in indexed or not is_met, f"the abort at {marker} is forgotten"

    def _check_tombstones(self, limit: int) -> None:
        stored = {
            record.offset
            for header, data in self.batches()
            if not header.is_control
            for record in decode_records(data, header)
        }
        for record in self.model.newest(limit).values():
            if record.value is not None or record.offset in stored:
                continue
            assert record.first_pass_ms is not None
            waited_ms = self.now - record.first_pass_ms
            assert waited_ms >= self.config.delete_retention_ms, f"{record} went too early"
            assert record.offset < record.highest_floor, f"{record} went above the floor"

    def _check_nothing_is_kept_too_long(self, clean_point: Offset, floor: Offset) -> None:
        for header, data in self.batches():
            if header.last_offset >= clean_point or not header.has_delete_horizon:
                continue
            if header.base_timestamp > self.now:
                continue
            for record in decode_records(data, header):
                is_tombstone = record.value is None and not header.is_control
                assert not (is_tombstone and record.offset < floor), f"{record} is still there"

    def _check_producers(self) -> None:
        for producer_id, sequence in self.model.sequences.items():
            entry = self.log.producers.states.entry(producer_id)
            assert entry is not None
            assert entry.last_sequence == sequence
            is_open = entry.current_txn_first_offset is not None
            assert is_open == (producer_id in self.model.open_txns)

    def read_committed(self) -> list[Record]:
        """What a client with ``isolation.level=read_committed`` gets, from the beginning."""
        log, found = self.log, []
        offset, limit = log.log_start, log.last_stable_offset
        while offset < limit:
            answer = log.read(offset, limit, 10**6)
            assert isinstance(answer, LogRead)
            if answer.records is None:
                break
            aborted = sorted(
                log.aborted_transactions(offset, answer), key=lambda txn: txn.first_offset
            )
            skipped: set[int] = set()
            data = answer.records.read()
            for position, header in headers(data):
                batch = data[position : position + header.size]
                while aborted and aborted[0].first_offset <= header.last_offset:
                    skipped.add(aborted.pop(0).producer_id)
                offset = header.next_offset
                if header.is_control:
                    marker = read_marker(batch, header)
                    if marker is not None and not marker.is_commit:
                        skipped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipped):
                    found += decode_records(batch, header)
        return found


def filled(turns: int = 4, **changes: Any) -> CleanerWorld:
    """Several closed segments of the same few keys."""
    world = CleanerWorld(replace(CONFIG, **changes), seed=1)
    for turn in range(turns):
        world.write([(b"a", b"%d" % turn), (b"b", b"x" * 40)])
        world.write([(b"c", b"y" * 30), (b"key-%d" % turn, b"once")])
        world.roll()
    world.commit()
    return world


def begin(
    world: CleanerWorld, floor: Offset = NO_FLOOR, settings: CleanerSettings | None = None
) -> Cleaning:
    cleaner = LogCleaner(world.disk, world.log, settings or world.settings, world.random)
    now_ms = TimestampMs(world.now)
    plan = cleaner.plan(now_ms, world.directory.clean_points.get(TP))
    assert plan.is_due, plan
    world.note_pass(plan.first_uncleanable, floor)
    return cleaner.begin(plan, now_ms, clean_floor=floor)


def leftovers(world: CleanerWorld) -> list[str]:
    names = world.disk.list_dir(PARTITION)
    return [name for name in names if name.endswith((".cleaned", ".swap"))]
