"""Compaction on a node: which log is next, and the passes that are under way (docs/COMPACTION.md).

One task looks at all compacted logs, lets the dirtiest be cleaned, and rests for
``log.cleaner.backoff.ms`` when none is due. A pass is a task of its own, at most
``log.cleaner.threads`` at a time; its heavy half runs in a process of its own, where there is one
to have, else beside the loop. Settings are read anew for every look, so a change of them counts
from the next pass on.

A pass is given up when its log is cut, when the replica changes its role, goes offline or leaves.
A log that leaves is moved away only after its pass has ended (``LogKeeper.passes``). What a pass
that was given up has swapped in stays; the clean point moves only with a pass that was not.

What a pass may drop is bounded by ``Partition.clean_floor`` (DESIGN 2.4).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import Offset, TimestampMs, TopicPartition
from tidelog.kernel.ports import Random, Workers
from tidelog.kernel.settings import Settings
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import ReplicaSet
from tidelog.storage.atomic import DISK_FULL
from tidelog.storage.cleaner.cleaning import Cleaning, LogCleaner
from tidelog.storage.cleaner.plan import CleaningPlan, choose
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.cleaner.shell import clean
from tidelog.storage.cleaner.states import CleaningStates
from tidelog.storage.cleaner.throttle import Throttle
from tidelog.storage.index import CorruptIndex
from tidelog.storage.swapping import SwapFailed
from tidelog.wire.errors import MalformedBatch

_log = logging.getLogger(__name__)

_LOGS_PER_TURN: Final = 64
_LEAST_REST_MS: Final = 10.0
_LONGEST_PAUSE_MS: Final = 1_000.0
_REST_AFTER_FAILURE_MS: Final = 1_000.0
"""A full disk, or a log that changes again and again, is no reason to hurry."""
_REST_AFTER_LOSS_MS: Final = 10_000.0
"""A process that was killed for want of memory would be killed again."""
_LEVELS: Final = {Outcome.UNCLEANABLE: logging.ERROR, Outcome.WORKER_LOST: logging.WARNING}
_UNREADABLE: Final = (CorruptIndex, MalformedBatch, ValueError)


@dataclass(slots=True)
class CleaningTotals:
    """Since the node started."""

    passes: int = 0
    aborted: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0
    tombstones_dropped: int = 0
    last_run_ms: TimestampMs = TimestampMs(0)


@dataclass(frozen=True, slots=True)
class CleaningView:
    """How one log stands with the cleaner, for whoever wants to know."""

    plan: CleaningPlan
    clean_floor: Offset
    is_in_progress: bool
    is_wanted: bool
    last: CleaningReport | None
    """Of the newest pass in this life of the node."""


@dataclass(slots=True)
class _Pass:
    partition: Partition
    cleaning: Cleaning
    abort_reason: str | None = None

    def abort(self, reason: str) -> None:
        self.abort_reason = self.abort_reason or reason
        self.cleaning.abort(reason)


class LogCleaners:
    """`run` until cancelled; then nothing is under way any more."""

    def __init__(
        self, replicas: ReplicaSet, random: Random, workers: Workers | None = None
    ) -> None:
        self.states = CleaningStates()
        self.totals = CleaningTotals()
        self._replicas = replicas
        self._random = random
        self._workers = workers
        self._clock = replicas.clock
        self._housekeeping = Housekeeping(replicas)
        self._passes: dict[PartitionRef, _Pass] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting_until_ms: dict[TopicPartition, float] = {}
        self._last: dict[PartitionRef, CleaningReport] = {}
        replicas.role_listeners.append(self._role_changed)

    # --- looking -----------------------------------------------------------------------

    def view(self, partition: Partition) -> CleaningView:
        """What a pass would do now, and why none is made. ``OSError`` if the disk is broken."""
        return CleaningView(
            self._plan(partition),
            partition.clean_floor(),
            partition.ref in self._passes,
            partition.is_cleaning_wanted,
            self._last.get(partition.ref),
        )

    def _cleaner(self, partition: Partition) -> LogCleaner:
        settings = CleanerSettings.of(self._replicas.broker_settings)
        return LogCleaner(self._replicas.ports.disk, partition.log, settings, self._random)

    def _plan(self, partition: Partition) -> CleaningPlan:
        tp = partition.log.tp
        return self._cleaner(partition).plan(
            self._clock.wall_ms(),
            partition.read_clean_point(),
            uncleanable=self.states.uncleanable(tp),
            is_paused=self.states.is_paused(tp),
            is_wanted=partition.is_cleaning_wanted,
        )

    # --- choosing ----------------------------------------------------------------------

    async def run(self) -> None:
        try:
            while True:
                settings = self._replicas.broker_settings
                if not (self._may_begin(settings) and await self._begin_one(settings)):
                    await self._retain()
                    await self._rest()
        finally:
            await self._end()

    def _may_begin(self, settings: Settings) -> bool:
        threads = settings.get_int("log.cleaner.threads")
        return settings.get_bool("log.cleaner.enable") and len(self._tasks) < threads

    async def _begin_one(self, settings: Settings) -> bool:
        """Let a pass begin over the log that needs it most; False if none does."""
        by_tp: dict[TopicPartition, Partition] = {}
        plans: list[CleaningPlan] = []
        for count, partition in enumerate(list(self._replicas.partitions.values())):
            if self._is_candidate(partition):
                plan = self._planned(partition)
                if plan is not None and plan.is_due:
                    plans.append(plan)
                    by_tp[plan.tp] = partition
            if count % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
        chosen = choose(plans)
        if chosen is None:
            return False
        partition = by_tp[chosen.tp]
        if not self._is_candidate(partition):
            return True  # it changed while the others were looked at
        self._begin(partition, settings)
        return True

    def _is_candidate(self, partition: Partition) -> bool:
        log = partition.log
        rests_until_ms = self._resting_until_ms.get(log.tp, 0.0)
        return (
            self._replicas.partitions.get(partition.ref) is partition
            and partition.failure is None
            and log.failure is None
            and log.config.is_compacted
            and len(log.segments) > 1
            and self.states.is_free(log.tp)
            and rests_until_ms <= self._clock.monotonic_ms()
        )

    def _planned(self, partition: Partition) -> CleaningPlan | None:
        try:
            return self._plan(partition)
        except OSError as error:
            self._replicas.log_failed(partition.log, f"looking at what to clean failed: {error}")
        except _UNREADABLE as error:
            self._give_up(partition, str(error))
        return None

    # --- a pass ------------------------------------------------------------------------

    def _begin(self, partition: Partition, settings: Settings) -> None:
        """Nothing awaits between the plan and the beginning of the pass."""
        plan = self._planned(partition)
        if plan is None or not plan.is_due:
            return
        now_ms = self._clock.wall_ms()
        try:
            cleaning = self._cleaner(partition).begin(
                plan, now_ms, clean_floor=partition.clean_floor()
            )
        except OSError as error:
            self._replicas.log_failed(partition.log, f"cleaning could not begin: {error}")
            return
        except _UNREADABLE as error:
            self._give_up(partition, str(error))
            return
        self.states.begin(plan.tp)
        one = self._passes[partition.ref] = _Pass(partition, cleaning)
        rate = settings.get_double("log.cleaner.io.max.bytes.per.second")
        throttle = Throttle(rate / max(1, settings.get_int("log.cleaner.threads")))
        task = asyncio.get_running_loop().create_task(
            self._clean(one, throttle), name=f"clean {plan.tp}"
        )
        self._tasks.add(task)
        self._replicas.keeper.passes[partition.log] = task

    def _give_up(self, partition: Partition, reason: str) -> None:
        tp = partition.log.tp
        _log.error("%s cannot be cleaned: %s", tp, reason)
        self.states.begin(tp)
        self.states.finished(
            CleaningReport(tp, partition.log.log_start, Outcome.UNCLEANABLE, reason)
        )

    async def _clean(self, one: _Pass, throttle: Throttle) -> None:
        log, report = one.partition.log, one.cleaning.report
        before = log.on_truncating

        def abort_first(tp: TopicPartition, end: Offset) -> None:
            one.abort("the log is being cut")
            if before is not None:
                before(tp, end)

        log.on_truncating = abort_first
        try:
            offload = self._replicas.ports.offload
            await clean(one.cleaning, offload, self._clock, throttle, self._workers)
            self._conclude(one, report)
        except (OSError, SwapFailed) as error:
            self._replicas.log_failed(log, f"cleaning failed: {error}")
        finally:
            log.on_truncating = before
            del self._passes[one.partition.ref]
            self._replicas.keeper.passes.pop(log, None)
            self._finish(one, report)

    def _conclude(self, one: _Pass, report: CleaningReport) -> None:
        partition = one.partition
        if one.abort_reason is not None:
            report.outcome, report.reason = Outcome.ABORTED, one.abort_reason
        if report.outcome is not Outcome.CLEANED or report.clean_point is None:
            return
        try:
            self._replicas.write_clean_point(partition.ref, report.clean_point)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            report.outcome, report.reason = Outcome.DISK_FULL, str(error)
            return
        first = report.first_held_back
        partition.held_back_to = Offset(0) if first is None else Offset(first + 1)

    def _finish(self, one: _Pass, report: CleaningReport) -> None:
        """Also of a pass that was torn off."""
        partition, tp = one.partition, one.partition.log.tp
        if report.outcome is None:
            report.outcome, report.reason = Outcome.ABORTED, "the pass was torn off"
        self.states.finished(report)
        self._count(report)
        if self._replicas.partitions.get(partition.ref) is not partition:
            self._forget(partition.ref, tp)
            return
        self._last[partition.ref] = report
        if report.outcome is Outcome.CLEANED and report.clean_point != report.first_dirty:
            _log.info(
                "%s was cleaned up to %s: %d of %d records stay, %d of %d bytes",
                tp, report.clean_point, report.records_kept, report.records_read,
                report.bytes_written, report.bytes_read,
            )  # fmt: skip
            partition.cleaned()
        else:
            level = _LEVELS.get(report.outcome, logging.INFO)
            _log.log(level, "%s: %s: %s", tp, report.outcome.value, report.reason)
            is_lost = report.outcome is Outcome.WORKER_LOST
            rest_ms = _REST_AFTER_LOSS_MS if is_lost else _REST_AFTER_FAILURE_MS
            self._resting_until_ms[tp] = self._clock.monotonic_ms() + rest_ms
        if partition.failure is None:
            self._housekeeping.retain(partition)

    def _count(self, report: CleaningReport) -> None:
        totals = self.totals
        totals.passes += 1
        totals.aborted += report.outcome is Outcome.ABORTED
        totals.bytes_read += report.bytes_read + report.bytes_mapped
        totals.bytes_written += report.bytes_written
        totals.last_run_ms = self._clock.wall_ms()
        if report.outcome is Outcome.CLEANED:
            totals.records_dropped += report.records_dropped
            totals.tombstones_dropped += report.tombstones_dropped

    # --- what happens meanwhile --------------------------------------------------------

    def _role_changed(self, ref: PartitionRef) -> None:
        one = self._passes.get(ref)
        if one is not None:
            one.abort("the replica has another role now")
        if ref not in self._replicas.partitions:
            last = self._last.get(ref)
            if last is not None:
                self._forget(ref, last.tp)

    def _forget(self, ref: PartitionRef, tp: TopicPartition) -> None:
        """Another log of this name starts with a clean sheet."""
        self._last.pop(ref, None)
        self._resting_until_ms.pop(tp, None)
        self.states.forget(tp)

    async def _retain(self) -> None:
        """Logs that are compacted and deleted from as well (``compact,delete``)."""
        for count, partition in enumerate(list(self._replicas.partitions.values())):
            if partition.failure is None and partition.log.config.is_compacted:
                self._housekeeping.retain(partition)
            if count % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _rest(self) -> None:
        """Until a pass has ended, or it is time to look again."""
        since_ms, is_over = self._clock.monotonic_ms(), False
        while not is_over:
            # Not in one piece: the setting may change meanwhile.
            backoff_ms = self._replicas.broker_settings.get_int("log.cleaner.backoff.ms")
            left_ms = since_ms + max(backoff_ms, _LEAST_REST_MS) - self._clock.monotonic_ms()
            pause_s = max(0.0, min(left_ms, _LONGEST_PAUSE_MS)) / 1000
            if self._tasks:
                when = asyncio.FIRST_COMPLETED
                done, _ = await asyncio.wait(self._tasks, timeout=pause_s, return_when=when)
                is_over = bool(done)
            else:
                await asyncio.sleep(pause_s)
            is_over = is_over or left_ms <= _LONGEST_PAUSE_MS
        self._collect()

    def _collect(self) -> None:
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            if not task.cancelled():
                task.result()  # a defect ends the node, loudly

    async def _end(self) -> None:
        for one in self._passes.values():
            one.abort("the node stops")
        if self._tasks:
            await asyncio.wait(self._tasks)
