"""What a partition knows about its producers: sequences, epochs and open transactions.

Theory (KIP-98): an idempotent producer numbers its records per partition. Its leader takes a
batch only if it continues where the last one ended, and recognises a resend by its sequence
range among the last five batches, which is how many requests a client keeps in flight. All of
this is a function of the log: whoever applies the same batches holds the same state, so
followers, recovery and a new leader apply (``update``) without asking, and only what a client
or a coordinator sends is checked first (``check``, ``check_marker``).

A transaction is open on the partition from its first batch to its marker. Data at or above the
first open one is not stable; nor is a finished one while its marker is not yet replicated,
because a new leader might never have seen the marker (hazard: LSO ahead of HW).

Pure: the log owns an instance, and decides when to snapshot and what to replay.

Invariants: at most one open transaction per producer; open transactions are in the order of
their first offsets; finished ones in the order of their markers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    CoordinatorEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from tidelog.storage.producer_snapshot import ProducerSnapshotEntry
from tidelog.storage.txn_verification import Verification, Verifications
from tidelog.wire.batch import MAX_SEQUENCE, BatchHeader
from tidelog.wire.control import EndTxnMarker

WINDOW: Final = 5
"""Batches remembered per producer: ``max.in.flight.requests.per.connection`` at its most."""

NO_COORDINATOR_EPOCH: Final = CoordinatorEpoch(-1)
_SMALLEST_TABLE: Final = 16


class BatchMetadata(NamedTuple):
    first_sequence: Sequence
    last_sequence: Sequence
    first_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state. Read it; only ``ProducerStates`` changes it."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    batches: list[BatchMetadata]
    """The last five of this epoch, oldest first."""
    coordinator_epoch: CoordinatorEpoch
    last_timestamp: TimestampMs
    current_txn_first_offset: Offset | None

    @property
    def last_sequence(self) -> Sequence:
        """−1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> Offset | None:
        return self.batches[-1].last_offset if self.batches else None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already: where it went the first time."""

    first_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


@dataclass(frozen=True, slots=True)
class CompletedTxn:
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Where the marker is."""
    is_aborted: bool


class ProducerStates:
    __slots__ = ("_completed", "_entries", "_ongoing", "_table_size", "verifications")

    def __init__(self) -> None:
        self.verifications = Verifications()
        self._entries: dict[ProducerId, ProducerEntry] = {}
        self._ongoing: dict[Offset, ProducerId] = {}
        self._completed: dict[Offset, Offset] = {}
        """First offset → marker, until the marker is below the high watermark."""
        self._table_size = _SMALLEST_TABLE

    # What is known.

    @property
    def is_empty(self) -> bool:
        return not self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(ProducerId(producer_id))

    def entries(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def last_data_offset(self, producer_id: int) -> Offset | None:
        """The end of the producer's last batch, which compaction must leave in place."""
        entry = self.entry(producer_id)
        return None if entry is None else entry.last_data_offset

    # Checks of what has not been appended yet.

    def check(
        self, header: BatchHeader, *, is_sequenced: bool = True, is_first: bool = False
    ) -> Duplicate | ErrorCode | None:
        """Whether a client's batch may be appended: None if so. Nothing changes.

        What a coordinator writes in a producer's name has no sequence (``is_sequenced``).
        ``is_first``: nobody ever wrote to this log, so that no producer can be forgotten.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if is_first and is_sequenced and header.base_sequence > 0:
                # Those before it were refused a moment ago, when this was no leader yet, and are on
                # their way again. Behind this one they would be out of order, which librdkafka
                # takes for "written before" and acknowledges: they would be lost.
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            # Expired or deleted with old segments, so that any sequence may be next (KIP-360).
            return None
        if not is_sequenced:
            is_old = header.producer_epoch < entry.epoch
            return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else None
        if header.producer_epoch == entry.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp)
        refusal = _sequence_error(entry, header.producer_epoch, header.base_sequence)
        if refusal is not None:
            return refusal
        if entry.current_txn_first_offset is not None and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def has_open_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether the producer has a transaction open here, in this epoch."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset is not None
            and entry.epoch == epoch
        )

    def refusal_of_first_write(
        self, header: BatchHeader, verification: Verification | None
    ) -> ErrorCode | None:
        """Why a transactional batch may not open a transaction: None if one is open or it may.

        A resent batch opens none.
        """
        if self.has_open_transaction(header.producer_id, header.producer_epoch):
            return None
        if isinstance(self.check(header), Duplicate):
            return None
        entry = self._entries.get(header.producer_id)
        is_known = entry is not None and entry.epoch == header.producer_epoch
        return self.verifications.refusal(header, verification, is_known=is_known)

    def has_marker(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a marker that begins this epoch is here already (transaction.version=2).

        Data carries the epoch before that of its marker, so a marker of the present epoch is a
        resent one, and must not end the transaction that came after it (hazards 29 and 30).
        """
        entry = self.entry(producer_id)
        return entry is not None and entry.epoch == producer_epoch

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> ErrorCode | None:
        """Whether a coordinator's marker may be appended: None if so. A resent one may."""
        entry = self.entry(producer_id)
        if entry is None:
            return None
        if producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    # Batches of the log.

    def update(self, header: BatchHeader, marker: EndTxnMarker | None) -> CompletedTxn | None:
        """Take over a batch that is in the log, whatever ``check`` would have said.

        A control batch without a marker is what compaction left of one; it says nothing.
        """
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self._apply_data(header)
            return None
        return None if marker is None else self._apply_marker(header, marker)

    def _apply_data(self, header: BatchHeader) -> None:
        entry = self._entry_at(header)
        entry.batches.append(_metadata_of(header))
        if len(entry.batches) > WINDOW:
            del entry.batches[0]
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.current_txn_first_offset is None:
            self.verifications.opened(header.producer_id)
            entry.current_txn_first_offset = header.base_offset
            self._ongoing[header.base_offset] = header.producer_id

    def _apply_marker(self, header: BatchHeader, marker: EndTxnMarker) -> CompletedTxn | None:
        entry = self._entry_at(header)
        self.verifications.ended(header.producer_id, header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        # A marker is a sign of life: it keeps the producer from expiring (KAFKA-9144).
        entry.last_timestamp = header.max_timestamp
        first_offset = entry.current_txn_first_offset
        if first_offset is None:
            return None
        entry.current_txn_first_offset = None
        del self._ongoing[first_offset]
        self._completed[first_offset] = header.base_offset
        return CompletedTxn(
            header.producer_id, first_offset, header.base_offset, not marker.is_commit
        )

    def _entry_at(self, header: BatchHeader) -> ProducerEntry:
        """The producer's entry, made or moved to the batch's epoch."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(
                header.producer_id,
                header.producer_epoch,
                [],
                NO_COORDINATOR_EPOCH,
                header.max_timestamp,
                None,
            )
            self._add(entry)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        return entry

    def refill(self, headers: Iterable[BatchHeader]) -> None:
        """Complete the windows of five with batches of the log, in log order.

        A snapshot holds only the last batch of each producer. A client may resend any of the
        last five to a leader that has just been elected, and must get its original offsets.
        """
        found: defaultdict[ProducerId, deque[BatchMetadata]] = defaultdict(
            lambda: deque(maxlen=WINDOW)
        )
        for header in headers:
            entry = self._entries.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.epoch:
                continue
            if entry.batches and header.last_offset < entry.batches[0].first_offset:
                found[header.producer_id].append(_metadata_of(header))
        for producer_id, older in found.items():
            entry = self._entries[producer_id]
            entry.batches = [*older, *entry.batches][-WINDOW:]

    def recall(self, before: ProducerStates, end: Offset) -> None:
        """Complete the windows with what was remembered before the log was cut to ``end``.

        A snapshot holds only the last batch of each producer. What a client may resend are the
        last five it sent, and those of them that were not cut are remembered.
        """
        for entry in self._entries.values():
            former = before._entries.get(entry.producer_id)
            if former is None or former.epoch != entry.epoch or not entry.batches:
                continue
            first = entry.batches[0].first_offset
            older = [batch for batch in former.batches if batch.last_offset < min(first, end)]
            entry.batches = [*older, *entry.batches][-WINDOW:]

    # Transactions.

    @property
    def first_undecided(self) -> Offset | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._ongoing), None)

    def has_open_since_before(self, moment_ms: int) -> bool:
        """Whether a transaction is open whose producer has written nothing since ``moment_ms``."""
        return any(
            self._entries[producer_id].last_timestamp < moment_ms
            for producer_id in self._ongoing.values()
        )

    def first_unstable_offset(self, high_watermark: int) -> Offset | None:
        """The first offset of the oldest transaction that is open, or whose marker is not
        below ``high_watermark``."""
        unstable = self.first_undecided
        for first_offset, marker_offset in self._completed.items():
            if marker_offset >= high_watermark and (unstable is None or first_offset < unstable):
                unstable = first_offset
        return unstable

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget finished transactions whose markers are replicated."""
        while self._completed:
            first_offset, marker_offset = next(iter(self._completed.items()))
            if marker_offset >= high_watermark:
                return
            del self._completed[first_offset]

    def last_stable_offset_after(self, completed: CompletedTxn) -> Offset:
        """Up to where all is decided, now that ``completed`` is and has been applied."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return Offset(completed.last_offset + 1)

    # Life cycle.

    def expire(self, now_ms: int, expiration_ms: int) -> list[ProducerId]:
        """Drop the producers without an open transaction that have been silent so long."""
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.current_txn_first_offset is None
            and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        self.verifications.expire(now_ms, expiration_ms)
        return expired

    def clear(self) -> None:
        self._entries.clear()
        self._ongoing.clear()
        self._completed.clear()
        self._table_size = _SMALLEST_TABLE

    def load(self, entries: Iterable[ProducerSnapshotEntry]) -> None:
        """Start over from a snapshot."""
        self.clear()
        for stored in entries:
            self._add(_entry_of(stored))
        opened = sorted(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self._entries.values()
            if entry.current_txn_first_offset is not None
        )
        self._ongoing.update(opened)

    def snapshot_entries(self) -> list[ProducerSnapshotEntry]:
        """The state to store, in the order in which Kafka's hash map would give it.

        The order means nothing, but with it the same appends give the same bytes.
        """
        mask = self._table_size - 1
        in_order = sorted(self._entries.values(), key=lambda e: _spread(e.producer_id) & mask)
        return [_stored(entry) for entry in in_order]

    def _add(self, entry: ProducerEntry) -> None:
        self._entries[entry.producer_id] = entry
        # A Java hash map doubles when it is three quarters full and never shrinks.
        if len(self._entries) * 4 > self._table_size * 3:
            self._table_size *= 2


def _sequence_error(entry: ProducerEntry, epoch: int, base_sequence: int) -> ErrorCode | None:
    if epoch < entry.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if entry.epoch == NO_PRODUCER_EPOCH:
        return None
    # A new epoch starts at 0, and so does one of which only a marker is known (−1 + 1).
    last = entry.last_sequence if epoch == entry.epoch else NO_SEQUENCE
    expected = 0 if last == MAX_SEQUENCE else last + 1
    return None if base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _metadata_of(header: BatchHeader) -> BatchMetadata:
    return BatchMetadata(
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
    )


def _entry_of(stored: ProducerSnapshotEntry) -> ProducerEntry:
    batches = []
    if stored.last_offset >= 0:
        # Sequences wrap from 2^31−1 to 0.
        first_sequence = (stored.last_sequence - stored.offset_delta) & MAX_SEQUENCE
        first_offset = Offset(stored.last_offset - stored.offset_delta)
        batches.append(
            BatchMetadata(
                Sequence(first_sequence),
                stored.last_sequence,
                first_offset,
                stored.last_offset,
                stored.timestamp,
            )
        )
    first_open = stored.current_txn_first_offset
    return ProducerEntry(
        stored.producer_id,
        stored.epoch,
        batches,
        stored.coordinator_epoch,
        stored.timestamp,
        first_open if first_open >= 0 else None,
    )


def _stored(entry: ProducerEntry) -> ProducerSnapshotEntry:
    batch = entry.batches[-1] if entry.batches else None
    first_open = entry.current_txn_first_offset
    return ProducerSnapshotEntry(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        NO_OFFSET if batch is None else batch.last_offset,
        0 if batch is None else batch.last_offset - batch.first_offset,
        entry.last_timestamp,
        entry.coordinator_epoch,
        NO_OFFSET if first_open is None else first_open,
    )


def _spread(producer_id: int) -> int:
    """``Long.hashCode`` followed by the mixing of ``java.util.HashMap``."""
    hashed = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)
