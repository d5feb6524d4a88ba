"""A log on a simulated disk, beside a dumb list of the batches it should hold.

``LogWorld`` drives the real log through its operations and keeps the list. When the machine
stops, by order or in the middle of an operation, the log is opened again and held to what was
promised: nothing flushed is lost, nothing is served that was not appended there, nothing that
is derived (epochs, producers, aborted transactions) differs from a plain walk over what is left.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from log_lab import (
    NOW,
    PARTITION,
    TP,
    batch_of,
    create,
    in_segments,
    open_dir,
    open_logs,
    served,
    stamped,
)

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, LeaderEpoch, Offset, TimestampMs
from tidelog.kernel.ports import Steps, in_one_go
from tidelog.kernel.settings import TopicConfig
from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash
from tidelog.storage.flush import Flush
from tidelog.storage.log import Appended, Log
from tidelog.storage.log_dir import LogDirectory
from tidelog.storage.opening import Report, Verdict
from tidelog.storage.read import LogRead
from tidelog.storage.scan import find_sound_batch
from tidelog.storage.validation import Rejected
from tidelog.wire.batch import BatchHeader, check_batch, headers, read_header
from tidelog.wire.control import ControlType, EndTxnMarker, build_marker_batch, read_marker
from tidelog.wire.records import decode_records

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Stored:
    """One batch of the model."""

    data: bytes
    header: BatchHeader

    @classmethod
    def of(cls, data: bytes) -> Stored:
        return cls(data, read_header(data))

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def next(self) -> int:
        return self.header.next_offset

    @functools.cached_property
    def records(self) -> list[tuple[int, int]]:
        return [(record.offset, record.timestamp) for record in decode_records(self.data)]

    @property
    def is_abort(self) -> bool:
        marker = read_marker(self.data, self.header)
        return marker is not None and not marker.is_commit


@dataclass
class Producer:
    """What a walk over the batches says about a producer."""

    epoch: int
    batches: list[Stored]
    txn_first: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].header.last_sequence if self.batches else -1


def producers_of(batches: list[Stored]) -> dict[int, Producer]:
    found: dict[int, Producer] = {}
    for batch in batches:
        header = batch.header
        if header.producer_id < 0:
            continue
        entry = found.setdefault(header.producer_id, Producer(header.producer_epoch, []))
        if entry.epoch != header.producer_epoch:
            entry.epoch, entry.batches = header.producer_epoch, []
        if header.is_control:
            entry.txn_first = None
            continue
        entry.batches.append(batch)
        if header.is_transactional and entry.txn_first is None:
            entry.txn_first = batch.base
    return found


def aborted_of(batches: list[Stored]) -> set[tuple[int, int, int]]:
    """(producer, first offset, marker) of each aborted transaction that began here."""
    opened: dict[int, int] = {}
    aborted = set()
    for batch in batches:
        header = batch.header
        if header.is_control:
            first = opened.pop(header.producer_id, None)
            if first is not None and batch.is_abort:
                aborted.add((int(header.producer_id), first, batch.base))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, batch.base)
    return aborted


def survives(operation: F) -> F:
    """If the machine stops in the middle, start it again and check what it finds."""

    @functools.wraps(operation)
    def guarded(world: LogWorld, *args: Any, **kwargs: Any) -> None:
        try:
            operation(world, *args, **kwargs)
        except SimulatedCrash:
            world.crashes += 1
            if world.stays_down:
                raise
            world.restart(by_power_loss=world.loses_power)
        world.check()

    return cast(F, guarded)


class LogWorld:
    def __init__(self, config: TopicConfig, seed: int = 0, *, sector_bytes: int = 64) -> None:
        self.config = config
        self.random = SimRandom(seed)
        self.disk = SimDisk(sector_bytes=sector_bytes)
        self.now = int(NOW)
        self.epoch = 0
        self.crashes = 0
        self.loses_power = False
        self.stays_down = False
        """A crash is handed to the caller, who looks at several ways to go on from it."""
        self.batches: list[Stored] = []
        self.hw = 0
        self.log_start = 0
        self.guaranteed = 0
        """How far a flush was reported to be done, and must be found after any stop."""
        self.countable = 0
        """How far the log may count itself flushed; a truncation that was interrupted may have
        left more than is guaranteed."""
        self.flush: tuple[Flush, Steps[None]] | None = None
        self.flush_end = 0
        self._ever: set[bytes] = set()
        self._follows: set[tuple[bytes, bytes]] = set()
        self._lost_power = self._was_start_cut_short = False
        self._start()

    # --- what the model says -----------------------------------------------------------

    @property
    def end(self) -> int:
        return self.log.end_offset

    @property
    def producers(self) -> dict[int, Producer]:
        return producers_of(self.batches)

    def _note(self, data: bytes) -> Stored:
        """A batch is about to be written behind those that are there."""
        if self.batches:
            self._follows.add((self.batches[-1].data, data))
        self._ever.add(data)
        return Stored.of(data)

    # --- appending ---------------------------------------------------------------------

    def sequence_of(self, producer_id: int) -> int:
        entry = self.log.producers.states.entry(producer_id)
        return 0 if entry is None else entry.last_sequence + 1

    @survives
    def append(self, values: list[bytes], *, timestamp: int | None = None, **fields: Any) -> None:
        data = batch_of(values, timestamp=timestamp or self.now, **fields)
        self._append_batch(data)

    @survives
    def append_idempotent(
        self, producer_id: int, values: list[bytes], *, is_transactional: bool = False
    ) -> None:
        entry = self.log.producers.states.entry(producer_id)
        if entry is not None and entry.current_txn_first_offset is not None:
            is_transactional = True
        self._append_batch(
            batch_of(
                values,
                timestamp=self.now,
                producer_id=producer_id,
                producer_epoch=0 if entry is None else entry.epoch,
                base_sequence=self.sequence_of(producer_id),
                is_transactional=is_transactional,
            )
        )

    def _append_batch(self, data: bytes) -> None:
        stored = self._note(stamped(data, self.end, self.epoch))
        answer = self.log.append_as_leader(
            data, leader_epoch=LeaderEpoch(self.epoch), now_ms=TimestampMs(self.now)
        )
        assert answer == Appended(Offset(stored.base), Offset(stored.next - 1), TimestampMs(-1)), (
            answer
        )
        self.batches.append(stored)

    @survives
    def append_again(self, producer_id: int, back: int, *, after_refill: bool) -> None:
        """Resend one of a producer's last batches: it is found again, never written twice."""
        if after_refill:
            in_one_go(self.log.refill_producer_windows())
        known = self.producers.get(producer_id)
        if known is None or len(known.batches) <= back:
            return
        batch = known.batches[-1 - back]
        resent = stamped(batch.data, 0, -1)
        answer = self.log.append_as_leader(
            resent, leader_epoch=LeaderEpoch(self.epoch), now_ms=TimestampMs(self.now)
        )
        if isinstance(answer, Rejected) and back > 0 and not after_refill:
            assert answer.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return
        assert isinstance(answer, Appended), answer
        assert answer.is_duplicate
        assert (answer.base_offset, answer.last_offset) == (batch.base, batch.next - 1)

    @survives
    def end_txn(self, producer_id: int, *, commit: bool) -> None:
        entry = self.log.producers.states.entry(producer_id)
        producer_epoch = 0 if entry is None else entry.epoch
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = EndTxnMarker(kind, 0)  # type: ignore[arg-type]
        data = build_marker_batch(
            kind,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self.now,
            base_offset=self.end,
            leader_epoch=self.epoch,
        )
        stored = self._note(data)
        answer = self.log.append_marker(
            producer_id,  # type: ignore[arg-type]
            producer_epoch,  # type: ignore[arg-type]
            marker,
            leader_epoch=LeaderEpoch(self.epoch),
            now_ms=TimestampMs(self.now),
        )
        assert isinstance(answer, Appended), answer
        self.batches.append(stored)

    @survives
    def append_as_follower(self, groups: list[tuple[int, list[bytes]]], *, cut: int = 0) -> None:
        """Batches from a leader, each behind a gap of so many offsets; the last may be cut."""
        offset, chunk = self.end, []
        for gap, values in groups:
            offset += gap
            data = batch_of(values, timestamp=self.now, base_offset=offset, leader_epoch=self.epoch)
            chunk.append(data)
            offset += len(values)
        whole = chunk if cut == 0 else chunk[:-1]
        before = list(self.batches)
        for data in whole:
            self.batches.append(self._note(data))
        sent = b"".join(chunk)
        try:
            refused = self.log.append_as_follower(sent[: len(sent) - cut], TimestampMs(self.now))
        except SimulatedCrash:
            self.batches = before
            raise
        assert refused is None

    # --- flushing and checkpoints --------------------------------------------------------

    @survives
    def begin_flush(self) -> None:
        flush = self.log.begin_flush(TimestampMs(self.now))
        if self.flush is not None:
            assert flush is None, "two flushes at a time"
        elif flush is not None:
            self.flush = (flush, flush.steps(self.disk))
            self.flush_end = self.end

    @survives
    def step_flush(self) -> None:
        """One fsync; behind the last one the flush is done."""
        if self.flush is None:
            return
        flush, steps = self.flush
        try:
            next(steps)
        except StopIteration:
            self.flush = None
            end = self.log.complete_flush(flush)
            self.guaranteed = max(self.guaranteed, self.flush_end)
            self.countable = max(self.countable, self.flush_end)
            assert end >= self.flush_end

    def finish_flush(self) -> None:
        self.begin_flush()
        while self.flush is not None:
            self.step_flush()

    @survives
    def advance_high_watermark(self, offset: int) -> None:
        self.hw = self.log.advance_high_watermark(Offset(min(offset, self.log.flushed_end)))

    @survives
    def write_checkpoints(self, which: int = 7) -> None:
        if which & 1:
            self.directory.write_recovery_points()
        if which & 2:
            self.directory.write_log_starts()
        if which & 4:
            self.directory.write_high_watermarks()

    @survives
    def write_back(self) -> None:
        self.disk.write_back(self.random)

    # --- segments and cutting ------------------------------------------------------------

    @survives
    def roll(self) -> None:
        self.log.roll(self.log.end_offset, TimestampMs(self.now))

    @survives
    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(LeaderEpoch(self.epoch))

    @survives
    def truncate_to(self, offset: int) -> None:
        if offset >= self.end:
            assert not self.log.truncate_to(Offset(offset), TimestampMs(self.now))
            return
        origin = self.log.segments[0].base_offset
        kept = [batch for batch in self.batches if batch.next <= offset]
        floor = max([base for base in self.log.segments.bases if base <= offset], default=origin)
        end = max(floor, kept[-1].next if kept else 0)
        if offset < origin or end < self.log_start:
            self._truncate_fully(min(offset, self.log_start), lambda: self._truncate(offset))
            return
        self.guaranteed = min(self.guaranteed, end)
        self.flush_end = min(self.flush_end, end)
        self._truncate(offset)
        assert self.log.end_offset == end
        self.batches, self.hw = kept, min(self.hw, end)
        self.countable = min(self.countable, end)
        self.epoch += 1

    def _truncate(self, offset: int) -> None:
        assert self.log.truncate_to(Offset(offset), TimestampMs(self.now))

    @survives
    def restart_at(self, offset: int) -> None:
        self._truncate_fully(
            offset,
            lambda: self.log.truncate_fully_and_start_at(Offset(offset), TimestampMs(self.now)),
        )

    def _truncate_fully(self, offset: int, work: Callable[[], None]) -> None:
        self.guaranteed = self.flush_end = 0
        self.log_start = max(self.log_start, offset)  # in case it is interrupted
        work()
        assert (self.log.log_start, self.log.end_offset) == (offset, offset)
        self.batches, self.hw, self.log_start = [], offset, offset
        self.guaranteed = self.countable = offset
        self.epoch += 1

    @survives
    def raise_log_start(self, offset: int) -> None:
        offset = min(offset, self.hw)
        self.log_start = max(self.log_start, offset)
        self.log.raise_log_start(Offset(offset))

    @survives
    def retain(self, config: TopicConfig) -> None:
        """Retention under other settings, for once."""
        self.log_start = self.hw
        self.log.update_config(config)
        self.log.apply_retention(TimestampMs(self.now))
        self.log.update_config(self.config)
        self.log_start = self.log.log_start
        origin = self.log.segments[0].base_offset
        self.batches = [batch for batch in self.batches if batch.base >= origin]

    @survives
    def unlink_due(self) -> None:
        self.now += 2_000
        self.log.removal.unlink_due(TimestampMs(self.now))

    # --- stopping and starting -----------------------------------------------------------

    def crash_at(self, nth: int, *, landed_bytes: int = 0, loses_power: bool) -> None:
        """Let the machine stop before the ``nth`` change to the disk from here."""
        self.loses_power = loses_power
        self.disk.on_operation(CrashAt(nth, landed_bytes=landed_bytes))

    @survives
    def close(self) -> None:
        """A clean stop, and a start."""
        self._drop_flush()
        assert self.directory.close_cleanly(BrokerEpoch(1))
        self.guaranteed = self.countable = self.end
        self.disk = self.disk.kill()
        report = self._start()
        assert report.verdict is Verdict.CLEAN
        # What was on its way out goes now; nothing else needs a repair.
        leaving = (".deleted", "below the log start")
        assert all(any(word in repair for word in leaving) for repair in report.repairs)
        self._compare(report)

    def _drop_flush(self) -> None:
        """Let a flush that is under way come to its end, as a node does before it closes."""
        while self.flush is not None:
            self.step_flush()

    def after(self, disk: SimDisk, *, lost_power: bool) -> LogWorld:
        """The same past with another disk to wake up on; opened and compared."""
        other = copy.copy(self)
        other.batches = list(self.batches)
        other._ever, other._follows = set(self._ever), set(self._follows)
        other.flush, other.stays_down = None, False
        other.disk, other._lost_power = disk, lost_power
        other._was_start_cut_short = True  # perhaps: the stop may have come at any moment
        other._compare(other._start())
        other.check()
        return other

    def restart(self, *, by_power_loss: bool) -> None:
        """End the run as it is, start anew and compare."""
        self._stop(by_power_loss=by_power_loss)
        self._compare(self._start())

    def restart_with_crash(self, nth: int, *, by_power_loss: bool, again_by_power: bool) -> None:
        """Stop, and stop again in the middle of opening."""
        self._stop(by_power_loss=by_power_loss)
        self.disk.on_operation(CrashAt(nth))
        try:
            report = self._start()
        except BaseException as error:  # a group, if the crash came out of a task
            if not _is_crash(error):
                raise
            self.crashes += 1
            self._was_start_cut_short = True
            self._stop(by_power_loss=again_by_power)
            report = self._start()
        self.disk.on_operation(None)
        self._compare(report)
        self.check()

    def _stop(self, *, by_power_loss: bool) -> None:
        self.flush = None
        if by_power_loss:
            self._lost_power = True
            self.disk = self.disk.power_loss(self.random)
        else:
            self.disk = self.disk.kill()

    def _start(self) -> Report:
        self.directory: LogDirectory = open_dir(self.disk)
        reports = open_logs(self.directory, self.config, self.now)
        if not reports:
            create(self.directory, self.config, now_ms=self.now)
            reports = [Report(TP)]
        self.log: Log = self.directory.logs[TP]
        for _ in self.directory.forget_suspects():  # a node has told them by now
            pass
        return reports[0]

    # --- judging -------------------------------------------------------------------------

    def _compare(self, report: Report) -> None:
        """What was found, against what was promised; then the model goes on from there."""
        found = [Stored.of(data) for data in in_segments(self.log)]
        for batch in found:
            check_batch(batch.data)
            assert batch.data in self._ever, f"offset {batch.base} was never appended like this"
        live = [batch for batch in found if batch.next > self.log_start]
        for one, other in itertools.pairwise(live):
            # What compaction may have made is kept, but never taken for sound.
            is_told = other.base > one.next and self._tells_of_a_gap(report)
            assert is_told or (one.data, other.data) in self._follows, (
                f"a gap at {one.next}, or a mixture"
            )
        self._follows.update((one.data, other.data) for one, other in itertools.pairwise(found))
        self._check_guaranteed(live)
        assert self.log.log_start <= self.log_start
        self._check_verdict(report, found)
        self._lost_power = self._was_start_cut_short = False
        self.batches = found
        self.hw = self.log.high_watermark
        self.log_start = self.log.log_start
        self.guaranteed = min(self.guaranteed, self.log.end_offset)
        self.epoch += 1
        assert found == [] or self.log.end_offset == found[-1].next or self._ends_empty()
        assert report.end_offset == self.log.end_offset

    def _ends_empty(self) -> bool:
        active = self.log.segments.active
        return active.size == 0 and active.base_offset == self.log.end_offset

    def _check_guaranteed(self, live: list[Stored]) -> None:
        promised = [b.data for b in self.batches if self.log_start < b.next <= self.guaranteed]
        assert [b.data for b in live][: len(promised)] == promised, "flushed data is lost"

    def _check_verdict(self, report: Report, found: list[Stored]) -> None:
        if report.verdict is not Verdict.SUSPECT:
            return
        if self._tells_of_a_gap(report):
            return
        if any("by an earlier start" in line for line in report.repairs):
            assert self._was_start_cut_short, report.repairs
            return
        assert self._lost_power, f"suspect after a mere kill: {report.repairs}"
        kept = [line.rpartition(" ")[2] for line in report.repairs if line.startswith("kept")]
        end = Offset(report.end_offset - 1)
        assert any(self._has_sound_batch(path, end) for path in kept), report.repairs

    def _tells_of_a_gap(self, report: Report) -> bool:
        told = any("the next segment begins" in repair for repair in report.repairs)
        return self.config.is_compacted and told

    def _has_sound_batch(self, path: str, after: Offset) -> bool:
        file = self.disk.open(path, read_only=True)
        return find_sound_batch(file, 0, file.size(), after) is not None

    def check(self) -> None:
        """What holds after every operation."""
        log = self.log
        assert log.log_start <= log.last_stable_offset <= log.high_watermark <= log.end_offset
        assert log.recovery_point <= log.end_offset
        assert log.flushed_end <= self.countable, "counts what is not flushed"
        assert (log.high_watermark, log.log_start) == (self.hw, self.log_start)
        self._check_producers()
        self._check_epochs()

    def _check_producers(self) -> None:
        first = self.batches[0].base if self.batches else self.log.end_offset
        known = self.producers
        for entry in self.log.producers.states.entries():
            if entry.producer_id not in known:
                # Its batches went by retention; what a snapshot remembers may stay.
                assert (entry.last_data_offset or 0) < first
        for producer_id, expected in known.items():
            found = self.log.producers.states.entry(producer_id)
            if found is None:  # it may go with its last batch that can be read
                assert all(batch.next <= self.log_start for batch in expected.batches)
                continue
            assert found.epoch == expected.epoch
            if expected.batches:
                assert found.last_sequence == expected.last_sequence
                assert found.last_data_offset == expected.batches[-1].next - 1
            if expected.txn_first is not None:
                assert found.current_txn_first_offset is not None
                assert found.current_txn_first_offset <= expected.txn_first

    def _check_epochs(self) -> None:
        cache = self.log.epochs
        for batch in self.batches:
            if batch.base >= self.log_start:
                assert cache.epoch_for_offset(batch.base) == batch.header.leader_epoch
        starts = [entry.start_offset for entry in cache.entries]
        assert starts == sorted(set(starts))
        assert not starts or starts[-1] <= self.log.end_offset

    # --- reading -------------------------------------------------------------------------

    def check_read(self, offset: int, limit: int, max_bytes: int, *, whole_first: bool) -> None:
        answer = self.log.read(Offset(offset), Offset(limit), max_bytes, whole_first=whole_first)
        if not self.log_start <= offset <= self.end:
            assert answer is ErrorCode.OFFSET_OUT_OF_RANGE
            return
        assert isinstance(answer, LogRead), answer
        expected = self._expected_read(offset, limit)
        first = len(expected[0]) if expected else 0
        length = min(max(max_bytes, first) if whole_first else max_bytes, sum(map(len, expected)))
        data = b"" if answer.records is None else answer.records.read()
        assert data == b"".join(expected)[:length]
        if data and limit <= self.log.last_stable_offset:
            self._check_aborted(offset, answer, data)

    def _expected_read(self, offset: int, limit: int) -> list[bytes]:
        """The batches below ``limit``, from the one that holds ``offset``, of one segment."""
        if offset >= limit:
            return []
        wanted = [b for b in self.batches if b.next > offset and b.next <= limit]
        if not wanted:
            return []
        skipped = [b for b in self.batches if b.next > offset and b.base < wanted[0].base]
        if skipped:
            return []
        bases = [base for base in self.log.segments.bases if base > wanted[0].base]
        segment_end = bases[0] if bases else self.end
        return [b.data for b in wanted if b.base < segment_end]

    def _check_aborted(self, offset: int, answer: LogRead, data: bytes) -> None:
        ends = [header.next_offset for _, header in headers(data)]
        if not ends:
            return
        found = {
            (int(txn.producer_id), int(txn.first_offset), int(txn.last_offset))
            for txn in self.log.aborted_transactions(Offset(offset), answer)
        }
        known = aborted_of(self.batches)
        touched = {txn for txn in known if txn[2] >= offset and txn[1] < ends[-1]}
        assert touched <= found
        markers = {batch.base for batch in self.batches if batch.is_abort}
        assert {txn[2] for txn in found} <= markers

    def check_time(self, timestamp: int) -> None:
        found = self.log.find_by_time(TimestampMs(timestamp))
        expected = next(
            (
                record
                for batch in self.batches
                for record in batch.records
                if record[1] >= timestamp and record[0] >= self.log_start
            ),
            None,
        )
        assert (None if found is None else (found.offset, found.timestamp)) == expected

    def check_all_reads(self) -> None:
        live = [batch for batch in self.batches if batch.next > self.log_start]
        assert served(self.log) == [batch.data for batch in live]
        for batch in live:
            self.check_read(batch.base, self.end, 1, whole_first=True)
            self.check_read(max(batch.next - 1, self.log_start), self.end, 300, whole_first=False)
            self.check_time(batch.header.max_timestamp)
        self.check_read(self.log_start, self.log.last_stable_offset, 10**6, whole_first=True)

    def files(self) -> list[str]:
        return self.disk.list_dir(PARTITION)


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_crash(inner) for inner in error.exceptions)
    return isinstance(error, SimulatedCrash)
