"""A feed against controllers that send nonsense: it stays where it was and starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.controller.client.active_controller import ActiveController
from tidelog.controller.client.metadata_feed import MetadataFeed
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import FeatureLevel
from tidelog.controller.metadata.snapshot import image_to_records
from tidelog.controller.quorum.batches import records_to_batch
from tidelog.controller.raft.model import Term
from tidelog.kernel.ids import NodeId, Offset, TimestampMs
from tidelog.kernel.peers import PeerRefused, StreamReset
from tidelog.simulation import World, run_simulation
from tidelog.v1 import controller_pb2 as pb

Script = list[pb.WatchMetadataResponse | Exception]


def batch(offset: int, level: int, *more: int) -> bytes:
    records = [FeatureLevel("f", number) for number in (level, *more)]
    return records_to_batch(records, base_offset=offset, term=Term(1), now_ms=TimestampMs(0))


def batches(*encoded: bytes) -> pb.WatchMetadataResponse:
    return pb.WatchMetadataResponse(batches=pb.MetadataBatches(batches=encoded))


def snapshot(end: int, level: int) -> pb.WatchMetadataResponse:
    image = MetadataImage().apply(FeatureLevel("f", level), Offset(end - 1))
    data = records_to_batch(
        list(image_to_records(image)), base_offset=0, term=Term(1), now_ms=TimestampMs(0)
    )
    chunk = pb.MetadataSnapshotChunk(end_offset=end, term=1, total_bytes=len(data), data=data)
    return pb.WatchMetadataResponse(snapshot=chunk)


def flipped(encoded: bytes) -> bytes:
    damaged = bytearray(encoded)
    damaged[-1] ^= 1
    return bytes(damaged)


class _Stream:
    def __init__(self, script: Script, asked: list[pb.WatchMetadataRequest]) -> None:
        self._script = script
        self._asked = asked

    async def send(self, message: pb.WatchMetadataRequest) -> None:
        self._asked.append(message)

    def offer(self, message: Any) -> bool:
        return True

    async def receive(self) -> pb.WatchMetadataResponse:
        if not self._script:
            await asyncio.Event().wait()
        item = self._script.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        """Nothing is behind it."""


class ScriptedPeers:
    """Each stream that is opened plays the next script."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.asked: list[pb.WatchMetadataRequest] = []
        self.opened: list[NodeId] = []

    async def call(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the feed makes no calls")

    def open_stream(self, node: NodeId, _: Any) -> Any:
        self.opened.append(node)
        return _Stream(self.scripts.pop(0) if self.scripts else [], self.asked)


def follow(*scripts: Script) -> tuple[MetadataFeed, ScriptedPeers, list[MetadataDelta]]:
    """A feed that was given these streams one after the other, and ten seconds."""
    peers, deltas = ScriptedPeers(*scripts), list[MetadataDelta]()

    async def main(world: World) -> MetadataFeed:
        active = ActiveController([NodeId(1), NodeId(2), NodeId(3)])
        feed = MetadataFeed(peers, active, world.clock)
        feed.subscribe(deltas.append)
        running = asyncio.ensure_future(feed.run())
        await asyncio.sleep(2)
        running.cancel()
        return feed

    return run_simulation(main, seed=1), peers, deltas


FIRST = batches(batch(0, 1), batch(1, 2, 3))


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(lambda: batches(batch(1, 9)), id="a batch again"),
        pytest.param(lambda: batches(batch(2, 9, 9)), id="a batch that overlaps"),
        pytest.param(lambda: batches(flipped(batch(3, 9))), id="a damaged batch"),
        pytest.param(lambda: batches(b"garbage"), id="no batch at all"),
        pytest.param(lambda: snapshot(3, 9), id="a snapshot of what it has"),
        pytest.param(lambda: snapshot(2, 9), id="a snapshot of the past"),
        pytest.param(lambda: StreamReset("gone"), id="a reset"),
        pytest.param(lambda: PeerRefused("OFFSET_OUT_OF_RANGE", "too slow"), id="cut off"),
    ],
)
def test_nonsense_changes_nothing_and_the_feed_goes_on_elsewhere(
    nonsense: Callable[[], Any],
) -> None:
    feed, peers, deltas = follow([FIRST, nonsense()], [batches(batch(4, 5))])
    assert [(one.from_offset, one.last_term) for one in peers.asked[:2]] == [(0, 0), (3, 1)]
    assert peers.opened[0] != peers.opened[1]
    levels = [delta.after.features["f"] for delta in deltas]
    assert levels == [1, 3, 5]
    assert (feed.end_offset, feed.image.offset) == (5, 4)


def test_a_silent_controller_is_left() -> None:
    peers = ScriptedPeers([FIRST], [batches(batch(3, 4))])

    async def main(world: World) -> float:
        feed = MetadataFeed(peers, ActiveController([NodeId(1), NodeId(2)]), world.clock)
        running = asyncio.ensure_future(feed.run())
        await feed.wait_for(lambda image: image.features.get("f") == 4)
        running.cancel()
        return world.loop.elapsed_ms()

    assert 3000 <= run_simulation(main, seed=1) < 3200


def test_a_snapshot_is_told_as_the_difference() -> None:
    feed, _, deltas = follow([FIRST, snapshot(40, 7), batches(batch(40, 8))])
    assert [delta.after.features["f"] for delta in deltas] == [1, 3, 7, 8]
    assert deltas[2].features == ("f",)
    assert (feed.end_offset, feed.image.offset) == (41, 40)


def test_the_active_controller_is_turned_to() -> None:
    told = batches(batch(3, 4))
    told.active_controller.node_id, told.active_controller.term = 3, 6
    feed, peers, _ = follow([FIRST, told], [batches(batch(4, 5))])
    assert peers.opened[1] == 3
    assert feed.image.features["f"] == 5
