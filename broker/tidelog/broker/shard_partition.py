"""A replica as the coordinator shard that lives on it sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.coordinator.runtime.ports import CannotLoad
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Offload, Steps
from tidelog.replication.leader import ALL
from tidelog.replication.outcomes import IsolationLevel, Produced
from tidelog.replication.partition import Partition
from tidelog.replication.waiting import FetchWaiter, Want
from tidelog.storage.read import FileSlice
from tidelog.storage.txn_verification import Verification
from tidelog.storage.validation import Origin
from tidelog.wire.batch import is_transactional, read_header

_FOR_EVER_MS: Final = 30 * 24 * 3600 * 1000.0
"""The shard has its own time-outs; an append is only over when it is replicated or lost."""
_LOOK_AGAIN_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class LeaderPartition:
    """A ``ShardPartition``."""

    partition: Partition
    offload: Offload

    @property
    def log_start(self) -> Offset:
        return self.partition.log.log_start

    @property
    def log_end(self) -> Offset:
        return self.partition.log.end_offset

    @property
    def max_batch_bytes(self) -> int:
        return self.partition.log.config.max_message_bytes

    def append(
        self, batch: bytes, leader_epoch: int, done: Callable[[ErrorCode], None]
    ) -> Offset | ErrorCode:
        partition = self.partition
        if partition.leader is None or partition.leader_epoch != leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        base_offset = partition.log.end_offset
        future = partition.append(
            batch,
            acks=ALL,
            timeout_ms=_FOR_EVER_MS,
            origin=Origin.COORDINATOR,
            verification=_permission(partition, batch),
        )
        if partition.log.end_offset == base_offset:
            return future.result().code
        future.add_done_callback(lambda finished: done(_code(finished)))
        return base_offset

    async def read(self, offset: Offset, max_bytes: int) -> bytes:
        found = self.partition.read_for_consumer(offset, max_bytes, IsolationLevel.READ_UNCOMMITTED)
        if found.code is not ErrorCode.NONE:
            raise CannotLoad(f"{found.code.name} at offset {offset}")
        if found.records is None:
            return b""
        try:
            return await self.offload.run(_read(found.records))
        except OSError as error:
            # Another replica can lead, and load, if this one gives up; nobody can otherwise.
            self.partition.reading_failed(error)
            raise CannotLoad(f"offset {offset} cannot be read: {error}") from error

    async def committed_beyond(self, offset: Offset) -> None:
        waiter = FetchWaiter(min_bytes=1)
        waiter.attach(self.partition, Want(offset, IsolationLevel.READ_UNCOMMITTED, 1))
        if self.partition.log.high_watermark > offset:
            waiter.wake()
        await waiter.wait(_LOOK_AGAIN_MS)


def _permission(partition: Partition, batch: bytes) -> Verification | None:
    """To open a transaction; whoever wrote on its behalf has asked the coordinator before."""
    if not is_transactional(batch):
        return None
    producer_id = read_header(batch).producer_id
    return partition.log.producers.states.verifications.approved(producer_id)


def _read(records: FileSlice) -> Steps[bytes]:
    yield
    return records.read()


def _code(finished: asyncio.Future[Produced]) -> ErrorCode:
    return finished.result().code
