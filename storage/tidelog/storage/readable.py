"""What a log answers to readers. Nothing here changes the log."""

from __future__ import annotations

import logging

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, Offset, TimestampMs
from tidelog.storage import read as reading
from tidelog.storage.epoch_cache import EpochCache
from tidelog.storage.read import FoundByTime, LogRead
from tidelog.storage.segments import SegmentList
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.errors import CorruptBatch

_log = logging.getLogger(__name__)


class ReadableLog:
    """The reading half of ``Log``, which owns and changes these."""

    segments: SegmentList
    epochs: EpochCache
    log_start: Offset
    end_offset: Offset

    def read(
        self, offset: Offset, limit: Offset, max_bytes: int, *, whole_first: bool = True
    ) -> LogRead | ErrorCode:
        """Records from ``offset`` that lie below ``limit`` (end, high watermark or LSO)."""
        if not self.segments:  # a truncation failed half way
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.log_start <= offset <= self.end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if offset >= limit:
            return LogRead(None, self.segments.active.base_offset, 0)
        try:
            return reading.read_slice(
                self.segments,
                offset,
                None if limit >= self.end_offset else limit,
                max_bytes,
                whole_first=whole_first,
            )
        except CorruptBatch as error:
            _log.warning("offset %d cannot be found: %s", offset, error)
            return ErrorCode.CORRUPT_MESSAGE

    def aborted_transactions(self, offset: Offset, read: LogRead) -> list[AbortedTxn]:
        return reading.aborted_transactions(self.segments, offset, read, self.end_offset)

    def find_by_time(self, timestamp: TimestampMs) -> FoundByTime | None:
        """The first record in log order that is not older than ``timestamp``."""
        return self._with_epoch(reading.find_by_time(self.segments, timestamp, self.log_start))

    def find_max_timestamp(self) -> FoundByTime | None:
        return self._with_epoch(reading.find_max_timestamp(self.segments, self.log_start))

    def _with_epoch(self, found: tuple[Offset, TimestampMs] | None) -> FoundByTime | None:
        if found is None:
            return None
        epoch = self.epochs.epoch_for_offset(found[0])
        return FoundByTime(*found, LeaderEpoch(-1) if epoch is None else epoch)
