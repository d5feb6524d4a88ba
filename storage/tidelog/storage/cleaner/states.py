"""Which logs the cleaner must leave alone, and why. Pure.

A pass over a log is *in progress*; whoever is about to truncate, delete or move the log, or to
change who leads it, *pauses* it: a pass that is in progress is to be aborted, and none begins until
as many have resumed as have paused. A log whose bytes made a pass fail is *uncleanable* until it
is deleted or the node starts again: trying again would fail again, and the others have to go on.
"""

from __future__ import annotations

from tidelog.kernel.ids import TopicPartition
from tidelog.storage.cleaner.report import CleaningReport, Outcome


class CleaningStates:
    """Of one node; owned by whoever schedules its cleaner."""

    __slots__ = ("_in_progress", "_paused", "_uncleanable")

    def __init__(self) -> None:
        self._in_progress: set[TopicPartition] = set()
        self._paused: dict[TopicPartition, int] = {}
        self._uncleanable: dict[TopicPartition, str] = {}

    def begin(self, tp: TopicPartition) -> None:
        if tp in self._in_progress:
            raise ValueError(f"{tp}: a pass is in progress already")
        if not self.is_free(tp):
            raise ValueError(f"{tp}: {self.uncleanable(tp) or 'cleaning is paused'}")
        self._in_progress.add(tp)

    def finished(self, report: CleaningReport) -> None:
        """The pass came to an end, whatever its outcome; told once for each ``begin``."""
        self._in_progress.remove(report.tp)
        if report.outcome is Outcome.UNCLEANABLE:
            self._uncleanable[report.tp] = report.reason

    def pause(self, tp: TopicPartition) -> bool:
        """Let no pass begin until ``resume``; True if one is in progress, and to be aborted."""
        self._paused[tp] = self._paused.get(tp, 0) + 1
        return tp in self._in_progress

    def resume(self, tp: TopicPartition) -> None:
        pauses = self._paused.get(tp, 0)
        if pauses == 0:
            raise ValueError(f"{tp}: cleaning is not paused")
        if pauses == 1:
            del self._paused[tp]
        else:
            self._paused[tp] = pauses - 1

    def forget(self, tp: TopicPartition) -> None:
        """The log is deleted; another of the same name starts with a clean sheet."""
        self._paused.pop(tp, None)
        self._uncleanable.pop(tp, None)

    def is_free(self, tp: TopicPartition) -> bool:
        """Whether a pass may begin."""
        return not (tp in self._in_progress or tp in self._paused or tp in self._uncleanable)

    def is_in_progress(self, tp: TopicPartition) -> bool:
        return tp in self._in_progress

    def is_paused(self, tp: TopicPartition) -> bool:
        return tp in self._paused

    def uncleanable(self, tp: TopicPartition) -> str | None:
        """Why a pass over the log failed, if one did."""
        return self._uncleanable.get(tp)

    @property
    def uncleanable_logs(self) -> dict[TopicPartition, str]:
        return {tp: self._uncleanable[tp] for tp in sorted(self._uncleanable)}
