"""A partition in memory for coordinator shards, replicated when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.ports import CannotLoad, ShardMachine
from tidelog.coordinator.runtime.shard_log import KeyValue, ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet, ShardSettings
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset
from tidelog.simulation import World, run_simulation
from tidelog.wire.batch import check_batch, headers, stamped_prefix
from tidelog.wire.control import EndTxnMarker, build_marker_batch
from tidelog.wire.records import Record, build_batch, decode_records

M = TypeVar("M", bound=ShardMachine)


class MemoryPartition:
    """A ``ShardPartition``. ``is_automatic``: replicated in the next turn of the loop."""

    def __init__(self, *, leader_epoch: int = 5, is_automatic: bool = True) -> None:
        self.leader_epoch = leader_epoch
        self.is_automatic = is_automatic
        self.refusal: ErrorCode | None = None
        self.max_batch_bytes = 1 << 20
        self.log_start = Offset(0)
        self.log_end = Offset(0)
        self.high_watermark = Offset(0)
        self.reads: list[Offset] = []
        self.broken = False
        self._batches: list[tuple[Offset, Offset, bytes]] = []
        self._waiting: list[tuple[Offset, Callable[[ErrorCode], None]]] = []

    # --- the port ----------------------------------------------------------------------

    def append(
        self, batch: bytes, leader_epoch: int, done: Callable[[ErrorCode], None]
    ) -> Offset | ErrorCode:
        if self.refusal is not None:
            return self.refusal
        if leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        base = self.store(batch)
        self._waiting.append((self.log_end, done))
        if self.is_automatic:
            asyncio.get_running_loop().call_soon(self.replicate)
        return base

    async def read(self, offset: Offset, max_bytes: int) -> bytes:
        await asyncio.sleep(0)
        if self.broken:
            raise CannotLoad("the disk is gone")
        self.reads.append(offset)
        found = b""
        for _, end, data in self._batches:
            if end <= offset or end > self.high_watermark:
                continue
            if found and len(found) + len(data) > max_bytes:
                break
            found += data
        return found

    async def committed_beyond(self, offset: Offset) -> None:
        while self.high_watermark <= offset:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    # --- the test's side ---------------------------------------------------------------

    def store(self, batch: bytes) -> Offset:
        """Into the log; not replicated yet."""
        base = self.log_end
        header = check_batch(batch)
        stamped = stamped_prefix(header, base, self.leader_epoch) + batch[16:]
        self.log_end = Offset(base + header.last_offset + 1)
        self._batches.append((base, self.log_end, stamped))
        return base

    def store_records(self, records: Sequence[KeyValue], **options: int | bool) -> None:
        rows = [Record(i, 1_000, key, value) for i, (key, value) in enumerate(records)]
        self.store(build_batch(rows, **options))  # type: ignore[arg-type]
        self.high_watermark = self.log_end

    def store_log(self, data: bytes) -> None:
        """A whole log, offsets and all."""
        for at, header in headers(data):
            self.log_end = Offset(header.base_offset)
            self._batches.append(
                (self.log_end, header.next_offset, bytes(data[at : at + header.size]))
            )
            self.log_end = header.next_offset
        self.high_watermark = self.log_end

    def store_marker(self, producer_id: int, marker: EndTxnMarker) -> None:
        data = build_marker_batch(
            marker.type,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=1_000,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self.store(data)
        self.high_watermark = self.log_end

    def replicate(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Everything that was appended so far."""
        self.high_watermark = self.log_end
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(code)

    @property
    def batches(self) -> list[list[KeyValue]]:
        return [
            [(record.key or b"", record.value) for record in decode_records(data)]
            for _, _, data in self._batches
        ]

    @property
    def raw(self) -> list[bytes]:
        return [data for _, _, data in self._batches]


def shard_set(
    world: World,
    make: Callable[[ShardLog, Callable[[], None]], M],
    *,
    timeout_ms: int = 5_000,
    is_cut_off: Callable[[], bool] = lambda: False,
) -> ShardSet[M]:
    settings = ShardSettings(lambda: timeout_ms, lambda: 1 << 16, is_cut_off)
    return ShardSet("__topic", make, CoordinatorClock(world.clock), settings)


async def loaded(shards: ShardSet[M], index: int = 0) -> M:
    while isinstance(found := shards.find(index), ErrorCode):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return found


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        await scenario(world)

    run_simulation(main, 0)
