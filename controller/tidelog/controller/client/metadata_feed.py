"""The metadata as a broker sees it: an immutable image, and every change of it in order.

The feed follows the stream of committed records of one controller, by preference the active one,
which knows first what is committed. Since committed records are the same everywhere, it changes
controllers by asking the next one for what follows its own end, without gaps and without repeats.
A feed that has fallen too far behind is sent a snapshot, and tells its subscribers the difference.

Owner: the controller client. Invariants: the image only moves forward, by whole batches, and
subscribers are told of every move, in order. A controller whose log contradicts what this broker
has already applied is not followed: ``MetadataDiverged`` ends the feed, and the node with it,
rather than have data deleted for topics that another history never had (hazard 15).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeAlias

from tidelog.controller.client.active_controller import ActiveController
from tidelog.controller.client.snapshot_assembly import BrokenFeed, SnapshotAssembly
from tidelog.controller.metadata.delta import MetadataDelta, advance, delta_between
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.metadata.snapshot import DamagedSnapshot
from tidelog.controller.quorum.batches import batch_to_records
from tidelog.controller.raft.model import NO_TERM, Term
from tidelog.controller.service.methods import WATCH_METADATA
from tidelog.kernel.ids import NodeId, Offset
from tidelog.kernel.peers import PeerError, PeerRefused, Peers, PeerStream
from tidelog.kernel.ports import Clock
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.batch import check_batch
from tidelog.wire.errors import CorruptBatch, InvalidRecord

SILENCE_MS: Final = 3000.0
"""A stream that shows no sign of life for this long is given up; there is one each second."""
RETRY_MS: Final = 50.0
AVOID_MS: Final = 1000.0
"""A controller that just failed is not turned to again before this, if there is another."""
LARGE_BATCH_RECORDS: Final = 1000
SLICE_RECORDS: Final = 500
MAX_QUEUED_DELTAS: Final = 1000

WatchStream: TypeAlias = PeerStream[pb.WatchMetadataRequest, pb.WatchMetadataResponse]
Subscriber: TypeAlias = Callable[[MetadataDelta], None]

_log = logging.getLogger(__name__)


class MetadataDiverged(Exception):
    """The controllers have another history than the one this broker has applied."""


class MetadataFeed:
    def __init__(self, peers: Peers, active: ActiveController, clock: Clock) -> None:
        self._peers = peers
        self._active = active
        self._clock = clock
        self._image = MetadataImage()
        self._end = Offset(0)
        self._last_term = NO_TERM
        self._subscribers: list[Subscriber] = []
        self._moved = asyncio.Event()
        self._failed_ms: dict[NodeId, float] = {}
        self._turn = 0

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def end_offset(self) -> Offset:
        """The end of what has been applied."""
        return self._end

    def subscribe(self, subscriber: Subscriber) -> None:
        """Called for every change, at once and in order; it must neither wait nor raise."""
        self._subscribers.append(subscriber)

    async def wait_for(self, condition: Callable[[MetadataImage], bool]) -> MetadataImage:
        """The first image from now on that meets a condition."""
        while not condition(self._image):
            await self._moved.wait()
        return self._image

    async def deltas(self) -> AsyncGenerator[MetadataDelta, None]:
        """Every change from the empty image on.

        A reader that falls far behind gets what it missed in one.
        """
        reader = _DeltaReader()
        self._subscribers.append(reader.put)
        try:
            seen = self._image
            if seen.offset >= 0:
                yield delta_between(MetadataImage(), seen)
            while True:
                yield await reader.take()
        finally:
            self._subscribers.remove(reader.put)

    async def run(self) -> None:
        """Follow until cancelled; raises ``MetadataDiverged`` and nothing a peer could cause."""
        while True:
            node = self._choose()
            try:
                await self._follow(node)
            except PeerRefused as refusal:
                if refusal.reason == "FENCED_LEADER_EPOCH":
                    raise MetadataDiverged(f"node {node} refused: {refusal.detail}") from refusal
                self._note_failure(node, refusal)
            except (PeerError, BrokenFeed, TimeoutError) as error:
                self._note_failure(node, error)
            except (CorruptBatch, InvalidRecord, DamagedSnapshot) as error:
                _log.error("node %s sent damaged metadata: %s", node, error)
                self._note_failure(node, error)
            else:
                continue  # another controller has become active
            await asyncio.sleep(RETRY_MS / 1000)

    # Choosing whom to follow.

    def _choose(self) -> NodeId:
        believed = self._active.believed
        if believed is not None and not self._is_avoided(believed):
            return believed
        controllers = self._active.controllers
        for _ in controllers:
            self._turn = (self._turn + 1) % len(controllers)
            if not self._is_avoided(controllers[self._turn]):
                break
        return controllers[self._turn]

    def _is_avoided(self, node: NodeId) -> bool:
        failed_ms = self._failed_ms.get(node)
        return failed_ms is not None and self._clock.monotonic_ms() - failed_ms < AVOID_MS

    def _note_failure(self, node: NodeId, error: Exception) -> None:
        self._failed_ms[node] = self._clock.monotonic_ms()
        _log.debug("no longer follow the metadata of node %s: %s", node, error)

    def _should_turn_from(self, node: NodeId) -> bool:
        believed = self._active.believed
        return believed is not None and believed != node and not self._is_avoided(believed)

    # Following.

    async def _follow(self, node: NodeId) -> None:
        """Apply what this controller sends; return when another one should be followed."""
        stream = self._peers.open_stream(node, WATCH_METADATA)
        assembly: SnapshotAssembly | None = None
        try:
            await stream.send(self._request())
            while True:
                async with asyncio.timeout(SILENCE_MS / 1000):
                    message = await stream.receive()
                self._failed_ms.pop(node, None)
                if message.HasField("active_controller"):
                    active = message.active_controller
                    self._active.learn(NodeId(active.node_id), active.term)
                if message.HasField("snapshot"):
                    assembly = await self._take_chunk(assembly, message.snapshot)
                else:
                    for batch in message.batches.batches:
                        await self._take_batch(batch)
                if assembly is None and self._should_turn_from(node):
                    return
        finally:
            stream.close()

    def _request(self) -> pb.WatchMetadataRequest:
        request = pb.WatchMetadataRequest(from_offset=self._end)
        if self._end > 0:
            request.last_term = self._last_term
        return request

    async def _take_chunk(
        self, assembly: SnapshotAssembly | None, chunk: pb.MetadataSnapshotChunk
    ) -> SnapshotAssembly | None:
        assembly = assembly or SnapshotAssembly()
        if not assembly.add(chunk):
            return assembly
        snapshot = assembly.snapshot
        if snapshot.end_offset <= self._end:
            raise BrokenFeed(f"a snapshot up to {snapshot.end_offset} for one who has {self._end}")
        image = await assembly.image()
        delta = delta_between(self._image, image)
        self._move(delta, snapshot.end_offset, snapshot.term)
        return None

    async def _take_batch(self, batch: bytes) -> None:
        header = check_batch(batch)
        if header.base_offset < self._end:
            raise BrokenFeed(f"a batch at {header.base_offset} for one who has {self._end}")
        records = batch_to_records(batch, header)
        placed = [
            (Offset(offset), record)
            for offset, record in enumerate(records, start=header.base_offset)
        ]
        delta = await self._delta_of(placed)
        self._move(delta, Offset(header.last_offset + 1), Term(header.leader_epoch))

    async def _delta_of(self, placed: list[tuple[Offset, MetadataRecord]]) -> MetadataDelta:
        """A batch is told as one change, however long it takes to apply."""
        if len(placed) <= LARGE_BATCH_RECORDS:
            return advance(self._image, placed)[1]
        image = self._image
        for start in range(0, len(placed), SLICE_RECORDS):
            for offset, record in placed[start : start + SLICE_RECORDS]:
                image = image.apply(record, offset)
            await asyncio.sleep(0)
        return delta_between(self._image, image)

    def _move(self, delta: MetadataDelta, end: Offset, term: Term) -> None:
        self._image, self._end, self._last_term = delta.after, end, term
        for subscriber in tuple(self._subscribers):
            subscriber(delta)
        self._moved.set()
        self._moved = asyncio.Event()


class _DeltaReader:
    """Deltas that wait for one reader; too many of them become one."""

    def __init__(self) -> None:
        self._waiting: list[MetadataDelta] = []
        self._arrived = asyncio.Event()

    def put(self, delta: MetadataDelta) -> None:
        self._waiting.append(delta)
        if len(self._waiting) > MAX_QUEUED_DELTAS:
            self._waiting = [delta_between(self._waiting[0].before, delta.after)]
        self._arrived.set()

    async def take(self) -> MetadataDelta:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.pop(0)
