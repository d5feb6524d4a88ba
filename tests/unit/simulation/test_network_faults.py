"""Each fault of the simulated network, as the nodes notice it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import (
    CallContext,
    Lane,
    PeerDeadlineExceeded,
    PeerError,
    PeerIdentity,
    PeerRefused,
    Peers,
    PeerStream,
    PeerUnavailable,
    Stream,
    StreamReset,
    Unary,
)
from tidelog.simulation import (
    LinkQuality,
    NetworkSettings,
    SimNetwork,
    SimPeers,
    SimPeerServer,
    SimulatedCrash,
    World,
    run_simulation,
)
from tidelog.v1.controller_pb2 import ForwardRequest, ForwardResponse
from tidelog.v1.replication_pb2 import FetchRequest, FetchResponse

FORWARD = Unary("/tidelog.v1.Controller/Forward", ForwardRequest, ForwardResponse)
FETCH = Stream("/tidelog.v1.Replication/Fetch", FetchRequest, FetchResponse, Lane.BULK)
FetchEnd: TypeAlias = PeerStream[FetchResponse, FetchRequest]
CallerEnd: TypeAlias = PeerStream[FetchRequest, FetchResponse]
ONE, TWO = NodeId(1), NodeId(2)
TIMEOUT_S = 8.0
LARGE = FetchRequest.FromString(b"\xfa\x06\x80\x80\x40" + bytes(1 << 20))


class Nodes:
    """Nodes that answer calls and echo streams, and note what reached them."""

    def __init__(self, world: World, network_settings: NetworkSettings | None = None) -> None:
        self.loop = world.loop
        self.network = SimNetwork(world, settings=network_settings)
        self.called: list[bytes] = []
        self.received: list[int] = []
        self.resets: list[tuple[int, float]] = []
        self._addresses = {
            NodeId(node): SocketAddress(f"node-{node}", 9093) for node in range(1, 4)
        }
        self.peers: dict[int, SimPeers] = {}

    async def start(self, *nodes: int) -> None:
        for node in nodes:
            process = self.network.boot(node)
            incarnation = IncarnationId(Uuid(bytes([node, process.incarnation] * 8)))
            identity = PeerIdentity(NodeId(node), "the-cluster", incarnation)
            server = SimPeerServer(self.network, process, identity)
            server.on_unary(FORWARD, self.forward)
            server.on_stream(FETCH, self.echo)
            await server.start(self._addresses[NodeId(node)])
            self.peers[node] = SimPeers(
                self.network, process, identity, AddressBook(self._addresses)
            )

    async def forward(self, _: CallContext, request: ForwardRequest) -> ForwardResponse:
        self.called.append(request.request)
        match request.client_address:
            case "fail":
                raise ZeroDivisionError("a defect")
            case "crash":
                raise SimulatedCrash
            case "wait":
                await asyncio.sleep(5)
        return ForwardResponse(response=request.request)

    async def echo(self, context: CallContext, stream: FetchEnd) -> None:
        try:
            while True:
                request = await stream.receive()
                self.received.append(request.correlation_id)
                await stream.send(FetchResponse(correlation_id=request.correlation_id))
        except StreamReset:
            self.resets.append((context.caller.node_id, self.loop.time()))
            raise

    async def stream(self) -> CallerEnd:
        """From node 1 to node 2, in use."""
        stream = self.peers[1].open_stream(TWO, FETCH)
        await ping(stream, 0)
        return stream

    async def until(self, time_s: float) -> None:
        await asyncio.sleep(time_s - self.loop.time())

    async def seconds_to_reset(self, stream: CallerEnd) -> float:
        began_s = self.loop.time()
        with pytest.raises(StreamReset):
            while True:
                await stream.receive()
        return self.loop.time() - began_s


async def ask(
    peers: Peers, text: bytes = b"x", client_address: str = "", timeout_ms: float = 1000
) -> bytes:
    request = ForwardRequest(request=text, client_address=client_address)
    return (await peers.call(TWO, FORWARD, request, timeout_ms=timeout_ms)).response


async def ping(stream: CallerEnd, number: int) -> None:
    await stream.send(FetchRequest(correlation_id=number))
    assert (await stream.receive()).correlation_id == number


def run(
    story: Callable[[Nodes], Awaitable[None]],
    network_settings: NetworkSettings | None = None,
    seeds: int = 10,
) -> None:
    async def main(world: World) -> None:
        nodes = Nodes(world, network_settings)
        await nodes.start(1, 2)
        await story(nodes)

    for seed in range(seeds):
        run_simulation(main, seed, time_limit_s=1000)


# ---- processes that end


def test_a_killed_process_resets_its_streams_at_once_and_is_found_again() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        pending = asyncio.create_task(ask(nodes.peers[1], client_address="wait", timeout_ms=9000))
        await asyncio.sleep(1)
        await nodes.network.kill(TWO)
        assert await nodes.seconds_to_reset(stream) < 0.01
        with pytest.raises(PeerUnavailable):
            await pending
        began_s = nodes.loop.time()
        with pytest.raises(PeerUnavailable):
            await ask(nodes.peers[1])
        with pytest.raises(PeerUnavailable):
            await nodes.peers[1].open_stream(TWO, FETCH).receive()
        assert nodes.loop.time() - began_s < 0.5
        await nodes.start(2)
        assert await ask(nodes.peers[1]) == b"x"
        await nodes.stream()

    run(story)


def test_the_caller_s_kill_resets_the_handler_s_stream() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.stream()
        killed_s = nodes.loop.time()
        await nodes.network.kill(ONE)
        await asyncio.sleep(0.1)
        assert [caller for caller, _ in nodes.resets] == [1]
        assert nodes.resets[0][1] - killed_s < 0.01

    run(story)


def test_a_host_without_power_is_silent_until_the_time_out() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        await nodes.network.power_off(TWO)
        with pytest.raises(PeerDeadlineExceeded):
            await ask_on_known_connection(nodes)
        took_s = await nodes.seconds_to_reset(stream)
        assert TIMEOUT_S - 1.5 < took_s <= TIMEOUT_S

    async def ask_on_known_connection(nodes: Nodes) -> None:
        await ask(nodes.peers[1])

    async def with_known_connection(nodes: Nodes) -> None:
        await ask(nodes.peers[1])
        await story(nodes)

    run(with_known_connection)


def test_a_host_that_has_power_again_resets_what_it_does_not_know() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        await nodes.network.power_off(TWO)
        await asyncio.sleep(2)
        await nodes.start(2)
        assert await nodes.seconds_to_reset(stream) < 0.01
        await nodes.stream()

    run(story)


def test_connecting_to_a_host_without_power_takes_a_second() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.network.power_off(TWO)
        began_s = nodes.loop.time()
        with pytest.raises(PeerUnavailable):
            await ask(nodes.peers[1], timeout_ms=5000)
        assert 0.9 < nodes.loop.time() - began_s < 1.1

    run(story)


def test_a_dead_process_sends_nothing() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        old = nodes.peers[1]
        await nodes.network.kill(ONE)
        assert not stream.offer(FetchRequest(correlation_id=7))
        with pytest.raises(PeerUnavailable):
            await ask(old)
        with pytest.raises(PeerUnavailable):
            await old.open_stream(TWO, FETCH).receive()
        await asyncio.sleep(1)
        assert nodes.received == [0]

    run(story)


# ---- stopped processes


def test_a_stopped_process_answers_nothing_and_loses_nothing() -> None:
    async def story(nodes: Nodes) -> None:
        await ask(nodes.peers[1])
        stream = await nodes.stream()
        nodes.network.pause(TWO)
        for number in range(1, 20):
            assert stream.offer(FetchRequest(correlation_id=number))
        with pytest.raises(PeerDeadlineExceeded):
            await ask(nodes.peers[1], b"while stopped")
        with pytest.raises(PeerUnavailable):  # connected, but never accepted
            await nodes.peers[1].open_stream(TWO, FETCH).receive()
        assert nodes.received == [0]
        nodes.network.resume(TWO)
        assert [(await stream.receive()).correlation_id for _ in range(1, 20)] == [*range(1, 20)]
        assert nodes.received == [*range(20)]

    run(story)


def test_a_stopped_process_holds_its_senders_up() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.pause(TWO)
        accepted = 0
        for _ in range(100):
            accepted += stream.offer(LARGE)
            await asyncio.sleep(0.01)
        assert 3 <= accepted <= 6  # the outbox, and what one window lets out
        nodes.network.resume(TWO)
        await asyncio.sleep(1)
        assert stream.offer(LARGE)

    run(story, seeds=3)


def test_a_process_stopped_for_long_is_given_up_and_notices_when_it_goes_on() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.pause(TWO)
        took_s = await nodes.seconds_to_reset(stream)
        assert took_s == pytest.approx(TIMEOUT_S)
        await asyncio.sleep(5)
        assert nodes.resets == []
        nodes.network.resume(TWO)
        await asyncio.sleep(0.1)
        assert len(nodes.resets) == 1

    run(story)


def test_a_stopped_caller_keeps_its_streams_if_it_is_not_given_up() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.pause(ONE)
        assert stream.offer(FetchRequest(correlation_id=1))
        await asyncio.sleep(TIMEOUT_S - 1)
        assert nodes.received == [0]
        nodes.network.resume(ONE)
        assert (await stream.receive()).correlation_id == 1

    run(story)


# ---- cuts


def test_a_cut_of_one_direction_holds_messages_back_until_it_heals() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.cut(ONE, TWO)
        for number in range(1, 10):
            assert stream.offer(FetchRequest(correlation_id=number))
        await asyncio.sleep(5)
        assert nodes.received == [0]
        nodes.network.heal()
        assert [(await stream.receive()).correlation_id for _ in range(1, 10)] == [*range(1, 10)]
        await asyncio.sleep(60)
        await ping(stream, 10)

    run(story)


def test_a_cut_of_one_direction_lets_the_other_pass() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.cut(TWO, ONE)
        assert stream.offer(FetchRequest(correlation_id=1))
        await asyncio.sleep(1)
        assert nodes.received == [0, 1]
        nodes.network.mend(TWO, ONE)
        assert (await stream.receive()).correlation_id == 1

    run(story)


def test_a_long_cut_of_one_direction_is_noticed_by_both_sides() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.cut(ONE, TWO)
        cut_s = nodes.loop.time()
        assert await nodes.seconds_to_reset(stream) == pytest.approx(TIMEOUT_S)
        await asyncio.sleep(1)
        assert len(nodes.resets) == 1
        assert nodes.resets[0][1] - cut_s == pytest.approx(TIMEOUT_S, abs=0.1)

    run(story)


def test_a_cut_of_one_lane_leaves_the_other() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.cut(ONE, TWO, Lane.BULK.value)
        assert stream.offer(FetchRequest(correlation_id=1))
        assert await ask(nodes.peers[1]) == b"x"
        await asyncio.sleep(1)
        assert nodes.received == [0]

    run(story)


def test_a_kill_behind_a_cut_is_learnt_when_the_cut_heals() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.cut_both(ONE, TWO)
        await nodes.network.kill(TWO)
        waiting = asyncio.create_task(stream.receive())
        await asyncio.sleep(5)
        assert not waiting.done()
        nodes.network.heal()
        with pytest.raises(StreamReset):
            await waiting
        assert nodes.loop.time() < 5.2

    run(story)


@pytest.mark.parametrize("has_power", [True, False])
def test_what_a_cut_held_back_is_lost_with_the_power_of_its_host(has_power: bool) -> None:
    received: list[int] = []

    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.cut(ONE, TWO)
        for number in range(1, 4):
            assert stream.offer(FetchRequest(correlation_id=number))
        await asyncio.sleep(1)
        await (nodes.network.kill(ONE) if has_power else nodes.network.power_off(ONE))
        await asyncio.sleep(1)
        nodes.network.heal()
        await asyncio.sleep(TIMEOUT_S)
        received.extend(nodes.received[1:])
        assert len(nodes.resets) == 1

    run(story, NetworkSettings(quality=LinkQuality(max_delay_ms=100)), seeds=20)
    assert bool(received) is has_power, "a host sends again what was given to it, while it can"


def test_a_partition_cuts_groups_from_each_other() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.start(3)
        nodes.network.partition([1], [2, 3])
        with pytest.raises(PeerUnavailable):
            await ask(nodes.peers[1])
        assert await ask(nodes.peers[3]) == b"x"

    run(story)


def test_a_call_that_was_given_up_may_be_carried_out_after_all() -> None:
    outcomes: list[bool] = []

    async def story(nodes: Nodes) -> None:
        await ask(nodes.peers[1])
        nodes.network.cut(ONE, TWO)
        with pytest.raises(PeerDeadlineExceeded):
            await ask(nodes.peers[1], b"late")
        nodes.network.heal()
        await asyncio.sleep(5)
        outcomes.append(b"late" in nodes.called)

    run(story, seeds=20)
    assert True in outcomes


# ---- bad links


def test_a_reset_ends_both_sides_and_the_next_stream_works() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.reset(ONE, TWO)
        assert await nodes.seconds_to_reset(stream) < 0.01
        await asyncio.sleep(0.01)
        assert len(nodes.resets) == 1
        await nodes.stream()

    run(story)


def test_a_reset_of_one_lane_leaves_the_other() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        nodes.network.reset(ONE, TWO, Lane.CONTROL.value)
        await asyncio.sleep(1)
        await ping(stream, 1)

    run(story)


def test_connecting_again_is_paced() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        for _ in range(5):
            nodes.network.reset(ONE, TWO)
            await nodes.seconds_to_reset(stream)
            reset_s = nodes.loop.time()
            stream = await nodes.stream()
            assert 0.016 <= nodes.loop.time() - reset_s < 0.05

    run(story)


def with_quality(quality: LinkQuality) -> NetworkSettings:
    return NetworkSettings(quality=quality)


def test_loss_delays_but_keeps_streams_whole() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        for number in range(1, 101):
            assert stream.offer(FetchRequest(correlation_id=number))
        received = [(await stream.receive()).correlation_id for _ in range(100)]
        assert received == [*range(1, 101)]
        assert nodes.loop.time() > 0.2

    run(story, with_quality(LinkQuality(loss=0.1)))


def test_some_links_break_connections() -> None:
    async def story(nodes: Nodes) -> None:
        resets = 0
        for number in range(30):
            with contextlib.suppress(PeerError):
                await ask(nodes.peers[1], b"%d" % number)
                continue
            resets += 1
        assert 0 < resets < 30
        executed = len(nodes.called)
        assert executed > 30 - resets, "a lost call was carried out all the same"

    run(story, with_quality(LinkQuality(reset=0.2)))


def test_calls_arrive_twice_where_the_link_says_so() -> None:
    async def story(nodes: Nodes) -> None:
        for number in range(50):
            assert await ask(nodes.peers[1], b"%d" % number) == b"%d" % number
        await asyncio.sleep(1)
        assert 55 < len(nodes.called) < 95
        assert {*nodes.called} == {b"%d" % number for number in range(50)}

    run(story, with_quality(LinkQuality(duplicate=0.5)))


def test_calls_overtake_each_other() -> None:
    async def story(nodes: Nodes) -> None:
        await ask(nodes.peers[1], b"first")
        await asyncio.gather(*(ask(nodes.peers[1], b"%d" % number) for number in range(20)))
        arrived = nodes.called[1:]
        assert sorted(arrived) != arrived
        assert len({*arrived}) == 20

    run(story)


def test_a_slow_link_takes_its_time_and_delays_only_its_lane() -> None:
    async def story(nodes: Nodes) -> None:
        stream = await nodes.stream()
        slow = LinkQuality(bytes_per_s=500_000)
        nodes.network.set_quality(ONE, TWO, slow, Lane.BULK.value)
        began_s = nodes.loop.time()
        assert stream.offer(LARGE) and stream.offer(FetchRequest(correlation_id=9))
        await ask(nodes.peers[1])
        assert nodes.loop.time() - began_s < 0.1
        await stream.receive()
        assert (await stream.receive()).correlation_id == 9
        assert nodes.loop.time() - began_s == pytest.approx((1 << 20) / 500_000, rel=0.01)
        nodes.network.set_quality(ONE, TWO, None, Lane.BULK.value)
        began_s = nodes.loop.time()
        await ping(stream, 10)
        assert nodes.loop.time() - began_s < 0.1

    run(story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_delay_ms": 5.0, "max_delay_ms": 1.0},
        {"min_delay_ms": -1.0},
        {"loss": 1.0},
        {"reset": -0.1},
        {"bytes_per_s": 0.0},
    ],
)
def test_a_quality_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        replace(LinkQuality(), **wrong)


# ---- defects


def test_a_handler_that_fails_fails_the_simulation_and_refuses_its_caller() -> None:
    async def story(nodes: Nodes) -> None:
        with pytest.raises(PeerRefused, match="UNKNOWN_SERVER_ERROR"):
            await ask(nodes.peers[1], client_address="fail")
        await ask(nodes.peers[1])

    with pytest.raises(ZeroDivisionError, match="a defect") as failed:
        run(story)
    assert failed.value.__notes__ == ["the handler of Controller/Forward of node-2#1 failed"]


def test_a_machine_that_crashed_answers_nothing_and_is_no_defect() -> None:
    async def story(nodes: Nodes) -> None:
        with pytest.raises(PeerDeadlineExceeded):
            await ask(nodes.peers[1], client_address="crash")

    run(story)


# ---- the order within a stream

Disturbance: TypeAlias = tuple[float, str]
DISTURBANCES = ["cut up", "cut down", "heal", "reset", "pause", "resume", "kill"]


@settings(derandomize=True, max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    disturbances=st.lists(st.tuples(st.floats(0, 20), st.sampled_from(DISTURBANCES)), max_size=8),
    quality=st.builds(
        LinkQuality,
        max_delay_ms=st.floats(1, 300),
        loss=st.sampled_from([0.0, 0.3]),
        reset=st.sampled_from([0.0, 0.0, 0.01]),
        spike=st.sampled_from([0.0, 0.2]),
    ),
    count=st.integers(1, 60),
)
def test_a_stream_delivers_a_beginning_of_what_was_sent(
    seed: int, disturbances: list[Disturbance], quality: LinkQuality, count: int
) -> None:
    async def disturb(nodes: Nodes, at_s: float, what: str) -> None:
        await asyncio.sleep(at_s)
        network = nodes.network
        match what:
            case "cut up":
                network.cut(ONE, TWO)
            case "cut down":
                network.cut(TWO, ONE)
            case "heal":
                network.heal()
            case "reset":
                network.reset(ONE, TWO)
            case "pause":
                network.pause(TWO)
            case "resume":
                network.resume(TWO)
            case "kill":
                await network.kill(TWO)

    async def main(world: World) -> None:
        nodes = Nodes(world, with_quality(quality))
        await nodes.start(1, 2)
        ongoing = [asyncio.create_task(disturb(nodes, *one)) for one in disturbances]
        stream = nodes.peers[1].open_stream(TWO, FETCH)
        answered: list[int] = []

        async def send_all() -> None:
            for number in range(count):
                await stream.send(FetchRequest(correlation_id=number))
                await asyncio.sleep(world.random.random())

        sending = asyncio.create_task(send_all())
        with contextlib.suppress(PeerError):
            while len(answered) < count:
                answered.append((await stream.receive()).correlation_id)
        sending.cancel()
        await asyncio.gather(sending, *ongoing, return_exceptions=True)
        assert answered == [*range(len(answered))]
        assert nodes.received == [*range(len(nodes.received))]
        assert len(answered) <= len(nodes.received)
        if not disturbances and quality.reset == 0:
            assert len(answered) == count

    run_simulation(main, seed, time_limit_s=2000)
