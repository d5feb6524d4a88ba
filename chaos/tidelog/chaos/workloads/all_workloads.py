"""The workloads by name, and the one that is two of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from tidelog.chaos.workloads.append import Append
from tidelog.chaos.workloads.copying import Copying
from tidelog.chaos.workloads.groups import Groups
from tidelog.chaos.workloads.patience import Patience
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, Workload
from tidelog.chaos.workloads.table import Table


class Mixed(Workload):
    """Append and copier together, each at half the rate."""

    name = "mixed"

    def __init__(self, stage: Stage) -> None:
        half = replace(stage, rate=stage.rate / 2)
        self._parts: Sequence[Workload] = (Append(half), Copying(half))

    @property
    def topics(self) -> Sequence[TopicPlan]:
        return [topic for part in self._parts for topic in part.topics]

    @property
    def groups(self) -> Sequence[str]:
        return [group for part in self._parts for group in part.groups]

    @property
    def workers(self) -> Sequence[Worker]:
        return [worker for part in self._parts for worker in part.workers]

    def stop(self, patience_s: float) -> None:
        patience = Patience(patience_s)
        for part in self._parts:
            part.stop(patience.left_s)

    def read_back(self, patience_s: float) -> None:
        for part in self._parts:
            part.read_back(patience_s)


@dataclass(frozen=True, slots=True)
class Row:
    doc: str
    make: Callable[[Stage], Workload]
    node_settings: Mapping[str, str]


WORKLOADS: Final[Mapping[str, Row]] = MappingProxyType({
    "append": Row(
        "Two idempotent producers write numbered records of 60 keys with acks=all; a reader "
        "follows.", Append, Append.node_settings,
    ),
    "copier": Row(
        "Two transactional copiers read one topic and write another; a reader sees what is "
        "committed.", Copying, Copying.node_settings,
    ),
    "groups": Row(
        "Members of two groups (classic and KIP-848) come and go while they read and commit.",
        Groups, Groups.node_settings,
    ),
    "table": Row(
        "A compacted topic of 150 keys with tombstones, cleaned all the time.",
        Table, Table.node_settings,
    ),
    "mixed": Row("append and copier together.", Mixed, Mixed.node_settings),
})  # fmt: skip
