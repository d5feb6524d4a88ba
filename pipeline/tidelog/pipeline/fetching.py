"""One task's records: fetches in order, decoded to Arrow while the next one is on its way.

The next fetch starts where the last whole batch ended, which is known before anything is decoded;
so it is sent first. A leader that changed, a broker that went away: the position is kept, the rest
is asked of the new leader.

A range ends at an offset that existed when it was planned. If the log ends before it, or begins
after its start, records are gone: an error, or (``failOnDataLoss=false``) a gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.arrow_records import ArrowRecords, Bools
from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.connection import NO_ANSWER, Connection
from tidelog.pipeline.errors import (
    BrokerRefused,
    BrokerUnavailable,
    CorruptData,
    DataLoss,
)
from tidelog.pipeline.fetch_message import VERSION, Fetched, fetch_body, read_fetched
from tidelog.pipeline.joined_batches import JoinedColumns
from tidelog.pipeline.planner import OffsetRange, dashed
from tidelog.pipeline.source_options import SourceOptions
from tidelog.pipeline.visibility import Visibility
from tidelog.wire.batch import BatchHeader, check_batch, headers
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.protocol.apis import ApiKey

_MAX_WAIT_MS: Final = 500
_PAUSE_S: Final = 0.1


class RangeReader:
    """``read`` once. Owner: the task."""

    def __init__(
        self,
        options: SourceOptions,
        wanted: OffsetRange,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._place = wanted.topic, wanted.partition
        self._monotonic = monotonic
        self._sleep = sleep
        self._cluster = Cluster(
            options,
            read_committed=options.read_committed,
            monotonic=monotonic,
            sleep=sleep,
        )
        self._leader: Connection | None = None
        self._position = wanted.start
        """The first offset that is not fetched yet."""
        self._progress_s = monotonic()
        self._records = ArrowRecords(
            wanted.topic,
            wanted.partition,
            include_headers=options.include_headers,
            include_value=options.include_value,
            columns=options.columns,
            wanted=self._is_wanted,
            on_damage=self._on_damage,
        )
        self._first_wanted = wanted.start
        """A fetch may bring a batch that begins before the offset that was asked for."""

    def read(self) -> Iterator[Any]:
        """``pyarrow.RecordBatch`` objects in the order of the log."""
        try:
            while self._position < self._wanted.end:
                fetched = self._next_fetch()
                if fetched is not None:
                    yield from self._arrow_of(fetched)
                    if len(fetched[1].records):
                        # What the query took for these does not count against the brokers.
                        self._progress_s = self._monotonic()
            yield from self._taken()
        finally:
            self._cluster.close()

    # --- fetching ----------------------------------------------------------------------

    def _next_fetch(self) -> tuple[int, Fetched] | None:
        """The answer and the position it starts at; None: ask again."""
        try:
            leader = self._leader
            if leader is None:
                leader = self._leader = self._cluster.leader(self._place)
                self._send(leader)
            fetched = read_fetched(leader.receive())
        except NO_ANSWER as error:
            self._forget_leader()
            self._give_up_if_late(str(error))
            return None
        if fetched.error is not ErrorCode.NONE:
            self._forget_leader()
            self._on_error(fetched)
            return None
        start = self._position
        self._position = self._end_of(fetched)
        if self._position == start:
            self._on_nothing(fetched)
        else:
            self._progress_s = self._monotonic()
        if self._position < self._wanted.end:
            self._send_ahead(leader)
        return start, fetched

    def _send(self, leader: Connection) -> None:
        leader.require(ApiKey.FETCH, VERSION)
        body = fetch_body(
            *self._place,
            self._position,
            read_committed=self._options.read_committed,
            max_bytes=self._options.fetch_bytes,
            max_wait_ms=_MAX_WAIT_MS,
        )
        leader.send(ApiKey.FETCH, VERSION, body)

    def _send_ahead(self, leader: Connection) -> None:
        try:
            self._send(leader)
        except OSError:
            self._forget_leader()  # what was fetched already is good

    def _forget_leader(self) -> None:
        if self._leader is not None:
            self._cluster.drop(self._leader)
            self._leader = None

    def _end_of(self, fetched: Fetched) -> int:
        """Behind the last whole batch."""
        position = self._position
        try:
            for _, header in headers(fetched.records):
                position = max(position, header.next_offset)
        except MalformedBatch as error:
            raise self._corrupt(error) from error
        if position == self._position and len(fetched.records):
            raise CorruptData(
                f"{dashed(self._place)}: {len(fetched.records)} bytes at offset {position} "
                "hold no whole batch"
            )
        return position

    # --- what can be wrong -------------------------------------------------------------

    def _on_error(self, fetched: Fetched) -> None:
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range()
        elif fetched.error.retriable:
            self._give_up_if_late(fetched.error.message)
            self._sleep(_PAUSE_S)
        else:
            raise BrokerRefused(
                f"{dashed(self._place)}: {fetched.error.message} ({fetched.error.name})"
            )

    def _on_out_of_range(self) -> None:
        log_start = self._cluster.offsets({self._place: -2})[self._place]
        if log_start > self._position:
            self._lose(
                f"offsets {self._position} to {log_start - 1} are not in the log any more, "
                f"which begins at {log_start}",
                min(log_start, self._wanted.end),
            )
        else:
            # A new leader may not know yet how far the log is committed: ask for a while.
            self._on_short_log("the log ends before that")

    def _on_nothing(self, fetched: Fetched) -> None:
        """No records: too early, or the log is shorter than it was."""
        end = fetched.high_watermark
        if self._options.read_committed:
            end = min(end, fetched.last_stable_offset)
        if end > self._position:
            self._give_up_if_late(f"no records at offset {self._position}, though some are there")
        else:
            self._on_short_log(f"the log ends at {end}")

    def _on_short_log(self, why: str) -> None:
        if self._is_late():
            self._lose(
                f"offsets {self._position} to {self._wanted.end - 1} were there when the query "
                f"was planned, and now {why}",
                self._wanted.end,
            )
        else:
            self._sleep(_PAUSE_S)

    def _lose(self, what: str, go_on_at: int) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{dashed(self._place)}: {what}. To go on behind the gap, "
                "set failOnDataLoss to false"
            )
        self._position = go_on_at

    def _is_late(self) -> bool:
        return (self._monotonic() - self._progress_s) * 1000 >= self._options.request_timeout_ms

    def _give_up_if_late(self, why: str) -> None:
        if self._is_late():
            raise BrokerUnavailable(
                f"{dashed(self._place)}: no records from offset {self._position} on within "
                f"{self._options.request_timeout_ms} ms (kafka.request.timeout.ms): {why}"
            )

    def _corrupt(self, error: MalformedBatch) -> CorruptData:
        return CorruptData(f"{dashed(self._place)} near offset {self._position}: {error}")

    # --- decoding ----------------------------------------------------------------------

    def _arrow_of(self, fetch: tuple[int, Fetched]) -> Iterator[Any]:
        start, fetched = fetch
        visibility = Visibility(fetched.aborted if self._options.read_committed else ())
        buffer = np.frombuffer(fetched.records, np.uint8)
        try:
            for position, header in headers(fetched.records):
                batch = fetched.records[position : position + header.size]
                if self._options.check_crcs:
                    check_batch(batch)
                if not visibility.shows(header, batch) or header.base_offset >= self._wanted.end:
                    continue
                if header.base_offset < start:
                    yield from self._taken()
                    self._first_wanted = start
                self._records.add(buffer, position, header)
                if self._records.is_enough:
                    yield from self._taken()
        except MalformedBatch as error:
            raise self._corrupt(error) from error
        if self._records.is_worth_it:
            yield from self._taken()

    def _taken(self) -> Iterator[Any]:
        batch = self._records.take()
        if batch is not None:
            yield batch

    def _is_wanted(self, columns: JoinedColumns) -> Bools:
        offsets = columns.offsets
        return (offsets >= self._first_wanted) & (offsets < self._wanted.end)

    def _on_damage(self, header: BatchHeader, error: MalformedBatch) -> None:
        raise CorruptData(
            f"{dashed(self._place)}, batch at offset {header.base_offset}: {error}"
        ) from error
