"""Asks the cluster several times a second who leads what, and notes every change.

A second without a change is noted too, so that a chart of it has no holes.
"""

from __future__ import annotations

from typing import Final

from tidelog.chaos.faults.view import AdminView
from tidelog.chaos.history import Sample
from tidelog.chaos.recorder import Recorder
from tidelog.chaos.workloads.stage import Worker

_PERIOD_S: Final = 0.25
_ASK_S: Final = 0.5
_ALIVE_EVERY: Final = 4
"""Who is alive and who is the controller changes less, and shows in the leaders."""


class Sampler(Worker):
    def __init__(self, bootstrap: str, topics: list[str], recorder: Recorder) -> None:
        super().__init__("sampler")
        self._view = AdminView(bootstrap, topics, timeout_s=_ASK_S)
        self._recorder = recorder
        self._noted: Sample | None = None
        self.latest: Sample | None = None

    def work(self) -> None:
        turn = 0
        try:
            while not self.stopping.is_set():
                self._look(is_full=turn % _ALIVE_EVERY == 0)
                turn += 1
                self.stopping.wait(_PERIOD_S)
        finally:
            self._view.close()

    def _look(self, *, is_full: bool) -> None:
        last = self.latest
        partitions = tuple(self._view.partitions())
        if is_full or last is None:
            controller, alive = self._view.controller(), tuple(self._view.alive())
        else:
            controller, alive = last.controller, last.alive
        sample = Sample(self._recorder.now_ms(), controller, alive, partitions)
        self.latest = sample
        if self._is_worth_a_line(sample):
            self._noted = sample
            self._recorder.add(sample)

    def _is_worth_a_line(self, sample: Sample) -> bool:
        noted = self._noted
        if noted is None or sample.at_ms - noted.at_ms >= 1_000:
            return True
        return (noted.controller, noted.alive, noted.partitions) != (
            sample.controller,
            sample.alive,
            sample.partitions,
        )
