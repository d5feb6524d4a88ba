"""What a controller can tell those who watch the metadata: recent batches, and the image.

The last committed batches are kept here, decoded, and encoded when first asked for. A watcher
has a position in them and nothing else: no queue of its own that could grow, so a slow one costs
nobody anything. When its position falls off the old end it has to begin again with a snapshot of
the image, which is encoded once for all who need it and, since images are immutable, in pieces
between which the event loop goes on.

Owner: the controller. Invariant: the batches are those that follow ``start_offset``, in order and
without gaps, up to ``end_offset``; only offsets of the quorum's own records are missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.metadata.snapshot import image_to_records
from tidelog.controller.quorum.batches import records_to_batch
from tidelog.controller.quorum.interface import CommittedBatch
from tidelog.controller.raft.model import NO_TERM, SnapshotId, Term
from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import Clock

MAX_KEPT_RECORDS: Final = 30_000
SNAPSHOT_SLICE_RECORDS: Final = 500
"""How many records are encoded before the event loop gets its turn."""
MAX_SNAPSHOT_AGE: Final = 1000
"""How far the log may have gone on before a snapshot is made anew instead of sent again."""


class UnknownHistory(Exception):
    """The watcher's last record is not in this log: it followed another one."""


@dataclass(slots=True)
class _Kept:
    batch: CommittedBatch
    encoded: bytes | None = None


@dataclass(frozen=True, slots=True)
class ImageSnapshot:
    snapshot: SnapshotId
    data: bytes
    """Record batches, the last record being ``EndOfImage``."""


class MetadataHistory:
    def __init__(self, clock: Clock, *, max_records: int = MAX_KEPT_RECORDS) -> None:
        self._clock = clock
        self._max_records = max_records
        self._kept: deque[_Kept] = deque()
        self._record_count = 0
        self._start = SnapshotId(Offset(0), NO_TERM)
        self._end = SnapshotId(Offset(0), NO_TERM)
        self._image = MetadataImage()
        self._appended = asyncio.Event()
        self._snapshot: asyncio.Task[ImageSnapshot] | None = None
        self._snapshot_end = Offset(-1)

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be told without a snapshot."""
        return self._start.end_offset

    @property
    def end_offset(self) -> Offset:
        """The end of what is committed and was applied here."""
        return self._end.end_offset

    def append(self, batch: CommittedBatch, image: MetadataImage) -> None:
        """A batch was committed, and this is the image after it."""
        self._image = image
        self._end = SnapshotId(Offset(batch.last_offset + 1), batch.term)
        if batch.records:
            self._kept.append(_Kept(batch))
            self._record_count += len(batch.records)
        while self._record_count > self._max_records and len(self._kept) > 1:
            self._forget_first()
        if self._snapshot is not None and self._snapshot.done() and self._is_snapshot_old():
            self._snapshot = None
        self._appended.set()
        self._appended = asyncio.Event()

    def restart(self, snapshot: SnapshotId, image: MetadataImage) -> None:
        """All before the end of this snapshot is known as an image only."""
        self._kept.clear()
        self._record_count = 0
        self._start = self._end = snapshot
        self._image = image
        self._appended.set()
        self._appended = asyncio.Event()

    async def wait_beyond(self, offset: Offset) -> None:
        """Return when there is something to tell from ``offset`` on."""
        while self.start_offset <= offset and not self._has(offset):
            await self._appended.wait()

    def check_position(self, from_offset: Offset, last_term: Term | None) -> None:
        """``UnknownHistory`` if whoever has everything up to there cannot have it from this log.

        Terms never fall along the log, so the term of the record before ``from_offset`` lies
        between those of our batches around it.
        """
        before, behind = self._start.term, None
        for kept in self._kept:
            if kept.batch.base_offset >= from_offset:
                behind = kept.batch.term
                break
            if kept.batch.last_offset >= from_offset:
                raise UnknownHistory(f"offset {from_offset} is not the begin of a batch")
            before = kept.batch.term
        if last_term is None:
            return
        if last_term < before or (behind is not None and last_term > behind):
            raise UnknownHistory(
                f"the record before {from_offset} is of term {last_term} there, here of a term"
                f" from {before} to {'now' if behind is None else behind}"
            )

    def encoded_from(self, offset: Offset, max_bytes: int) -> tuple[list[bytes], Offset]:
        """Batches from ``offset`` on, at least one if there is one, and the end of the last."""
        batches: list[bytes] = []
        size, end = 0, offset
        for kept in self._from(offset):
            data = self._encode(kept)
            if batches and size + len(data) > max_bytes:
                break
            batches.append(data)
            size += len(data)
            end = Offset(kept.batch.last_offset + 1)
        return batches, end

    async def snapshot(self) -> ImageSnapshot:
        """The image as of a moment from which on the batches are still kept."""
        if self._snapshot is None or self._is_snapshot_old():
            self._snapshot_end = self.end_offset
            encoding = self._encode_image(self._end, self._image)
            self._snapshot = asyncio.create_task(encoding, name="encode the metadata image")
        # Shielded: others may wait for it as well.
        return await asyncio.shield(self._snapshot)

    def _is_snapshot_old(self) -> bool:
        age = self.end_offset - self._snapshot_end
        return self._snapshot_end < self.start_offset or age > MAX_SNAPSHOT_AGE

    def _has(self, offset: Offset) -> bool:
        return bool(self._kept) and self._kept[-1].batch.base_offset >= offset

    def _from(self, offset: Offset) -> list[_Kept]:
        """Looked for from the end: most watchers are there."""
        found: list[_Kept] = []
        for kept in reversed(self._kept):
            if kept.batch.base_offset < offset:
                break
            found.append(kept)
        found.reverse()
        return found

    def _forget_first(self) -> None:
        batch = self._kept.popleft().batch
        self._record_count -= len(batch.records)
        self._start = SnapshotId(Offset(batch.last_offset + 1), batch.term)

    def _encode(self, kept: _Kept) -> bytes:
        if kept.encoded is None:
            batch = kept.batch
            kept.encoded = records_to_batch(
                batch.records,
                base_offset=batch.base_offset,
                term=batch.term,
                now_ms=self._clock.wall_ms(),
            )
        return kept.encoded

    async def _encode_image(self, at: SnapshotId, image: MetadataImage) -> ImageSnapshot:
        data = bytearray()
        now_ms, position = self._clock.wall_ms(), 0
        for records in _slices(image_to_records(image), SNAPSHOT_SLICE_RECORDS):
            data += _snapshot_batch(records, position, at.term, now_ms)
            position += len(records)
            await asyncio.sleep(0)
        return ImageSnapshot(at, bytes(data))


def _snapshot_batch(
    records: list[MetadataRecord], position: int, term: Term, now_ms: TimestampMs
) -> bytes:
    return records_to_batch(records, base_offset=position, term=term, now_ms=now_ms)


def _slices(records: Iterable[MetadataRecord], size: int) -> Iterable[list[MetadataRecord]]:
    part: list[MetadataRecord] = []
    for record in records:
        part.append(record)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
