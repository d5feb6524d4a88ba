"""``readStream.format("tidelog")``: the driver's side of a stream.

One object of this lives in a process beside the driver as long as the query does; executors have
copies that only read. Offsets are in Spark's checkpoint; nothing is committed to a group.

Spark asks for the initial offset again when it repeats a first batch that did not end. What it
was then is therefore kept in the end of that batch (``positions.FIRST_START``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.pipeline import planner
from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.positions import (
    EARLIEST,
    LATEST,
    Offsets,
    Place,
    from_json,
    planned_start,
    to_json,
    with_first_start,
)
from tidelog.pipeline.source import RangePartition, read_range
from tidelog.pipeline.source_options import ByOffset, SourceOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._open_cluster: Cluster | None = None
        self._initial: dict[str, Any] | None = None
        self._target: dict[Place, int] | None = None
        """Where a query that reads what is available now ends."""
        self._last_batch_ms: int | None = None
        self._last_latest: dict[Place, int] | None = None

    # --- what Spark asks on the driver --------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            places = self._cluster.places(self._options.selection, must_exist=True)
            start = self._options.start
            offsets = planner.resolve(start, places, self._cluster.offsets, "starting")
            if isinstance(start, ByOffset) and start.everywhere == LATEST and self._target:
                # The latest of when the query began, which was a moment ago.
                offsets = {place: self._target.get(place, end) for place, end in offsets.items()}
            self._initial = to_json(offsets)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = from_json(start)
        latest = self._latest() if self._target is None else self._target
        self._last_latest = latest
        self._fail_if_lost(planner.losses(known, latest))
        begin = {**known, **self._starts_of_new(known, latest)}
        if self._is_too_little(planner.backlog(begin, latest)):
            return start
        end = planner.limited_end(
            begin, latest, limit.max_rows if isinstance(limit, ReadMaxRows) else None
        )
        if start == self._initial:
            # Also if there is nothing to read: Spark runs a first batch all the same.
            self._last_batch_ms = _now_ms()
            return with_first_start(to_json(end), start)
        if end == known:
            return start
        self._last_batch_ms = _now_ms()
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._last_latest is None else to_json(self._last_latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        known, until = planned_start(start, end), from_json(end)
        begin = {**known, **self._starts_of_new(known, until)}
        ranges, problems = planner.ranges_between(begin, until)
        self._fail_if_lost(problems)
        tasks = planner.split(
            ranges, self._options.min_partitions, self._options.max_records_per_partition
        )
        return [RangePartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint has it."""

    def stop(self) -> None:
        if self._open_cluster is not None:
            self._open_cluster.close()
            self._open_cluster = None

    # --- on executors -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)

    # --- within -------------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster:
        if self._open_cluster is None:
            options = self._options
            self._open_cluster = Cluster(options, read_committed=options.read_committed)
        return self._open_cluster

    def _latest(self) -> dict[Place, int]:
        places = self._cluster.places(self._options.selection, must_exist=False)
        return self._cluster.offsets(dict.fromkeys(places, LATEST))

    def _starts_of_new(self, known: Offsets, there: Offsets) -> dict[Place, int]:
        """Partitions that appeared since are read from their beginning."""
        new = there.keys() - known.keys()
        starts = self._cluster.offsets(dict.fromkeys(new, EARLIEST))
        self._fail_if_lost(planner.late_starts(starts))
        return starts

    def _is_too_little(self, waiting: int) -> bool:
        return self._target is None and planner.should_wait(
            waiting,
            self._options.min_offsets_per_trigger,
            _now_ms(),
            self._last_batch_ms,
            self._options.max_trigger_delay_ms,
        )

    def _fail_if_lost(self, problems: list[str]) -> None:
        planner.raise_if_lost(problems, fail_on_data_loss=self._options.fail_on_data_loss)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
