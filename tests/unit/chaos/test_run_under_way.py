"""Faults begin when the workload is under way: on a cluster that only this test answers for.

Time goes on in ticks: whenever the run shows how far it is, one more thing happens to its clients.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog.chaos import run as running
from tidelog.chaos.faults.applying import AppliedFault
from tidelog.chaos.history import History, Operation, Outcome, PartitionState, Sample, Verb
from tidelog.chaos.history_file import read_history
from tidelog.chaos.recorder import Recorder
from tidelog.chaos.run_options import RunFailed, RunOptions
from tidelog.chaos.run_status import Silence, Status
from tidelog.chaos.workloads.all_workloads import Row
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, Workload

NEVER = 10**9


class Client(Worker):
    """Does nothing by itself."""

    def work(self) -> None:
        return


class Scripted(Workload):
    """Two partitions and a copier that begin to work when their tick has come."""

    name = "append"

    def __init__(self, stage: Stage, begins: Mapping[int, int], copier_at: int) -> None:
        self._recorder = stage.recorder
        self._begins, self._copier_at = begins, copier_at
        self._copier = Client("copier-1")
        self._ticks = 0

    @property
    def topics(self) -> Sequence[TopicPlan]:
        return [TopicPlan("events", len(self._begins))]

    @property
    def workers(self) -> Sequence[Worker]:
        return [self._copier]

    def tick(self) -> None:
        self._ticks += 1
        now_ms = self._recorder.now_ms()
        for partition, at in self._begins.items():
            if self._ticks >= at:
                self._append(partition, now_ms)
        if self._ticks == self._copier_at:
            self._copier.note_success()
            self._recorder.note("copier-1 has committed")

    def _append(self, partition: int, now_ms: float) -> None:
        self._recorder.operation(
            "writer", Verb.APPEND, now_ms, Outcome.OK, topic="events", partition=partition
        )

    def stop(self, patience_s: float) -> None:
        self._copier.finish(patience_s)

    def read_back(self, patience_s: float) -> None:
        return


class Whole:
    """A sampler, and a view, of a cluster that lacks nothing."""

    def __init__(self, bootstrap: str, topics: object, last: object) -> None:
        self._recorder = last

    @property
    def latest(self) -> Sample:
        assert isinstance(self._recorder, Recorder)
        state = PartitionState("events", 0, 1, 0, (1, 2, 3), (1, 2, 3))
        return Sample(self._recorder.now_ms() + 1, 1, (1, 2, 3), (state,))

    def start(self) -> None:
        return

    def finish(self, patience_s: float) -> None:
        return

    def close(self) -> None:
        return


class Unbroken:
    """A target whose faults do nothing."""

    name = "local"
    bootstrap = "127.0.0.1:1"
    nodes: Sequence[int] = (1, 2, 3)

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def heal_all(self) -> None:
        return

    def cannot(self, fault: str) -> str | None:
        return None

    def environment(self) -> Mapping[str, str]:
        return {}

    def log_dirs(self, node: int) -> Sequence[Path]:
        return []


class Ticking(Silence):
    def __init__(self) -> None:
        self.workload: Scripted | None = None

    def show(self, status: Status) -> None:
        if self.workload is not None:
            self.workload.tick()


def run_scripted(
    patch: pytest.MonkeyPatch,
    directory: Path,
    begins: Mapping[int, int],
    copier_at: int = 1,
    interrupted: threading.Event | None = None,
) -> History:
    ticking = Ticking()

    def make(stage: Stage) -> Workload:
        ticking.workload = Scripted(stage, begins, copier_at)
        return ticking.workload

    def hit(planned: Any, target: Any, view: Any) -> AppliedFault:
        return AppliedFault(planned.name, "nobody", ())

    patch.setattr(running, "WORKLOADS", {"append": Row("", make, {})})
    patch.setattr(running, "create_topics", lambda *_: None)
    patch.setattr(running, "Sampler", Whole)
    patch.setattr(running, "AdminView", Whole)
    patch.setattr(running, "apply", hit)
    patch.setattr(running, "_TICK_S", 0.001)
    counts = (("restart", 1),)
    options = RunOptions("append", ("restart",), 60.0, 1, calm_s=(0.0, 0.0), counts=counts)
    target: Any = Unbroken()
    return read_history(running.run(options, target, directory, ticking, interrupted).history)


def first_ms(history: History, partition: int) -> float:
    return min(_ended_ms(one) for one in history.operations if one.partition == partition)


def _ended_ms(operation: Operation) -> float:
    assert operation.ended_ms is not None
    return operation.ended_ms


def test_no_fault_comes_before_every_partition_was_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    history = run_scripted(monkeypatch, tmp_path, {0: 1, 1: 8})
    (fault,) = history.faults
    assert first_ms(history, 0) < first_ms(history, 1) < fault.began_ms


def test_no_fault_comes_before_every_client_was_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    history = run_scripted(monkeypatch, tmp_path, {0: 1, 1: 1}, copier_at=8)
    (committed,) = [one for one in history.notes if one.text == "copier-1 has committed"]
    (fault,) = history.faults
    assert committed.at_ms < fault.began_ms


@pytest.mark.parametrize(
    ("begins", "copier_at", "words"),
    [
        ({0: 1, 1: NEVER}, 1, "no write acknowledged of events-1$"),
        ({0: 1, 1: 1}, NEVER, "no success of copier-1$"),
        ({0: NEVER, 1: NEVER}, NEVER, "of events-0, events-1; no success of copier-1$"),
    ],
)
def test_a_workload_that_does_not_get_under_way_is_said(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    begins: Mapping[int, int],
    copier_at: int,
    words: str,
) -> None:
    monkeypatch.setattr(running, "_UNDER_WAY_S", 0.05)
    with pytest.raises(RunFailed, match=words) as failed:
        run_scripted(monkeypatch, tmp_path, begins, copier_at)
    assert "not under way after 0 s at 127.0.0.1:1" in str(failed.value)
    assert read_history(tmp_path / running.HISTORY_NAME).faults == ()


def test_nobody_waits_for_a_workload_when_the_run_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interrupted = threading.Event()
    interrupted.set()
    history = run_scripted(monkeypatch, tmp_path, {0: NEVER}, NEVER, interrupted)
    assert history.end is not None and history.end.was_interrupted
    assert history.faults == ()
