"""The small pure parts of the client, and the assembly of snapshots."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.controller.client.active_controller import ActiveController
from tidelog.controller.client.quorum_reach import QuorumReach
from tidelog.controller.client.snapshot_assembly import BrokenFeed, SnapshotAssembly
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import EndOfImage, FeatureLevel, MetadataRecord, Topic
from tidelog.controller.metadata.snapshot import DamagedSnapshot, image_to_records
from tidelog.controller.quorum.batches import records_to_batch
from tidelog.controller.raft.model import Term
from tidelog.kernel.ids import NodeId, Offset, TimestampMs, TopicId, Uuid
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.errors import CorruptBatch

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def test_controllers_are_asked_in_turn_until_one_is_known() -> None:
    active = ActiveController([ONE, TWO, THREE])
    assert {active.pick() for _ in range(3)} == {1, 2, 3}
    assert active.learn(TWO, 5)
    assert [active.pick(), active.pick()] == [2, 2]


def test_the_highest_term_wins() -> None:
    active = ActiveController([ONE, TWO, THREE])
    active.learn(TWO, 5)
    assert not active.learn(ONE, 4)
    assert active.believed == 2
    assert not active.learn(TWO, 6)  # no news
    assert active.learn(THREE, 7)
    assert active.believed == 3


def test_a_doubted_controller_is_dropped_and_may_return() -> None:
    active = ActiveController([ONE, TWO])
    active.learn(TWO, 5)
    active.doubt(ONE)
    assert active.believed == 2
    active.doubt(TWO)
    assert active.believed is None
    assert active.learn(TWO, 5)


def test_news_are_told_whoever_brings_them() -> None:
    active = ActiveController([ONE, TWO])
    told: list[NodeId | None] = []
    active.follow(lambda: told.append(active.believed))
    for node, term in ((TWO, 5), (TWO, 5), (ONE, 4), (ONE, 6)):
        active.learn(node, term)
    assert told == [2, 1]


def test_there_must_be_somebody_to_ask() -> None:
    with pytest.raises(ValueError, match="no controller"):
        ActiveController([])


def test_silence_is_told_once_and_then_every_ten_seconds() -> None:
    reach = QuorumReach(0, session_ms=3000)
    told = [second for second in range(30) if reach.check(second * 1000.0) is not None]
    assert told == [3, 13, 23]
    assert reach.heard(30_000)
    assert not reach.heard(30_500)
    assert reach.check(33_000) is None
    assert reach.check(33_500) == 3000


# Snapshots.


def data_of(records: list[MetadataRecord]) -> bytes:
    return records_to_batch(records, base_offset=0, term=Term(2), now_ms=TimestampMs(0))


def chunk(data: bytes, start: int, size: int, **changes: int) -> pb.MetadataSnapshotChunk:
    values = {"end_offset": 40, "term": 2, "position": start, "total_bytes": len(data)} | changes
    return pb.MetadataSnapshotChunk(data=data[start : start + size], **values)


def image() -> MetadataImage:
    made = MetadataImage().apply(FeatureLevel("metadata.version", 30), Offset(39))
    for number in range(20):
        topic_id = TopicId(Uuid(number.to_bytes(16, "big")))
        made = made.apply(Topic(f"t{number}", topic_id), Offset(39))
    return made


def test_chunks_become_the_image() -> None:
    data = data_of(list(image_to_records(image())))
    assembly = SnapshotAssembly()
    ends = [assembly.add(chunk(data, start, 100)) for start in range(0, len(data), 100)]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert asyncio.run(assembly.image()) == image()


@pytest.mark.parametrize(
    "second",
    [
        {"position": 99},
        {"position": 101},
        {"end_offset": 41},
        {"term": 3},
        {"total_bytes": 9},
    ],
)
def test_chunks_that_do_not_fit_are_refused(second: dict[str, int]) -> None:
    data = data_of(list(image_to_records(image())))
    assembly = SnapshotAssembly()
    assembly.add(chunk(data, 0, 100))
    with pytest.raises(BrokenFeed):
        assembly.add(chunk(data, 100, 100, **second))


def test_absurd_sizes_are_refused() -> None:
    for total in (-1, 0, 1 << 40):
        with pytest.raises(BrokenFeed):
            SnapshotAssembly().add(chunk(b"x" * 100, 0, 100, total_bytes=total))
    assembly = SnapshotAssembly()
    with pytest.raises(BrokenFeed):
        assembly.add(chunk(b"x" * 100, 0, 100, total_bytes=50))
    with pytest.raises(BrokenFeed):
        SnapshotAssembly().add(chunk(b"", 0, 0, total_bytes=50))


def assembled(records: list[MetadataRecord]) -> MetadataImage:
    data = data_of(records)
    assembly = SnapshotAssembly()
    assert assembly.add(chunk(data, 0, len(data)))
    return asyncio.run(assembly.image())


def test_a_snapshot_that_lost_records_is_never_a_cluster_that_lost_topics() -> None:
    records = list(image_to_records(image()))
    assert assembled(records) == image()
    for missing in range(len(records)):
        with pytest.raises(DamagedSnapshot):
            assembled([record for i, record in enumerate(records) if i != missing])
    with pytest.raises(DamagedSnapshot):
        assembled([*records, EndOfImage(21, 20, 0, 0)])


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(data_of(list(image_to_records(image()))))
    data[len(data) // 2] ^= 1
    assembly = SnapshotAssembly()
    assembly.add(chunk(bytes(data), 0, len(data)))
    with pytest.raises(CorruptBatch):
        asyncio.run(assembly.image())
