"""Watching the metadata: from an offset, from a snapshot, too slowly, with another history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from controller_cluster import context_of

from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import Config, MetadataRecord, NoOp, ResourceType
from tidelog.controller.metadata.snapshot import image_from_records, image_to_records
from tidelog.controller.quorum.batches import batch_to_records
from tidelog.controller.quorum.interface import CommittedBatch
from tidelog.controller.raft.model import SnapshotId, Term
from tidelog.controller.service.controller import Cause
from tidelog.controller.service.history import MetadataHistory, UnknownHistory
from tidelog.kernel.ids import Offset
from tidelog.kernel.peers import PeerRefused, StreamReset
from tidelog.simulation import SimClock
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.batch import check_batch, headers

if TYPE_CHECKING:
    from tests.unit.controller.service.conftest import Desk, ScriptedStream

AtTheDesk = Callable[..., Any]
CAUSE = Cause("test", "test")


def records_of(data: bytes) -> list[MetadataRecord]:
    found: list[MetadataRecord] = []
    for position, header in headers(data):
        found += batch_to_records(data[position : position + header.size], header)
    return found


def replayed(image: MetadataImage, messages: Iterable[pb.WatchMetadataResponse]) -> MetadataImage:
    for message in messages:
        for batch in message.batches.batches:
            header = check_batch(batch)
            for index, record in enumerate(batch_to_records(batch, header)):
                image = image.apply(record, Offset(header.base_offset + index))
    return image


async def put(desk: Desk, value: int) -> None:
    record = Config(ResourceType.BROKER, "", "x", str(value))
    await desk.controller.change(CAUSE, lambda _: Decision((record,), None))


def watch(desk: Desk, stream: ScriptedStream, **request: Any) -> asyncio.Task[None]:
    stream.put(pb.WatchMetadataRequest(**request))
    return asyncio.ensure_future(desk.watching.serve(context_of(11), stream))


def new_stream() -> ScriptedStream:
    from tests.unit.controller.service.conftest import ScriptedStream

    return ScriptedStream()


def test_a_watcher_sees_every_committed_record_and_nothing_else(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        stream = new_stream()
        watching = watch(desk, stream, from_offset=0)
        await asyncio.sleep(0.1)
        desk.log.hold()
        pending = asyncio.ensure_future(put(desk, 1))
        await asyncio.sleep(0.5)
        assert "x" not in replayed(MetadataImage(), stream.sent).config(ResourceType.BROKER, "")
        desk.log.release()
        await pending
        await asyncio.sleep(0.1)
        assert replayed(MetadataImage(), stream.sent) == desk.controller.committed
        last = stream.sent[-1]
        assert last.committed_end_offset == desk.controller.committed.offset + 1
        assert (last.active_controller.node_id, last.active_controller.term) == (1, 1)
        stream.reset()
        with pytest.raises(StreamReset):
            await watching

    at_the_desk(scenario)


def test_those_who_wait_are_answered_before_those_who_watch(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        stream = new_stream()
        await asyncio.sleep(0.1)
        known = desk.controller.committed
        watching = watch(desk, stream, from_offset=known.offset + 1, last_term=1)
        await asyncio.sleep(0.1)
        await asyncio.gather(*(put(desk, value) for value in range(3)))
        assert stream.sent == []
        await asyncio.sleep(0.1)
        [message] = stream.sent
        assert len(message.batches.batches) == 3
        watching.cancel()

    at_the_desk(scenario)


def test_a_watcher_resumes_where_it_was(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        for value in range(5):
            await put(desk, value)
        known = desk.controller.committed
        for value in range(5, 10):
            await put(desk, value)
        stream = new_stream()
        watching = watch(desk, stream, from_offset=known.offset + 1, last_term=1)
        await asyncio.sleep(0.1)
        [message] = stream.sent
        assert len(message.batches.batches) == 5
        assert replayed(known, stream.sent) == desk.controller.committed
        watching.cancel()

    at_the_desk(scenario)


def test_an_idle_stream_shows_signs_of_life(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await asyncio.sleep(0.1)
        end = desk.controller.committed.offset + 1
        stream = new_stream()
        watching = watch(desk, stream, from_offset=end, last_term=1)
        await asyncio.sleep(3.5)
        assert len(stream.sent) == 3
        assert all(message.committed_end_offset == end for message in stream.sent)
        watching.cancel()

    at_the_desk(scenario)


def test_who_is_too_far_behind_gets_a_snapshot_first(
    at_the_desk: AtTheDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.controller.service.watching.MESSAGE_BYTES", 200)

    async def scenario(desk: Desk) -> None:
        desk.controller.history._max_records = 3
        for value in range(20):
            await put(desk, value)
        stream = new_stream()
        watching = watch(desk, stream, from_offset=0)
        await asyncio.sleep(0.1)
        await put(desk, 99)
        await asyncio.sleep(0.1)
        chunks = [m.snapshot for m in stream.sent if m.HasField("snapshot")]
        assert len(chunks) > 1
        assert [c.position for c in chunks] == [200 * i for i in range(len(chunks))]
        data = b"".join(chunk.data for chunk in chunks)
        assert len(data) == chunks[0].total_bytes
        image = image_from_records(records_of(data), Offset(chunks[0].end_offset - 1))
        assert replayed(image, stream.sent) == desk.controller.committed
        watching.cancel()

    at_the_desk(scenario)


def test_a_slow_watcher_is_cut_off_and_holds_nobody_up(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        desk.controller.history._max_records = 10
        slow, fast = new_stream(), new_stream()
        tasks = [watch(desk, stream, from_offset=0) for stream in (slow, fast)]
        await asyncio.sleep(0.1)
        slow.room.clear()
        for value in range(50):
            await put(desk, value)
            await asyncio.sleep(0.01)
        assert replayed(MetadataImage(), fast.sent) == desk.controller.committed
        slow.room.set()
        with pytest.raises(PeerRefused, match="OFFSET_OUT_OF_RANGE"):
            await tasks[0]
        assert not tasks[1].done()
        tasks[1].cancel()

    at_the_desk(scenario)


def test_nonsense_is_refused(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await put(desk, 1)
        with pytest.raises(PeerRefused, match="OFFSET_OUT_OF_RANGE"):
            await watch(desk, new_stream(), from_offset=-1)
        end = desk.controller.committed.offset + 1
        with pytest.raises(PeerRefused, match="FENCED_LEADER_EPOCH"):
            await watch(desk, new_stream(), from_offset=end, last_term=0)
        with pytest.raises(PeerRefused, match="FENCED_LEADER_EPOCH"):
            await watch(desk, new_stream(), from_offset=2, last_term=1)
        silent = asyncio.ensure_future(desk.watching.serve(context_of(11), new_stream()))
        with pytest.raises(PeerRefused, match="REQUEST_TIMED_OUT"):
            await silent

    at_the_desk(scenario)


def test_a_snapshot_from_the_quorum_cuts_watchers_off(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await put(desk, 1)
        stream = new_stream()
        watching = watch(desk, stream, from_offset=0)
        await asyncio.sleep(0.1)
        image = desk.controller.committed
        desk.controller.became_standby()
        records = list(desk.controller.snapshot_records())
        desk.controller.load_snapshot(SnapshotId(Offset(image.offset + 100), Term(4)), records)
        with pytest.raises(PeerRefused, match="OFFSET_OUT_OF_RANGE"):
            await watching

    at_the_desk(scenario)


# The history by itself.


def batch(base: int, term: int, count: int = 1) -> CommittedBatch:
    last = Offset(base + count - 1)
    return CommittedBatch(Offset(base), last, Term(term), (NoOp(),) * count)


@pytest.mark.parametrize(
    ("from_offset", "last_term", "is_known"),
    [
        (0, None, True),
        (0, 0, True),
        (2, 1, True),
        (2, 2, True),  # offset 1 could be a record of the quorum's own
        (2, 3, False),
        (1, 1, False),  # within a batch
        (3, 1, False),
        (3, 2, True),
        (3, 5, True),
        (5, 2, True),
        (5, 5, True),
        (5, 6, False),
        (6, 4, False),
        (9, 7, True),  # ahead of this node, which may have to catch up
    ],
)
def test_positions_in_the_history(from_offset: int, last_term: int | None, is_known: bool) -> None:
    history = MetadataHistory(SimClock())
    for one in (batch(0, 1, 2), batch(2, 2), batch(5, 5)):
        history.append(one, MetadataImage())
    term = None if last_term is None else Term(last_term)
    if is_known:
        history.check_position(Offset(from_offset), term)
    else:
        with pytest.raises(UnknownHistory):
            history.check_position(Offset(from_offset), term)


def test_the_history_keeps_so_many_records_and_always_the_last_batch() -> None:
    history = MetadataHistory(SimClock(), max_records=4)
    for base in range(10):
        history.append(batch(base, 1), MetadataImage())
    assert (history.start_offset, history.end_offset) == (6, 10)
    history.append(batch(10, 1, 50), MetadataImage())
    assert (history.start_offset, history.end_offset) == (10, 60)
    [encoded], end = history.encoded_from(Offset(10), 1)
    assert (check_batch(encoded).records_count, end) == (50, 60)


def test_a_snapshot_is_made_once_for_all_who_need_it(
    at_the_desk: AtTheDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[MetadataImage] = []

    def counted(image: MetadataImage) -> Iterator[MetadataRecord]:
        made.append(image)
        return image_to_records(image)

    monkeypatch.setattr("tidelog.controller.service.history.image_to_records", counted)

    async def scenario(desk: Desk) -> None:
        await put(desk, 1)
        history = desk.controller.history
        first, second = await asyncio.gather(history.snapshot(), history.snapshot())
        assert first is second and len(made) == 1
        records: tuple[MetadataRecord, ...] = (NoOp(),) * 2000
        await desk.controller.change(CAUSE, lambda _: Decision(records, None))
        assert (await history.snapshot()).snapshot.end_offset == history.end_offset
        assert len(made) == 2

    at_the_desk(scenario)
