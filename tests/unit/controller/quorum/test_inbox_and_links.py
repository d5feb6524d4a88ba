"""What waits is bounded: peers are held back, slow ones lose the oldest, broken streams tell."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tidelog.controller.metadata.records import NoOp
from tidelog.controller.quorum.batches import records_to_data
from tidelog.controller.quorum.inbox import Inbox
from tidelog.controller.quorum.links import Links, PeerLink
from tidelog.controller.quorum.messages import EXCHANGE, to_proto
from tidelog.controller.raft.events import MessageReceived, PeerStreamReset, Persisted
from tidelog.controller.raft.messages import AppendAccepted, AppendRequest, Body, Envelope
from tidelog.controller.raft.model import Entry, EntryKind, ReplicaKey, Term
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import DirectoryId, IncarnationId, NodeId, Offset, TimestampMs, Uuid
from tidelog.kernel.peers import PeerIdentity, PeerRefused, StreamReset
from tidelog.simulation import SimNetwork, SimPeers, SimPeerServer, World, run_simulation
from tidelog.v1.quorum_pb2 import QuorumMessage

ONE, TWO = (ReplicaKey(NodeId(n), DirectoryId(Uuid(bytes([n] * 16)))) for n in (1, 2))
ADDRESSES = {NodeId(n): SocketAddress(f"node-{n}", 9093) for n in (1, 2)}


def envelope(number: int, body: Body | None = None, source: ReplicaKey = ONE) -> Envelope:
    what = AppendAccepted(Offset(number)) if body is None else body
    return Envelope("c", source, NodeId(2), TWO.directory_id, Term(1), what)


def large(number: int, size: int) -> Envelope:
    data = records_to_data([NoOp()], TimestampMs(0)) + bytes(size)
    entry = Entry(Offset(number), Offset(number), Term(1), EntryKind.DATA, data)
    return envelope(number, AppendRequest(Offset(0), Term(0), (entry,), Offset(0)))


# --- the inbox -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("messages", "size"), [(3, 1 << 20), (100, 30)])
def test_who_brings_more_than_fits_waits(messages: int, size: int) -> None:
    async def main(_: World) -> None:
        inbox = Inbox(messages, size)
        for number in range(3):
            await inbox.put_message(envelope(number), 10)
        late = asyncio.create_task(inbox.put_message(envelope(3), 10))
        await asyncio.sleep(0.1)
        assert not late.done()
        inbox.put(Persisted(1))  # our own always fits
        taken = [inbox.take() for _ in range(2)]
        assert taken == [MessageReceived(envelope(0)), MessageReceived(envelope(1))]
        await late
        rest = [inbox.take() for _ in range(4)]
        assert rest == [
            MessageReceived(envelope(2)), Persisted(1), MessageReceived(envelope(3)), None,
        ]  # fmt: skip

    run_simulation(main, 1)


def test_a_message_larger_than_the_inbox_passes_alone() -> None:
    async def main(_: World) -> None:
        inbox = Inbox(10, 100)
        await inbox.put_message(envelope(1), 1000)
        assert inbox.take() == MessageReceived(envelope(1))

    run_simulation(main, 1)


def test_waiting_ends_with_a_message_or_with_the_time() -> None:
    async def main(world: World) -> None:
        inbox = Inbox(10, 100)
        await inbox.wait(50.0)
        assert world.loop.time() == pytest.approx(0.050)
        world.loop.call_later(0.010, inbox.put, Persisted(1))
        await inbox.wait(50.0)
        assert world.loop.time() == pytest.approx(0.060)

    run_simulation(main, 1)


# --- links ---------------------------------------------------------------------------------------


class Pair:
    """Node 1 speaks to node 2, whose server does as it is told."""

    def __init__(self, world: World) -> None:
        self.network = SimNetwork(world)
        self.inbox = Inbox(1000, 1 << 20)
        self.received: list[int] = []
        self.is_reading = True
        self.tasks: list[asyncio.Task[None]] = []
        speaker = self.network.boot(1)
        identity = PeerIdentity(NodeId(1), "c", IncarnationId(Uuid(bytes(16))))
        self.peers = SimPeers(self.network, speaker, identity, AddressBook(ADDRESSES))

    async def listen(self, *, refuse: bool = False) -> None:
        async def handle(_: object, stream: Any) -> None:
            if refuse:
                raise PeerRefused("INVALID_REQUEST", "no")
            while True:
                message = await stream.receive()
                if message.HasField("append_request"):
                    self.received.append(message.append_request.committed_end_offset)
                else:
                    self.received.append(message.append_accepted.match_end_offset)

        process = self.network.boot(2)
        identity = PeerIdentity(NodeId(2), "c", IncarnationId(Uuid(bytes(16))))
        server = SimPeerServer(self.network, process, identity)
        server.on_stream(EXCHANGE, handle)
        await server.start(ADDRESSES[NodeId(2)])

    def spawn(self, work: Coroutine[Any, Any, None], _: str = "") -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.append(task)
        return task

    def events(self) -> list[object]:
        return [self.inbox.take() for _ in range(len(self.inbox))]

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


def test_messages_arrive_in_order_and_a_broken_stream_is_told_and_dialled_again() -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        await pair.listen()
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 1 << 20)
        for number in range(5):
            links.post(envelope(number))
        await asyncio.sleep(0.5)
        assert pair.received == [0, 1, 2, 3, 4]
        assert pair.events() == []
        await pair.network.kill(2)
        await asyncio.sleep(0.1)
        assert pair.events() == [PeerStreamReset(NodeId(2))]
        await pair.listen()
        links.post(envelope(5))
        await asyncio.sleep(0.5)
        assert pair.received[5:] == [5]
        pair.end()

    run_simulation(main, 1)


def append(commit: int, *, is_announcement: bool = False) -> Envelope:
    return envelope(
        0, AppendRequest(Offset(9), Term(1), (), Offset(commit), is_announcement=is_announcement)
    )


def test_an_announcement_lets_others_go_first_and_is_left_out_if_they_tell_the_same() -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        await pair.listen()
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 1 << 20)
        links.post(append(1, is_announcement=True))
        links.post(envelope(100))
        await asyncio.sleep(0.5)
        assert pair.received == [100, 1]
        links.post(append(2, is_announcement=True))
        links.post(append(3, is_announcement=True))
        await asyncio.sleep(0.5)
        assert pair.received[2:] == [3]
        links.post(append(4, is_announcement=True))
        links.post(append(5))
        await asyncio.sleep(0.5)
        assert pair.received[3:] == [5]
        pair.end()

    run_simulation(main, 1)


def test_a_peer_that_is_not_there_is_no_broken_stream_and_costs_nothing() -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 1 << 20)
        for number in range(50):
            links.post(envelope(number))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert links.is_idle, "what was meant for nobody is thrown away"
        assert pair.events() == []
        await pair.listen()
        links.post(envelope(99))
        await asyncio.sleep(1)
        assert pair.received == [99]
        pair.end()

    run_simulation(main, 1)


def test_what_was_meant_for_a_peer_that_is_not_there_is_not_kept_for_its_return() -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 64 << 20)
        for number in range(20):
            links.post(large(number, 1 << 20))
        await asyncio.sleep(1.5)  # one attempt to connect
        assert links.is_idle
        pair.end()

    run_simulation(main, 1)


def test_a_peer_that_refuses_is_no_broken_stream() -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        await pair.listen(refuse=True)
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 1 << 20)
        for number in range(3):
            links.post(envelope(number))
            await asyncio.sleep(1)
        assert pair.received == []
        assert all(isinstance(event, PeerStreamReset) for event in pair.events())
        pair.end()

    run_simulation(main, 1)


@pytest.mark.parametrize(
    ("limits", "posts", "kept"),
    [
        ((3, 1 << 20), [envelope(n) for n in range(10)], 3),
        ((100, 3000), [large(n, 900) for n in range(10)], 2),
        ((100, 10), [large(n, 900) for n in range(10)], 1),
    ],
)
def test_a_slow_peer_loses_the_oldest(
    limits: tuple[int, int], posts: list[Envelope], kept: int
) -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        link = PeerLink(NodeId(2), pair.peers, pair.inbox, *limits)
        for post in posts:
            link.post(post)
        assert link.dropped == len(posts) - kept
        left = []
        while not link.is_idle:
            left.append(link._take())
        assert left == posts[-kept:]

    run_simulation(main, 1)


# --- listening -----------------------------------------------------------------------------------


class ScriptedStream:
    """Gives these messages, then ends."""

    def __init__(self, messages: list[QuorumMessage]) -> None:
        self._messages = messages
        self.is_closed = asyncio.Event()

    async def send(self, message: QuorumMessage) -> None:
        raise AssertionError("nothing is said on a stream that the peer opened")

    def offer(self, message: QuorumMessage) -> bool:
        raise AssertionError("nothing is said on a stream that the peer opened")

    async def receive(self) -> QuorumMessage:
        if self._messages:
            return self._messages.pop(0)
        await self.is_closed.wait()
        raise StreamReset("over")

    def close(self) -> None:
        self.is_closed.set()


class _Context:
    caller = PeerIdentity(NodeId(1), "c", IncarnationId(Uuid(bytes(16))))
    remote_address = "somewhere"


def hear(stream: ScriptedStream, links: Links) -> asyncio.Task[None]:
    return asyncio.create_task(links.listen(_Context(), stream))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        QuorumMessage(),
        to_proto(envelope(1, source=TWO)),  # node 1 speaks for node 2
    ],
)
def test_a_peer_that_speaks_garbage_is_refused_and_nothing_reaches_the_machine(
    message: QuorumMessage,
) -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 1 << 20)
        with pytest.raises(PeerRefused):
            await hear(ScriptedStream([message]), links)
        assert pair.events() == [PeerStreamReset(NodeId(1))]

    run_simulation(main, 1)


def test_a_stream_that_a_newer_one_replaced_says_nothing_when_it_ends() -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        links = Links(pair.peers, pair.inbox, pair.spawn, 100, 1 << 20)
        old, new = ScriptedStream([]), ScriptedStream([to_proto(envelope(1))])
        hearing_old = hear(old, links)
        await asyncio.sleep(0.1)
        hearing_new = hear(new, links)
        await asyncio.sleep(0.1)
        old.close()
        with pytest.raises(StreamReset):
            await hearing_old
        assert pair.events() == [MessageReceived(envelope(1))]
        links.close()  # which ends what is open
        with pytest.raises(StreamReset):
            await hearing_new
        assert pair.events() == [PeerStreamReset(NodeId(1))]

    run_simulation(main, 1)
