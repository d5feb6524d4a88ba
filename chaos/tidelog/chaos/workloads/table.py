"""A compacted topic: few keys, many values, tombstones; only the last value of a key must stay.

Segments are small and little dirt is enough, so that logs are cleaned while nodes are broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.chaos.workloads.patience import Patience
from tidelog.chaos.workloads.reader import LiveReader, read_everything
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, Workload
from tidelog.chaos.workloads.writer import Writer

_PARTITIONS: Final = 3
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "3000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
    "min.compaction.lag.ms": "0",
}
_SHARE_OF_RATE: Final = 0.5


class Table(Workload):
    name = "table"
    node_settings: Mapping[str, str] = {"log.cleaner.backoff.ms": "1000"}

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._topic = TopicPlan(f"{stage.topic_prefix}table", _PARTITIONS, _SETTINGS)
        self._writer = Writer(
            stage,
            self._topic,
            "table-writer",
            rate=max(1.0, stage.rate * _SHARE_OF_RATE),
            keys=150,
            value_bytes=400,
            tombstone_share=0.1,
        )
        self._reader = LiveReader(stage, self._topic, "table-reader")

    @property
    def topics(self) -> Sequence[TopicPlan]:
        return (self._topic,)

    @property
    def workers(self) -> Sequence[Worker]:
        return (self._writer, self._reader)

    def stop(self, patience_s: float) -> None:
        patience = Patience(patience_s)
        self._writer.finish(patience.left_s)
        self._reader.finish(patience.left_s)

    def read_back(self, patience_s: float) -> None:
        read_everything(self._stage, self.topics, patience_s)
