"""What can be seen of a run while it goes on. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from tidelog.chaos.history import PartitionState, Sample
from tidelog.chaos.recorder import Totals


@dataclass(frozen=True, slots=True)
class Status:
    phase: str
    """``preparing``, ``running``, ``healing``, …"""
    elapsed_s: float
    duration_s: float
    per_s: float
    """Acknowledged records in the last second or so."""
    totals: Totals
    fault: str
    """The one that acts; empty: calm."""
    faults_done: int
    faults_planned: int
    sample: Sample | None


class Progress(Protocol):
    """Shown to whoever waits; told several times a second."""

    def show(self, status: Status) -> None: ...

    def say(self, line: str) -> None:
        """Something that stays to be read."""
        ...


class Silence:
    """For tests and libraries."""

    def show(self, status: Status) -> None:
        return

    def say(self, line: str) -> None:
        return


class Throughput:
    """Acknowledgements per second, over a little more than the last second."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def per_s(self, now_s: float, acknowledged: int) -> float:
        self._counts.append((now_s, acknowledged))
        while len(self._counts) > 2 and now_s - self._counts[1][0] >= 1.0:
            self._counts.popleft()
        since_s, before = self._counts[0]
        return (acknowledged - before) / (now_s - since_s) if now_s > since_s else 0.0


def leaders_text(sample: Sample | None) -> str:
    """``events-0 1[123] events-1 2[23]``: partition, leader, nodes in sync."""
    if sample is None:
        return ""
    return "  ".join(
        f"{state.topic}-{state.partition} "
        f"{'–' if state.leader is None else state.leader}"
        f"[{','.join(map(str, sorted(state.isr)))}]"
        for state in sample.partitions
    )


def is_whole(sample: Sample | None, since_ms: float = 0.0) -> bool:
    """Every partition has a leader and all its replicas in sync, and not just before."""
    if sample is None or sample.at_ms < since_ms or not sample.partitions:
        return False
    return all(_lacks_nothing(state) for state in sample.partitions)


def _lacks_nothing(state: PartitionState) -> bool:
    return state.leader is not None and set(state.isr) == set(state.replicas)


def status_line(status: Status) -> str:
    """All of it in a line, for a log."""
    sample = status.sample
    controller = "?" if sample is None or sample.controller is None else str(sample.controller)
    sync = "all in sync" if is_whole(sample) else leaders_text(_lacking(sample))
    return (
        f"{status.elapsed_s:6.1f} s  {status.phase:<9} {status.per_s:6.0f}/s  "
        f"{status.totals.acknowledged} acknowledged, {status.totals.unknown} unknown  "
        f"controller {controller}  {sync}  "
        f"fault {status.faults_done}/{status.faults_planned}: {status.fault or 'none'}"
    )


def _lacking(sample: Sample | None) -> Sample | None:
    if sample is None:
        return None
    states = tuple(state for state in sample.partitions if not _lacks_nothing(state))
    return Sample(sample.at_ms, sample.controller, sample.alive, states)
