"""A topic that is filled, copiers that copy it in transactions, a reader of what they committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.chaos.workloads.copier import CALLS_S, Copier
from tidelog.chaos.workloads.groups import CommitWatch, wait_until_committed
from tidelog.chaos.workloads.patience import Patience
from tidelog.chaos.workloads.reader import LiveReader, read_everything
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, Workload
from tidelog.chaos.workloads.writer import Writer

_PARTITIONS: Final = 3
_COPIERS: Final = 2
_SHARE_OF_RATE: Final = 0.25
"""A copied record is written twice and read three times."""


class Copying(Workload):
    name = "copier"

    def __init__(self, stage: Stage) -> None:
        prefix = stage.topic_prefix
        self._stage = stage
        self._input = TopicPlan(f"{prefix}copier-input", _PARTITIONS)
        self._output = TopicPlan(f"{prefix}copier-output", _PARTITIONS)
        self._group = f"{prefix}copiers"
        rate = max(1.0, stage.rate * _SHARE_OF_RATE)
        self._writer = Writer(stage, self._input, "feeder", rate=rate)
        self._copiers = [
            Copier(stage, self._input, self._output, self._group, f"copier-{number}")
            for number in range(1, _COPIERS + 1)
        ]
        self._reader = LiveReader(stage, self._output, "output-reader")
        self._watch = CommitWatch(stage, self._input, self._group)

    @property
    def topics(self) -> Sequence[TopicPlan]:
        return (self._input, self._output)

    @property
    def groups(self) -> Sequence[str]:
        return (self._group,)

    @property
    def workers(self) -> Sequence[Worker]:
        return (self._writer, *self._copiers, self._reader, self._watch)

    def stop(self, patience_s: float) -> None:
        patience = Patience(patience_s)
        self._writer.finish(patience.left_s)
        if not wait_until_committed(self._stage, self._input, [self._watch], patience.left_s):
            self._stage.recorder.note("not all of the input was copied when the run ended")
        for copier in self._copiers:
            copier.stopping.set()
        for copier in self._copiers:
            copier.finish(patience.left_s + CALLS_S)
        self._reader.finish(patience.left_s)
        self._watch.finish(patience.left_s)

    def read_back(self, patience_s: float) -> None:
        read_everything(self._stage, self.topics, patience_s)
