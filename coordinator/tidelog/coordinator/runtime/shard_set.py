"""The shards of one internal topic on this broker: they come and go with leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.ports import ShardMachine, ShardPartition
from tidelog.coordinator.runtime.shard import Shard
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.kernel.errors import ErrorCode

_LOADS_AT_A_TIME: Final = 2
"""Each holds one piece of a log in memory."""

M = TypeVar("M", bound=ShardMachine)

MakeMachine = Callable[[ShardLog, Callable[[], None]], M]
"""The machine of one partition: what it writes to, and how it says that its deadline moved."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Asked anew each time, because they may change while the broker runs."""

    write_timeout_ms: Callable[[], int]
    load_bytes: Callable[[], int]
    is_cut_off: Callable[[], bool]
    """Whether others may lead by now, and this broker could not hear of it."""


class ShardSet(Generic[M]):
    def __init__(
        self,
        topic: str,
        make_machine: MakeMachine[M],
        clock: CoordinatorClock,
        settings: ShardSettings,
    ) -> None:
        self.topic = topic
        self._make_machine = make_machine
        self._clock = clock
        self._settings = settings
        self._shards: dict[int, Shard[M]] = {}
        self._load_turn: asyncio.Semaphore | None = None

    def lead(self, index: int, partition: ShardPartition, leader_epoch: int) -> None:
        """This broker leads a partition, perhaps for a while already, in this epoch."""
        known = self._shards.get(index)
        if known is not None and known.writer.partition == partition:
            known.writer.leader_epoch = leader_epoch
            return
        self.resign(index)
        if self._load_turn is None:
            self._load_turn = asyncio.Semaphore(_LOADS_AT_A_TIME)
        settings = self._settings
        writer = ShardLog(
            partition, self._clock, settings.write_timeout_ms, leader_epoch, settings.is_cut_off
        )
        writer.start_over = lambda: self._start_over(index, writer)
        self._shards[index] = Shard(
            f"{self.topic}-{index}",
            writer,
            self._make_machine,
            load_turn=self._load_turn,
            load_bytes=self._settings.load_bytes(),
        )

    def resign(self, index: int) -> None:
        """Another broker leads it, nobody does, or it is deleted."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close()

    def _start_over(self, index: int, writer: ShardLog) -> None:
        known = self._shards.get(index)
        if known is not None and known.writer is writer:
            self.resign(index)
            self.lead(index, writer.partition, writer.leader_epoch)

    def find(self, index: int) -> M | ErrorCode:
        shard = self._shards.get(index)
        return ErrorCode.NOT_COORDINATOR if shard is None else shard.machine_or_error()

    def all(self) -> Iterator[M | ErrorCode]:
        """Every shard here, loaded or not, by partition."""
        for index in sorted(self._shards):
            yield self._shards[index].machine_or_error()

    def active(self) -> Iterator[M]:
        for found in self.all():
            if not isinstance(found, ErrorCode):
                yield found

    def tell(self, news: Callable[[M], None]) -> None:
        """News for all shards; those that load get them when they are done."""
        for index in sorted(self._shards):
            self._shards[index].tell(news)

    def close(self) -> None:
        for index in sorted(self._shards):
            self.resign(index)
