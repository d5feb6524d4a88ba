"""Numbered records of many keys, written by two idempotent producers and read all along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.chaos.workloads.patience import Patience
from tidelog.chaos.workloads.reader import LiveReader, read_everything
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, Workload
from tidelog.chaos.workloads.writer import writers

_PARTITIONS: Final = 3
_WRITERS: Final = 2


class Append(Workload):
    name = "append"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._topic = TopicPlan(f"{stage.topic_prefix}events", _PARTITIONS)
        self._writers = writers(stage, self._topic, "writer", _WRITERS, stage.rate)
        self._reader = LiveReader(stage, self._topic, "live-reader")

    @property
    def topics(self) -> Sequence[TopicPlan]:
        return (self._topic,)

    @property
    def workers(self) -> Sequence[Worker]:
        return (*self._writers, self._reader)

    def stop(self, patience_s: float) -> None:
        patience = Patience(patience_s)
        for writer in self._writers:
            writer.stopping.set()
        for writer in self._writers:
            writer.finish(patience.left_s)
        self._reader.finish(patience.left_s)

    def read_back(self, patience_s: float) -> None:
        read_everything(self._stage, self.topics, patience_s)
