"""What a partition answers to a broker's handlers. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_OFFSET,
    NO_TIMESTAMP,
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
)
from tidelog.storage.epoch_cache import EpochEnd
from tidelog.storage.read import FileSlice
from tidelog.storage.txn_index import AbortedTxn

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
"""The timestamps of ListOffsets that mean something else."""


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """What a consumer says about itself (Fetch v11 and later); it may read from followers."""

    rack: str = ""


@dataclass(frozen=True, slots=True)
class Produced:
    """The outcome of one batch; offsets are −1 with an error."""

    code: ErrorCode
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: TimestampMs = NO_TIMESTAMP
    log_start: Offset = NO_OFFSET
    message: str | None = None
    bad_records: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerRead:
    """``records`` is a slice of a file; it stays readable whatever happens to the segment."""

    code: ErrorCode
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    records: FileSlice | None = None
    aborted: tuple[AbortedTxn, ...] = ()
    diverging: EpochEnd | None = None
    preferred_read_replica: NodeId = NO_NODE

    @property
    def size(self) -> int:
        return 0 if self.records is None else self.records.length

    @property
    def is_urgent(self) -> bool:
        """Whether the fetch is to be answered at once, however few bytes there are."""
        return (
            self.code is not ErrorCode.NONE
            or self.diverging is not None
            or self.preferred_read_replica != NO_NODE
        )


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """Offset and timestamp are −1 where there is no such record."""

    code: ErrorCode
    offset: Offset = NO_OFFSET
    timestamp: TimestampMs = NO_TIMESTAMP
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class EpochAnswer:
    """Where an epoch ends; (−1, −1) where that is not known."""

    code: ErrorCode
    end: EpochEnd


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    code: ErrorCode
    low_watermark: Offset = NO_OFFSET
