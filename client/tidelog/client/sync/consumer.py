"""A consumer for programs without an event loop; to be used by one thread at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from tidelog.client.checks import checked_listener, checked_seconds
from tidelog.client.consumer_base import ConsumerBase
from tidelog.client.errors import ClientClosed, WrongState
from tidelog.client.rebalancing import Rebalancing, topic_names
from tidelog.client.records import (
    ConsumerRecord,
    GivenOffsets,
    K,
    OffsetAndMetadata,
    Position,
    TopicPartition,
    V,
)


class RebalanceListener:
    """Told of partitions that come and go. Override what you need; each runs inside of a poll."""

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        """New ones; ``seek`` here says where to begin."""

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """About to go; ``commit`` here is the last chance to."""

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """Gone already: another member may have them."""
        self.on_revoked(partitions)


class Consumer(ConsumerBase[K, V]):
    def _prepare(self) -> None:
        self._committer: ThreadPoolExecutor | None = None

    # --- what to read -----------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group and read what it gives this member; replaces a subscription."""
        names = topic_names(self._core, topics)
        told = checked_listener(listener or RebalanceListener(), may_wait=False)
        Rebalancing(self._core, told).subscribe(names)

    def unsubscribe(self) -> None:
        """Leave the group; a listener is told by the next poll."""
        self._core.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group's say."""
        self._core.assign(partitions)

    # --- records ----------------------------------------------------------------------------

    def poll(
        self, timeout_s: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Records as soon as there are some, at most ``max.poll.records``; none after the time."""
        core, limit = self._core, self._limit(max_records)
        core.require_open()
        if core.is_listener():
            raise WrongState("a listener cannot poll: it is told inside of a poll")
        deadline = time.monotonic() + checked_seconds("timeout_s", timeout_s)
        core.store_done(if_due=True)
        while True:
            core.fill(deadline - time.monotonic())
            if (records := core.take(limit)) or time.monotonic() >= deadline:
                return records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        while not self._core.is_closed:
            try:
                if records := self.poll(max_records=1):
                    return records[0]
            except ClientClosed:
                break  # by another thread
        raise StopIteration

    # --- offsets ----------------------------------------------------------------------------

    def commit(self, offsets: GivenOffsets | None = None) -> None:
        """Commit these offsets, or the positions, and wait until that is done."""
        self._core.commit(offsets)

    def commit_soon(self, offsets: GivenOffsets | None = None) -> Future[None]:
        """Commit without waiting; the future has the outcome."""
        self._core.require_group("commit")
        wanted = self.positions() if offsets is None else offsets
        if self._committer is None:
            self._committer = ThreadPoolExecutor(1, "tidelog-client-commit")
        return self._committer.submit(self._core.commit, wanted)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed last, of these partitions."""
        return self._core.committed(partitions)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record."""
        return self._core.position(partition)

    def seek(self, partition: TopicPartition, position: Position) -> None:
        """Go on at an offset, at BEGINNING, at END, or AtTime(milliseconds)."""
        self._core.seek(partition, position)

    def beginning_offset(self, partition: TopicPartition) -> int:
        return self._core.watermarks(partition)[0]

    def end_offset(self, partition: TopicPartition) -> int:
        return self._core.watermarks(partition)[1]

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Of the first record that is not older; None if there is none."""
        return self._core.offset_at(partition, timestamp_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until ``resume``; the group is not affected."""
        self._core.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._core.resume(partitions)

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the group; what is done is committed first, if commits are automatic."""
        if self._core.is_listener():
            raise WrongState("a listener cannot close its consumer")
        if self._committer is not None:
            self._committer.shutdown()
        self._core.close()

    def __enter__(self) -> Self:
        self._core.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
