"""One coordinator shard: loads its machine from a partition, keeps its time, and lets it go.

Owner: a ``ShardSet``. A shard exists while this broker leads the partition. It loads what is
replicated, in pieces, and is active from then on; whoever comes earlier is asked to come back.
Nothing can be appended behind the end of the loaded log before the shard is active, because it is
the shard that appends (and the markers of transactions, which are read like everything else).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.ports import CannotLoad, LogEntry, ShardMachine, ShardPartition
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_ID, Offset
from tidelog.wire.batch import BatchHeader, headers
from tidelog.wire.control import read_marker
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import decode_records

log = logging.getLogger(__name__)

_RECORDS_AT_A_TIME: Final = 256
"""Replayed without a pause: a few milliseconds."""
_PROGRESS_INTERVAL_MS: Final = 5_000.0

M = TypeVar("M", bound=ShardMachine)


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    """The log could not be read: nobody is served until the partition gets another leader."""
    CLOSED = auto()


class Shard(Generic[M]):
    def __init__(
        self,
        name: str,
        writer: ShardLog,
        make_machine: Callable[[ShardLog, Callable[[], None]], M],
        *,
        load_turn: asyncio.Semaphore,
        load_bytes: int,
    ) -> None:
        self.name = name
        self.writer = writer
        self.state = ShardState.LOADING
        self.machine = make_machine(writer, self.watch)
        self._partition: ShardPartition = writer.partition
        self._clock: CoordinatorClock = writer.clock
        self._load_turn = load_turn
        self._load_bytes = load_bytes
        self._records = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0.0
        self._when_active: list[Callable[[M], None]] = []
        self._loading = asyncio.get_running_loop().create_task(self._load(), name=f"load {name}")

    def machine_or_error(self) -> M | ErrorCode:
        match self.state:
            case ShardState.ACTIVE:
                return self.machine
            case ShardState.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case _:
                return ErrorCode.NOT_COORDINATOR

    def tell(self, news: Callable[[M], None]) -> None:
        """For the machine as soon as it has loaded."""
        if self.state is ShardState.ACTIVE:
            news(self.machine)
        elif self.state is ShardState.LOADING:
            self._when_active.append(news)

    def close(self) -> None:
        """This broker leads no more: whoever waits is told so, at once."""
        if self.state is ShardState.CLOSED:
            return
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        self._loading.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        if was_active:
            self.machine.close()
        self.writer.close()

    # --- time --------------------------------------------------------------------------

    def watch(self) -> None:
        """The machine's next deadline may have come nearer."""
        if self.state is not ShardState.ACTIVE:
            return
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None:
            return  # an alarm that is set rings for nothing
        delay_ms = max(deadline_ms - self._clock.now_ms(), 0)
        due_ms = self._clock.monotonic_ms() + delay_ms
        if self._alarm is not None:
            if self._alarm_ms <= due_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = due_ms
        self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._clock.rang(self._alarm_ms)
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._clock.now_ms():
            self.machine.expire()
        self.watch()

    # --- loading -----------------------------------------------------------------------

    async def _load(self) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            position = await self._replay_all(began_ms)
        except (CannotLoad, MalformedBatch) as error:
            log.error("the coordinator of %s cannot load: %s", self.name, error)
            self.state = ShardState.FAILED
            return
        self.state = ShardState.ACTIVE
        took_ms = self._clock.monotonic_ms() - began_ms
        if self._records:
            log.info(
                "the coordinator of %s loaded %d records up to offset %d in %d ms",
                self.name,
                self._records,
                position,
                took_ms,
            )
        self.watch()
        waiting, self._when_active = self._when_active, []
        for news in waiting:
            news(self.machine)

    async def _replay_all(self, began_ms: float) -> Offset:
        partition = self._partition
        position = partition.log_start
        told_ms = began_ms
        finishing = False
        while True:
            while position < partition.log_end:
                async with self._load_turn:
                    data = await partition.read(position, self._load_bytes)
                    position = await self._replay(data, position)
                if not data:
                    await partition.committed_beyond(position)
                now_ms = self._clock.monotonic_ms()
                if now_ms - told_ms >= _PROGRESS_INTERVAL_MS:
                    told_ms = now_ms
                    log.info(
                        "the coordinator of %s is at offset %d of %d",
                        self.name,
                        position,
                        partition.log_end,
                    )
            if finishing:
                return position
            for _ in self.machine.finish_loading():
                await asyncio.sleep(0)
            finishing = True  # a marker may have been appended meanwhile

    async def _replay(self, data: bytes, position: Offset) -> Offset:
        view = memoryview(data)
        for at, header in headers(view):
            if header.last_offset < position:
                continue
            await self._replay_batch(view[at : at + header.size], header, position)
            position = header.next_offset
        return position

    async def _replay_batch(self, batch: memoryview, header: BatchHeader, position: Offset) -> None:
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None:
                self.machine.end_transaction(header.producer_id, committed=marker.is_commit)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in decode_records(batch, header):
            if record.offset >= position and record.key is not None:
                entry = LogEntry(Offset(record.offset), record.key, record.value, producer_id)
                self.machine.replay(entry)
            self._records += 1
            if self._records % _RECORDS_AT_A_TIME == 0:
                await asyncio.sleep(0)
