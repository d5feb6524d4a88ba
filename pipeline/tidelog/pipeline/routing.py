"""Rows to places, and how many of them wait there before they go out as a batch.

Both are pure: how many partitions a topic has, and what time it is, comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from tidelog.pipeline.errors import WrongRows
from tidelog.pipeline.outgoing_rows import Rows, bytes_and_starts, joined, lengths_of, rows_of
from tidelog.pipeline.partitioner import partitions_of_keys, refuse_partitions
from tidelog.pipeline.positions import Place
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.varint_columns import Int64s

_NO_PARTITION: Final = -1


class Router:
    """``first``: where rows without a key begin; tasks begin at different places."""

    def __init__(self, topic: str | None, count_of: Callable[[str], int], first: int) -> None:
        self._topic = topic
        self._count_of = count_of
        self._first = first
        self._sticky: dict[str, int] = {}

    def route(self, batch: Any, now_ms: int) -> Iterator[tuple[Place, Rows]]:
        """Of a ``pa.RecordBatch``; rows of one place keep their order."""
        rows = rows_of(batch, now_ms)
        given = batch.column("partition") if "partition" in batch.schema.names else None
        for topic, members in self._by_topic(batch):
            partitions = self._partitions(topic, rows, given, members)
            order = np.argsort(partitions, kind="stable")
            ordered = partitions[order]
            bounds = np.flatnonzero(np.diff(ordered)) + 1
            if not bounds.size and len(members) == len(rows):
                yield (topic, int(ordered[0])), rows
                continue
            sorted_rows = rows.take(members[order])
            edges = [0, *bounds.tolist(), len(ordered)]
            for start, stop in pairwise(edges):
                yield (topic, int(ordered[start])), sorted_rows.between(start, stop)

    def advance(self, place: Place) -> None:
        """A batch of it went out: rows without a key go elsewhere from now on."""
        topic, partition = place
        if self._sticky.get(topic) == partition:
            self._sticky[topic] = (partition + 1) % self._count_of(topic)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Int64s]]:
        if not batch.num_rows:
            return
        if self._topic is not None:
            yield self._topic, np.arange(batch.num_rows, dtype=np.int64)
            return
        column = batch.column("topic")
        if column.null_count:
            raise WrongRows("a row has no topic: the column topic is null, and no option gives one")
        encoded = pc.dictionary_encode(column)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code)

    def _partitions(self, topic: str, rows: Rows, given: Any, members: Int64s) -> Int64s:
        count = self._count_of(topic)
        chosen = np.full(len(members), _NO_PARTITION, np.int64)
        if rows.keys is not None:
            blob, starts = bytes_and_starts(rows.keys)
            lengths = lengths_of(rows.keys)
            chosen = partitions_of_keys(blob, starts[members], lengths[members], count)
        if given is not None:
            named = np.asarray(pc.is_valid(given).to_numpy(zero_copy_only=False))[members]
            wanted = np.asarray(pc.fill_null(given, 0).to_numpy(zero_copy_only=False), np.int64)[
                members
            ]
            refuse_partitions(topic, wanted[named], count)
            chosen[named] = wanted[named]
        without = chosen == _NO_PARTITION
        if without.any():
            chosen[without] = self._sticky.setdefault(topic, self._first % count)
        return chosen


class Gathering:
    """Rows that wait for more of their place."""

    def __init__(self, batch_bytes: int, linger_ms: int, max_record_bytes: int) -> None:
        self._batch_bytes = batch_bytes - HEADER_SIZE
        self._linger_ms = linger_ms
        self._max_record_bytes = max_record_bytes
        self._parts: dict[Place, list[Rows]] = {}
        self._bytes: dict[Place, int] = {}
        self._since_ms: dict[Place, int] = {}

    def add(self, place: Place, rows: Rows, now_ms: int) -> None:
        largest = int(rows.sizes.max()) + HEADER_SIZE
        if largest > self._max_record_bytes:
            raise WrongRows(
                f"a row for {place[0]}-{place[1]} takes {largest} bytes, and the most is "
                f"{self._max_record_bytes} (kafka.max.request.size)"
            )
        self._parts.setdefault(place, []).append(rows)
        self._bytes[place] = self._bytes.get(place, 0) + int(rows.sizes.sum())
        self._since_ms.setdefault(place, now_ms)

    def full(self, now_ms: int) -> Iterator[tuple[Place, Rows]]:
        """What makes whole batches, and all that has waited long enough."""
        for place in list(self._parts):
            is_late = now_ms - self._since_ms[place] >= self._linger_ms
            if is_late or self._bytes[place] >= self._batch_bytes:
                yield from self._cut(place, keep_rest=not is_late, now_ms=now_ms)

    def rest(self) -> Iterator[tuple[Place, Rows]]:
        for place in list(self._parts):
            yield from self._cut(place, keep_rest=False, now_ms=0)

    def _cut(self, place: Place, *, keep_rest: bool, now_ms: int) -> Iterator[tuple[Place, Rows]]:
        rows = joined(self._parts.pop(place))
        del self._bytes[place], self._since_ms[place]
        ends = np.cumsum(rows.sizes)
        start = 0
        while start < len(rows):
            base = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, base + self._batch_bytes, side="right"))
            stop = max(stop, start + 1)
            if stop == len(rows) and keep_rest and int(ends[-1]) - base < self._batch_bytes:
                self._parts[place] = [rows.between(start, stop)]
                self._bytes[place] = int(ends[-1]) - base
                self._since_ms[place] = now_ms
                return
            yield place, rows.between(start, stop)
            start = stop
