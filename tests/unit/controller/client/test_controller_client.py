"""Brokers and controllers on a simulated network: registration, feeds, calls, hand-over."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from controller_cluster import SimBroker, SimCluster, directory, node, simulate

from tidelog.controller.client.answers import ForwardedRequest
from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.client.controller_client import NotRegistered, RegistrationRefused
from tidelog.controller.client.lifecycle import BrokerState
from tidelog.controller.client.metadata_feed import MetadataDiverged
from tidelog.controller.decisions.alter_partition import (
    AlterPartitionAnswer,
    IsrMember,
    PartitionReport,
)
from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.decisions.outcome import ApiError, Decision
from tidelog.controller.decisions.registration import decide_unregistration
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import (
    Config,
    LeaderRecovery,
    RegisterBroker,
    RemoveTopic,
    ResourceType,
)
from tidelog.controller.service.controller import Cause
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, Offset, PartitionIndex
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import decode_response

CAUSE = Cause("test", "test")


async def create(cluster: SimCluster, name: str, *replicas: int) -> PartitionRef:
    topic = NewTopic(name, assignments=((0, tuple(map(node, replicas))),))
    [made] = await cluster.active.change(
        CAUSE, lambda b: decide_create_topics(b.image, b.policy, [topic], b.random)
    )
    assert not made.error.is_error, made
    return PartitionRef(made.topic_id, PartitionIndex(0))


async def put(cluster: SimCluster, value: str) -> None:
    record = Config(ResourceType.BROKER, "", "x", value)
    await cluster.active.change(CAUSE, lambda _: Decision((record,), None))


def value_of(image: MetadataImage) -> str | None:
    return image.config(ResourceType.BROKER, "").get("x")


# Registration.


def test_a_broker_registers_catches_up_and_runs() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        client = cluster.brokers[11].client
        assert client.state is BrokerState.RUNNING
        assert not client.lifecycle.is_fenced
        assert client.active_controller == 1
        assert client.feed.image.brokers[node(11)].epoch == client.lifecycle.epoch
        assert cluster.now_ms() < 500

    simulate(scenario)


def test_a_broker_heartbeats_before_it_registers() -> None:
    """While it recovers its logs it is known, but not as a member."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        broker.run()
        await asyncio.sleep(10)
        assert broker.client.state is BrokerState.STARTING
        assert broker.client.active_controller == 1
        with pytest.raises(NotRegistered):
            await broker.client.allocate_producer_ids()

    simulate(scenario)


def test_one_moment_for_the_heartbeats_to_all_controllers() -> None:
    """Each link has a time of its own to open, and yet they wake the broker up only once."""

    async def scenario(cluster: SimCluster) -> list[float]:
        await cluster.start(11)
        client = cluster.brokers[11].client
        made = client._heartbeat
        beats: list[float] = []

        def heartbeat() -> pb.HeartbeatRequest:
            beats.append(cluster.now_ms())
            return made()

        for number, link in enumerate(client._links.values()):
            link._make = heartbeat
            cluster.network.reset(11, number + 1)
            await asyncio.sleep(0.13)
        beats.clear()
        await asyncio.sleep(2)
        return beats

    beats = simulate(scenario)
    moments = sorted(set(beats))
    assert [beats.count(moment) for moment in moments] == [3, 3, 3, 3]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses == pytest.approx([500, 500, 500])


def test_only_the_active_controller_unfences() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        broker.run()
        await broker.process.start(broker.client.register(broker.request()))
        await broker.client.wait_for_state(BrokerState.RECOVERY)
        cluster.log.hold()
        broker.client.become_ready()
        await asyncio.sleep(5)
        assert broker.client.state is BrokerState.RECOVERY
        cluster.log.release()
        await cluster.until(lambda: broker.client.state is BrokerState.RUNNING, within_ms=1000)

    simulate(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_registration_survives_lost_answers_and_a_change_of_controllers(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        cluster.log.hold()
        beginning = asyncio.ensure_future(broker.begin())
        await asyncio.sleep(1)
        cluster.log.depose(keep_uncommitted=True)
        cluster.log.commits = True
        await asyncio.sleep(1)
        cluster.log.elect(node(2))
        await beginning
        registrations = [r for r in cluster.records if isinstance(r, RegisterBroker)]
        assert len(registrations) == 1

    simulate(scenario, seed=seed)


def test_a_restarted_broker_takes_over_from_its_last_life() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        first = cluster.brokers[11].client.lifecycle.epoch
        await cluster.network.kill(11)
        again = await cluster.start_broker(11)
        assert first is not None and again.client.lifecycle.epoch is not None
        assert again.client.lifecycle.epoch > first
        assert not cluster.is_fenced(11)

    simulate(scenario)


def test_a_broker_that_lost_power_waits_for_its_old_session() -> None:
    async def scenario(cluster: SimCluster) -> float:
        await cluster.start(11)
        await asyncio.sleep(1)
        await cluster.network.power_off(11)
        start_ms = cluster.now_ms()
        await cluster.start_broker(11)
        return cluster.now_ms() - start_ms

    assert simulate(scenario) < 4000


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_registration_that_is_refused_is_not_tried_again(
    changes: dict[str, object], code: ErrorCode
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        with pytest.raises(RegistrationRefused) as refused:
            await broker.process.start(broker.client.register(broker.request(**changes)))
        assert refused.value.code is code
        assert cluster.now_ms() < 1000

    simulate(scenario)


def test_a_twin_gives_up_when_its_time_is_over() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        twin = cluster.new_broker(11, "elsewhere")
        with pytest.raises(RegistrationRefused) as refused:
            await twin.process.start(twin.client.register(twin.request()))
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    simulate(scenario, initial_broker_registration_timeout_ms="10000")


def test_a_twin_that_is_cut_off_at_last_still_says_why_it_was_refused() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        twin = cluster.new_broker(11, "elsewhere")
        registering = twin.process.start(twin.client.register(twin.request()))
        await asyncio.sleep(5)
        for controller in (1, 2, 3):
            cluster.network.cut_both("elsewhere", controller)
        with pytest.raises(RegistrationRefused) as refused:
            await registering
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    simulate(scenario, initial_broker_registration_timeout_ms="10000")


def test_without_a_quorum_registration_fails_at_its_deadline() -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = cluster.new_broker(11)  # no controller was started
        with pytest.raises(ControllerUnavailable, match="RegisterBroker was not done"):
            await broker.process.start(broker.client.register(broker.request()))
        assert 9_900 <= cluster.now_ms() <= 10_500

    simulate(scenario, initial_broker_registration_timeout_ms="10000")


def test_what_an_answer_was_about_is_waited_for_but_not_for_ever() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        client = cluster.brokers[11].client
        assert await create_through(cluster.brokers[11], "orders") == ErrorCode.NONE
        assert client.feed.image.topics.named("orders") is None, "it is told after the answer"
        before_ms = cluster.now_ms()
        await client.catch_up(within_ms=500)
        assert client.feed.image.topics.named("orders") is not None
        assert cluster.now_ms() - before_ms < 100
        client._told_end = Offset(1_000_000)
        before_ms = cluster.now_ms()
        await client.catch_up(within_ms=500)
        assert cluster.now_ms() - before_ms == pytest.approx(500)

    simulate(scenario)


def test_a_broker_taken_off_the_list_registers_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        client = cluster.brokers[11].client
        first = client.lifecycle.epoch
        await cluster.active.change(
            CAUSE, lambda b: decide_unregistration(b.image, b.policy, node(11))
        )
        await cluster.until(lambda: client.lifecycle.epoch not in (None, first), within_ms=1000)
        await cluster.until(lambda: client.state is BrokerState.RUNNING, within_ms=2000)
        assert first is not None and client.lifecycle.epoch is not None
        assert client.lifecycle.epoch > first

    simulate(scenario)


def test_what_a_start_found_is_not_told_again() -> None:
    """Logs made since then would be taken for lost."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        broker.request = partial(broker.request, held=frozenset())  # type: ignore[method-assign]
        await broker.begin()
        ref = await create(cluster, "t", 11)
        first = broker.client.lifecycle.epoch
        await cluster.active.change(
            CAUSE, lambda b: decide_unregistration(b.image, b.policy, node(11))
        )
        await cluster.until(
            lambda: broker.client.lifecycle.epoch not in (None, first), within_ms=3000
        )
        await cluster.until(lambda: broker.client.state is BrokerState.RUNNING, within_ms=2000)
        state = cluster.active.committed.topics.partition(ref)
        assert state is not None
        assert (state.leader, state.leader_recovery) == (11, LeaderRecovery.RECOVERED)

    simulate(scenario)


def test_an_answer_about_an_earlier_registration_means_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        client = cluster.brokers[11].client
        late = pb.HeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        late.active_controller.node_id, late.active_controller.term = 1, 1
        states: list[BrokerState] = []
        for late.sequence in (1, 1_000_000):
            client._heard(node(1), late)
            states.append(client.state)
        assert states == [BrokerState.RUNNING, BrokerState.STARTING]

    simulate(scenario)


# The feed.


@pytest.mark.parametrize("seed", range(4))
def test_the_feed_changes_controllers_without_gaps_or_repeats(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        client = cluster.brokers[11].client
        seen: list[str | None] = []
        client.feed.subscribe(lambda delta: seen.append(value_of(delta.after)))
        for round_number in range(12):
            await put(cluster, str(round_number))
            await asyncio.sleep(0.02)
            if round_number % 4 == 3:
                cluster.log.elect(node(1 + (round_number // 4 + 1) % 3))
        await cluster.kill_controller(int(cluster.log.leader or 0))
        left = sorted(cluster.log.members)
        cluster.log.elect(left[0])
        await put(cluster, "last")
        await client.feed.wait_for(lambda image: value_of(image) == "last")
        values = [value for i, value in enumerate(seen) if i == 0 or value != seen[i - 1]]
        assert [v for v in values if v is not None] == [*map(str, range(12)), "last"]
        await cluster.until(lambda: client.feed.image == cluster.active.committed, within_ms=2000)

    simulate(scenario, seed=seed)


def test_deltas_build_the_image_also_for_a_late_reader() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        feed = cluster.brokers[11].client.feed
        for value in range(5):
            await put(cluster, str(value))
        await feed.wait_for(lambda image: value_of(image) == "4")
        deltas = feed.deltas()
        first = await anext(deltas)
        assert (first.before, first.after) == (MetadataImage(), feed.image)
        image = first.after
        for value in range(5, 1500):
            await put(cluster, str(value))
        await feed.wait_for(lambda image: value_of(image) == "1499")
        while value_of(image) != "1499":
            delta: MetadataDelta = await anext(deltas)
            assert delta.before is image
            image = delta.after
        await deltas.aclose()

    simulate(scenario)


def test_a_feed_that_lies_behind_gets_a_snapshot() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        ref = await create(cluster, "gone", 11)
        feed = cluster.brokers[11].client.feed
        await feed.wait_for(lambda image: image.topics.named("gone") is not None)
        deltas: list[MetadataDelta] = []
        feed.subscribe(deltas.append)
        cluster.network.pause(11)
        for controller in cluster.controllers.values():
            controller.controller.history._max_records = 5
        remove = RemoveTopic(ref.topic_id)
        await cluster.active.change(CAUSE, lambda _: Decision((remove,), None))
        for value in range(2000):
            await put(cluster, "x" * 500 + str(value))
        await asyncio.sleep(1)
        cluster.network.resume(11)
        await cluster.until(lambda: feed.image == cluster.active.committed, within_ms=9000)
        assert ref.topic_id in [t for delta in deltas for t in delta.topics_deleted]
        assert len(deltas) < 1990

    simulate(scenario)


def test_a_batch_of_very_many_records_is_one_change() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        feed = cluster.brokers[11].client.feed
        deltas: list[MetadataDelta] = []
        feed.subscribe(deltas.append)
        topic = NewTopic("big", assignments=tuple((i, (node(11),)) for i in range(3000)))
        await cluster.active.change(
            CAUSE, lambda b: decide_create_topics(b.image, b.policy, [topic], b.random)
        )
        await feed.wait_for(lambda image: image.topics.named("big") is not None)
        assert len(deltas[-1].partitions) == 3000

    simulate(scenario)


def test_another_history_is_not_followed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        running = broker.run()
        await broker.client.feed.wait_for(lambda image: bool(image.features))
        for number in (1, 2, 3):  # the quorum lost its log and began another one
            await cluster.kill_controller(number)
        cluster.log.__init__()  # type: ignore[misc]
        for number in (1, 2, 3):
            await cluster.start_controller(number)
        cluster.log.term = 7
        cluster.log.elect(node(1))
        for value in range(20):
            await put(cluster, str(value))
        with pytest.raises(ExceptionGroup) as ended:
            await running
        [error] = ended.value.exceptions
        assert isinstance(error, MetadataDiverged)

    simulate(scenario)


def test_a_lagging_standby_is_waited_for() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.log.follower_delay_s = 1.5
        await cluster.start(11)
        client = cluster.brokers[11].client
        await put(cluster, "1")
        await client.feed.wait_for(lambda image: value_of(image) == "1")
        cluster.network.partition([11], [1])
        cluster.log.follower_delay_s = 0.01
        await put(cluster, "2")
        await client.feed.wait_for(lambda image: value_of(image) == "2")

    simulate(scenario)


# Calls.


def create_topic_request(name: str) -> ForwardedRequest:
    request_type = APIS[19].load_request_type(7)
    module = __import__(request_type.__module__, fromlist=["CreatableTopic"])
    topic = module.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    request = request_type(topics=(topic,), timeout=duration_i32(1000), validate_only=False)  # type: ignore[call-arg]
    return ForwardedRequest(19, 7, kio_bytes(request))


async def create_through(broker: SimBroker, name: str) -> int:
    asked = broker.client.forward(create_topic_request(name), timeout_ms=10_000)
    answer = await broker.process.start(asked)
    assert isinstance(answer, bytes), answer
    response: Any = decode_response(19, 7, memoryview(answer).toreadonly())
    return int(response.topics[0].error_code)


def test_a_request_is_forwarded() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        assert await create_through(cluster.brokers[11], "t") == ErrorCode.NONE
        assert cluster.active.committed.topics.named("t") is not None
        assert await create_through(cluster.brokers[11], "t") == ErrorCode.TOPIC_ALREADY_EXISTS
        refused = await cluster.brokers[11].client.forward(ForwardedRequest(0, 9, b""))
        assert isinstance(refused, ApiError) and refused.code is ErrorCode.UNSUPPORTED_VERSION

    simulate(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_forwarded_request_follows_the_active_controller(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        cluster.log.hold()
        waiting = asyncio.ensure_future(create_through(cluster.brokers[11], "t"))
        await asyncio.sleep(1)
        assert not waiting.done()
        await cluster.kill_controller(1)
        await asyncio.sleep(0.5)
        cluster.log.commits = True
        cluster.log.elect(node(3))
        assert await waiting == ErrorCode.NONE
        topics = [batch for batch in cluster.log.committed if len(batch.records) == 2]
        assert cluster.active.committed.topics.named("t") is not None and topics

    simulate(scenario, seed=seed)


def test_a_call_leaves_a_controller_that_hangs() -> None:
    """Nobody resets its connections; only the others can tell that it is no longer active."""

    async def scenario(cluster: SimCluster) -> float:
        await cluster.start(11)
        cluster.network.pause(1)
        waiting = asyncio.ensure_future(create_through(cluster.brokers[11], "t"))
        await asyncio.sleep(1)
        cluster.log.leader = None  # node 1 does not notice: it is stopped
        cluster.log.elect(node(2))
        start_ms = cluster.now_ms()
        assert await waiting == ErrorCode.NONE
        return cluster.now_ms() - start_ms

    assert simulate(scenario) < 1000


def test_an_unreachable_quorum_is_an_error_at_the_deadline() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        cluster.log.depose()
        start_ms = cluster.now_ms()
        with pytest.raises(ControllerUnavailable):
            await create_through(cluster.brokers[11], "t")
        assert 9_900 <= cluster.now_ms() - start_ms <= 10_500

    simulate(scenario)


def test_isr_changes_and_producer_ids() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11, 12)
        ref = await create(cluster, "t", 11, 12)
        client = cluster.brokers[11].client
        await client.feed.wait_for(lambda image: image.topics.partition(ref) is not None)
        state = client.feed.image.topics.partition(ref)
        assert state is not None
        own = client.lifecycle.epoch or BrokerEpoch(0)
        report = PartitionReport(
            ref, state.leader_epoch, state.partition_epoch, (IsrMember(node(11), own),)
        )
        answer: AlterPartitionAnswer = await client.alter_partition([report])
        [verdict] = answer.partitions
        assert verdict.state is not None and verdict.state.isr == (11,)
        assert verdict.state.replicas == (11, 12)
        repeated = await client.alter_partition([report])
        assert repeated.partitions[0].error.code is ErrorCode.INVALID_UPDATE_VERSION
        first, second = await asyncio.gather(
            client.allocate_producer_ids(), client.allocate_producer_ids()
        )
        assert {first.first, second.first} == {0, 1000}
        described = await client.describe_quorum()
        assert [voter.key.node_id for voter in described.voters] == [1, 2, 3]

    simulate(scenario)


# Stopping, and being alone.


def test_controlled_shutdown_hands_leadership_over_first() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11, 12)
        ref = await create(cluster, "t", 11, 12)
        client = cluster.brokers[11].client
        in_time = await cluster.brokers[11].process.start(client.shut_down(timeout_ms=10_000))
        assert in_time and client.state is BrokerState.SHUTTING_DOWN
        state = cluster.active.committed.topics.partition(ref)
        assert state is not None and state.leader == 12
        assert cluster.is_fenced(11)
        other = cluster.brokers[12].client.feed.image.topics.partition(ref)
        assert other is not None and other.leader == 12  # it has heard of it

    simulate(scenario)


@pytest.mark.parametrize("timeout_ms", [1_000, 60_000])
def test_a_shutdown_without_a_quorum_takes_its_time_and_ends(timeout_ms: int) -> None:
    """The time it was given or a session, whichever is shorter."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        cluster.log.depose()
        client = cluster.brokers[11].client
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert not await client.shut_down(timeout_ms=timeout_ms)
        assert client.state is BrokerState.SHUTTING_DOWN
        assert loop.time() - begun == pytest.approx(min(timeout_ms / 1000, 3.0), abs=0.2)

    simulate(scenario)


def test_a_broker_that_reaches_no_controller_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        cluster.log.depose()
        await asyncio.sleep(25)
        cluster.log.elect(node(2))
        await asyncio.sleep(5)

    with caplog.at_level(logging.INFO, logger="tidelog.controller.client.controller_client"):
        simulate(scenario)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("has reached no active controller" in line for line in lines) == 3
    assert sum("reaches the quorum again" in line for line in lines) == 1


def test_offline_directories_are_reported_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start()
        broker = cluster.new_broker(11)
        broker.run()
        request = broker.request(log_dirs=(directory(1), directory(2)))
        await broker.process.start(broker.client.register(request))
        broker.client.report_offline_directories([directory(2)])
        await cluster.until(
            lambda: cluster.active.committed.brokers[node(11)].log_dirs == (directory(1),),
            within_ms=100,
        )

    simulate(scenario)


def test_the_committed_image_is_the_same_everywhere() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11, 12, 13)
        for number in range(10):
            await create(cluster, f"t{number}", 11 + number % 3)
        await cluster.network.kill(13)
        await asyncio.sleep(3)
        images = [c.controller.committed for c in cluster.controllers.values()]
        assert images[0] == images[1] == images[2]
        for number in (11, 12):
            feed = cluster.brokers[number].client.feed
            await cluster.until(lambda feed=feed: feed.image == images[0], within_ms=1000)  # type: ignore[misc]

    simulate(scenario, metadata_max_idle_interval_ms="0")
