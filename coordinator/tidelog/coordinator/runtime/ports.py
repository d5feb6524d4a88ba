"""What a shard asks of the partition it lives on, and what it asks of its machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset, ProducerId


class CannotLoad(Exception):
    """The partition cannot be read here (any more)."""


class ShardPartition(Protocol):
    """The replica of one partition of an internal topic, on this broker."""

    @property
    def log_start(self) -> Offset: ...

    @property
    def log_end(self) -> Offset: ...

    @property
    def max_batch_bytes(self) -> int: ...

    def append(
        self, batch: bytes, leader_epoch: int, done: Callable[[ErrorCode], None]
    ) -> Offset | ErrorCode:
        """Append with acks=all, if this broker still leads in that epoch; an error: not appended.

        ``done`` is called once, never at once, and in the order of the appends: when the batch is
        replicated or this broker has lost the partition. There is no time limit.
        """
        ...

    async def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Batches from the one with ``offset`` on, only replicated ones; empty if there are none.

        The last may be cut off. Raises ``CannotLoad``.
        """
        ...

    async def committed_beyond(self, offset: Offset) -> None:
        """Return when the record at ``offset`` may be replicated, or after a while anyway."""
        ...


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A replicated record of the internal topic."""

    offset: Offset
    key: bytes
    value: bytes | None
    producer_id: ProducerId
    """−1 unless the record belongs to a transaction."""


class ShardMachine(Protocol):
    """The state of one partition, and whoever waits for it.

    Made anew for every load. It hears of nothing but ``replay`` and ``end_transaction`` until
    ``finish_loading`` is through.
    """

    def replay(self, entry: LogEntry) -> None:
        """What the log says, in its order."""
        ...

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """A transaction of the producer ended in this partition."""
        ...

    def finish_loading(self) -> Iterator[None]:
        """Everything was replayed. Work that is interrupted at each ``yield``."""
        ...

    def next_deadline_ms(self) -> int | None: ...

    def expire(self) -> None:
        """The deadline is reached."""
        ...

    def close(self) -> None:
        """Another broker leads: whoever waits is told NOT_COORDINATOR, and nothing happens any
        more."""
        ...
