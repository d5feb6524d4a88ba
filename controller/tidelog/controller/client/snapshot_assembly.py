"""The image of the cluster from a snapshot that comes in chunks.

A snapshot that lost something must never be taken for a cluster that lost topics, because brokers
delete the data of topics that are gone (hazard 15). So chunks must follow each other exactly, every
batch is checked, and the last record must count what came before it. The records are applied in
slices between which the event loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import EndOfImage, MetadataRecord
from tidelog.controller.metadata.snapshot import DamagedSnapshot
from tidelog.controller.quorum.batches import batch_to_records
from tidelog.controller.raft.model import SnapshotId, Term
from tidelog.kernel.ids import Offset
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.batch import check_batch

MAX_SNAPSHOT_BYTES: Final = 1 << 30
SLICE_RECORDS: Final = 500


class BrokenFeed(Exception):
    """A controller sent what does not fit together; another stream may do better."""


class SnapshotAssembly:
    """The chunks of one snapshot, from its first to its last."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._expected: tuple[SnapshotId, int] | None = None

    def add(self, chunk: pb.MetadataSnapshotChunk) -> bool:
        """Whether this was the last chunk."""
        snapshot = SnapshotId(Offset(chunk.end_offset), Term(chunk.term))
        if self._expected is None:
            if not 0 < chunk.total_bytes <= MAX_SNAPSHOT_BYTES:
                raise BrokenFeed(f"a snapshot of {chunk.total_bytes} bytes")
            self._expected = (snapshot, chunk.total_bytes)
        if (snapshot, chunk.total_bytes) != self._expected:
            raise BrokenFeed(f"a chunk of {snapshot} within {self._expected[0]}")
        if chunk.position != len(self._data) or not chunk.data:
            raise BrokenFeed(f"a chunk at {chunk.position}, expected at {len(self._data)}")
        self._data += chunk.data
        if len(self._data) > chunk.total_bytes:
            raise BrokenFeed(f"{len(self._data)} bytes where {chunk.total_bytes} were announced")
        return len(self._data) == chunk.total_bytes

    @property
    def snapshot(self) -> SnapshotId:
        if self._expected is None:
            raise RuntimeError("no chunk has been added")
        return self._expected[0]

    async def image(self) -> MetadataImage:
        """The whole image; ``DamagedSnapshot`` if records are missing."""
        offset = Offset(self.snapshot.end_offset - 1)
        image, count = MetadataImage(), 0
        end: EndOfImage | None = None
        for record in self._records():
            if end is not None:
                raise DamagedSnapshot("the snapshot goes on after its end")
            if isinstance(record, EndOfImage):
                end = record
                continue
            image = image.apply(record, offset)
            count += 1
            if count % SLICE_RECORDS == 0:
                await asyncio.sleep(0)
        if end is None or end != _counted(image, count):
            raise DamagedSnapshot(f"the snapshot says {end}, found is {_counted(image, count)}")
        return image.apply(end, offset)

    def _records(self) -> Iterator[MetadataRecord]:
        position, data = 0, bytes(self._data)
        while position < len(data):
            header = check_batch(data, position)
            batch = data[position : position + header.size]
            yield from batch_to_records(batch, header)
            position += header.size


def _counted(image: MetadataImage, count: int) -> EndOfImage:
    topics = image.topics.by_id
    return EndOfImage(
        records=count,
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics.values()),
        brokers=len(image.brokers),
    )
