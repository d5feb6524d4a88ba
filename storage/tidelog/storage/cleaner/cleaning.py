"""One pass of the cleaner over one log.

Theory: the pass has two halves. First the dirty part is read and the newest offset of each of its
keys put into a map. Then all segments from the log's start to the end of what the map speaks for
are rewritten without what is older, neighbours that have become small in one. Each new segment is
swapped in as soon as it is complete, so that no more than one is ever there twice.

What takes long is ``Rewriting``: it runs as steps for an ``Offload`` (``work``), or in another
process, from which the results come (``told``). What changes the log (``swap``) happens on the
log's own thread, after a look whether the segments are still the ones that were read. A truncation
or deletion that forgot to abort the pass costs the pass and nothing else.

Whatever goes wrong, the log is as before or has some segments cleaned; both hold the same newest
records. The clean point moves only when all of it is done.

Owner: whoever made it, on the event loop. Calls alternate: ``work`` to its end, then ``swap`` (or
``begin_swap`` and what follows it) if it returned True, and ``conclude`` if it returned False.
``abort`` at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import Disk, Random, Steps, in_one_go
from tidelog.storage.atomic import DISK_FULL
from tidelog.storage.cleaner.engine import LastOfProducer, PassInputs, Source
from tidelog.storage.cleaner.facts import log_facts, segment_facts
from tidelog.storage.cleaner.output import remove_cleaned
from tidelog.storage.cleaner.plan import CleaningPlan, plan_cleaning
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.rewriting import Rewriting
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import Log
from tidelog.storage.names import LOG_SUFFIX
from tidelog.storage.segment import Segment

NO_FLOOR: Final = Offset(2**63 - 1)
"""Tombstones and markers go when their own time is over, as in Kafka, whatever other replicas
hold. Safe only for a log that has no other replica."""

SECRET_BYTES: Final = 32


class LogCleaner:
    """The cleaner of one log, for its owner."""

    def __init__(self, disk: Disk, log: Log, settings: CleanerSettings, random: Random) -> None:
        self._disk = disk
        self._log = log
        self._settings = settings
        self._random = random

    def plan(
        self,
        now_ms: TimestampMs,
        clean_point: Offset | None,
        *,
        uncleanable: str | None = None,
        is_paused: bool = False,
        is_wanted: bool = False,
    ) -> CleaningPlan:
        """What a pass would cover, whether it is due, and what holds the rest back."""
        facts = log_facts(
            self._disk,
            self._log,
            clean_point=clean_point,
            uncleanable=uncleanable,
            is_paused=is_paused,
            is_wanted=is_wanted,
        )
        return plan_cleaning(facts, now_ms)

    def begin(self, plan: CleaningPlan, now_ms: TimestampMs, *, clean_floor: Offset) -> Cleaning:
        """A pass by a plan that was just made.

        ``clean_floor`` is the offset up to which every replica that counts has cleaned
        (``NO_FLOOR`` if there is no other): tombstones and markers at or above it stay.
        ``CorruptIndex`` or ``MalformedBatch`` if the log cannot even be looked at.
        """
        return Cleaning(
            self._disk, self._log, plan, self._settings, self._random, now_ms, clean_floor
        )


class Cleaning:
    """See the module. Made by ``LogCleaner.begin``."""

    def __init__(
        self,
        disk: Disk,
        log: Log,
        plan: CleaningPlan,
        settings: CleanerSettings,
        random: Random,
        now_ms: TimestampMs,
        clean_floor: Offset,
    ) -> None:
        self._disk = disk
        self._log = log
        self._now_ms = now_ms
        end = plan.first_uncleanable
        self._waiting = [segment for segment in log.segments if segment.base_offset < end]
        """The segments that were planned with and are not swapped yet, …"""
        self._sizes = [segment.size for segment in self._waiting]
        """… as large as they were."""
        self.inputs = PassInputs(
            tp=log.tp,
            directory=log.directory,
            config=log.config,
            settings=settings,
            now_ms=now_ms,
            first_dirty=plan.first_dirty,
            first_uncleanable=plan.first_uncleanable,
            clean_floor=clean_floor,
            sources=_sources(disk, log, plan),
            aborted=[txn for segment in log.segments for txn in segment.txn_index.all()],
            producers={
                entry.producer_id: LastOfProducer(entry.epoch, entry.last_data_offset)
                for entry in log.producers.states.entries()
            },
            secret=random.randbytes(SECRET_BYTES),
        )
        self.abort_reason: str | None = None
        self._rewriting = Rewriting(disk, self.inputs)
        self._replaced = 0
        """How many of the waiting segments the finished one stands for."""

    @property
    def report(self) -> CleaningReport:
        return self._rewriting.report

    def abort(self, reason: str) -> None:
        """Stop at the next step. What was swapped in stays."""
        self.abort_reason = self.abort_reason or reason
        self._rewriting.abort(self.abort_reason)

    # --- off the loop ------------------------------------------------------------------

    def work(self) -> Steps[bool]:
        """Up to the next complete segment: True if there is one, to be given to ``swap``.

        An ``OSError`` that is not a full disk is the directory's end and comes through.
        """
        self._replaced = 0
        self._replaced = yield from self._rewriting.work()
        return self._replaced > 0

    def told(self, replaced: int, report: Mapping[str, object]) -> None:
        """What the same work has come to in another process."""
        self._replaced = replaced
        self.report.take_over(report)

    def give_up(self, outcome: Outcome, reason: str) -> None:
        """End the pass; what was written and not swapped in is removed."""
        self._replaced = 0
        self.report.outcome, self.report.reason = outcome, reason
        self._rewriting.discard()
        if self._waiting:
            remove_cleaned(self._disk, self._log.directory, self._waiting[0].base_offset)

    # --- on the loop -------------------------------------------------------------------

    def swap(self) -> None:
        """All of the swap on the spot."""
        if self.begin_swap():
            self._log.finish_swap()

    def begin_swap(self) -> bool:
        """Put the new segment in the place of those it was made from, if they are still there.

        If True is returned, ``sync_swap`` and ``advance_swap`` are due until the latter returns
        False.
        """
        count = self._replaced
        if not count:
            raise ValueError(f"{self._log.tp}: there is no segment to swap in")
        changed = self.abort_reason or self._what_changed()
        if changed is None and self._is_moved(self.inputs.sources, count):
            changed = "the log was deleted"
        if changed is not None:
            self.give_up(Outcome.ABORTED, changed)
            return False
        try:
            self._log.begin_swap(self._waiting[:count], self._now_ms)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.give_up(Outcome.DISK_FULL, str(error))
            return False
        del self._waiting[:count], self._sizes[:count]
        self._replaced = 0
        return True

    def sync_swap(self) -> Steps[None]:
        """Off the loop. Whoever runs it tells the outcome to ``advance_swap``."""
        return self._log.sync_swap()

    def advance_swap(self, failure: OSError | None = None) -> bool:
        """``SwapFailed`` if the disk failed in the middle; False if all is done."""
        if failure is not None:
            raise self._log.swap_failed(failure) from failure
        self._log.advance_swap()
        return self._log.is_swapping

    def _what_changed(self) -> str | None:
        """Why the log is not the one that was read, if it is not."""
        log = self._log
        if log.failure is not None:
            return log.failure
        if not log.config.is_compacted:
            return "the topic is not compacted any more"
        is_same = log.segments.holds(self._waiting) and all(
            segment.size == size and not segment.is_active
            for segment, size in zip(self._waiting, self._sizes, strict=True)
        )
        return None if is_same else "the log was truncated, or deleted from, meanwhile"

    def _is_moved(self, sources: Sequence[Source], count: int) -> bool:
        """Whether the directory is not the log's any more: the topic was deleted."""
        first = len(sources) - len(self._waiting)
        group = sources[first : first + count]
        stats = [self._disk.stat(source.path) for source in group]
        return any(
            stat is None or stat.size != source.facts.size
            for stat, source in zip(stats, group, strict=True)
        )

    def conclude(self) -> CleaningReport:
        """Due when ``work`` has returned False: what came of the pass.

        What was read while the log was being cut says nothing about the log.
        """
        report = self.report
        if report.outcome is Outcome.UNCLEANABLE and self._waiting:
            changed = self._what_changed()
            if changed is not None:
                report.outcome, report.reason = Outcome.ABORTED, changed
        return report

    def run_here(self) -> CleaningReport:
        """The whole pass on the spot, for tools and tests."""
        while in_one_go(self.work()):
            self.swap()
        return self.conclude()


def _sources(disk: Disk, log: Log, plan: CleaningPlan) -> list[Source]:
    facts = segment_facts(disk, log.segments, log.end_offset)
    return [
        Source(segment.path(LOG_SUFFIX), known, _dirty_position(segment, plan.first_dirty))
        for segment, known in zip(log.segments, facts, strict=True)
        if known.base_offset < plan.first_uncleanable
    ]


def _dirty_position(segment: Segment, first_dirty: Offset) -> int:
    return segment.position_of(first_dirty) if first_dirty > segment.base_offset else 0
