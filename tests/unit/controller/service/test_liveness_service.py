"""Who is fenced, when and why: heartbeat streams against real handlers and a stalled loop."""

from __future__ import annotations

import asyncio

import pytest
from controller_cluster import SimCluster, node, simulate

from tidelog.controller.client.lifecycle import BrokerState


def test_a_killed_broker_is_fenced_after_the_grace() -> None:
    async def scenario(cluster: SimCluster) -> float:
        await cluster.start(11, 12)
        await asyncio.sleep(5)
        assert not cluster.is_fenced(11)
        await cluster.network.kill(11)
        took_ms = await cluster.until(lambda: cluster.is_fenced(11), within_ms=600)
        assert not cluster.is_fenced(12)
        return took_ms

    assert 300 <= simulate(scenario) <= 450


def test_a_broker_without_power_is_fenced_after_a_silent_session() -> None:
    async def scenario(cluster: SimCluster) -> float:
        await cluster.start(11, 12)
        await asyncio.sleep(5)
        await cluster.network.power_off(11)
        return await cluster.until(lambda: cluster.is_fenced(11), within_ms=4000)

    assert 2500 <= simulate(scenario) <= 3200


def test_a_stream_that_is_back_within_the_grace_costs_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        for _ in range(5):
            cluster.network.reset(11, 1)
            await asyncio.sleep(1)
        assert cluster.fencings == []

    simulate(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_stall_of_the_active_controller_fences_nobody(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11, 12, 13)
        await asyncio.sleep(3)
        cluster.network.pause(1)
        await asyncio.sleep(2.5)
        cluster.network.resume(1)
        await asyncio.sleep(5)
        assert cluster.fencings == []

    simulate(scenario, seed=seed)


def test_a_stall_of_a_standby_that_is_then_elected_fences_nobody() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11, 12)
        await asyncio.sleep(3)
        cluster.network.pause(2)
        await asyncio.sleep(3.5)
        cluster.network.resume(2)
        cluster.log.elect(node(2))
        await asyncio.sleep(5)
        assert cluster.fencings == []

    simulate(scenario)


def test_active_controller_and_broker_killed_together() -> None:
    """The new active controller has noted the reset itself and does not wait for a session."""

    async def scenario(cluster: SimCluster) -> float:
        await cluster.start(11, 12)
        await asyncio.sleep(3)
        killed_ms = cluster.now_ms()
        await cluster.network.kill(11)
        await cluster.kill_controller(1)
        await asyncio.sleep(0.5)  # the election
        cluster.log.elect(node(2))
        await cluster.until(lambda: cluster.is_fenced(11), within_ms=20)
        assert not cluster.is_fenced(12)
        return cluster.now_ms() - killed_ms

    assert simulate(scenario) < 550


def test_a_broker_that_the_new_active_controller_never_met_gets_a_session() -> None:
    async def scenario(cluster: SimCluster) -> float:
        await cluster.start(11, 12)
        await asyncio.sleep(3)
        await cluster.network.kill(11)
        await cluster.kill_controller(1)
        fresh = await cluster.start_controller(1)  # knows the log, met nobody
        await asyncio.sleep(0.2)
        cluster.log.elect(fresh.number)
        took_ms = await cluster.until(lambda: cluster.is_fenced(11), within_ms=4000)
        assert not cluster.is_fenced(12)
        return took_ms

    assert 2900 <= simulate(scenario) <= 3200


def test_a_fenced_broker_is_unfenced_by_its_next_heartbeat() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11, 12)
        await asyncio.sleep(2)
        cluster.network.pause(11)
        await cluster.until(lambda: cluster.is_fenced(11), within_ms=4000)
        cluster.network.resume(11)
        await cluster.until(lambda: not cluster.is_fenced(11), within_ms=1500)
        assert cluster.brokers[11].client.state is BrokerState.RUNNING

    simulate(scenario)


def test_a_second_process_with_the_same_id_does_not_end_the_first() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.start(11)
        twin = cluster.new_broker(11, "elsewhere")
        twin.run()
        registering = twin.process.start(twin.client.register(twin.request()))
        await asyncio.sleep(2)
        assert not registering.done()  # the living one keeps its place
        await cluster.network.kill("elsewhere")
        await asyncio.sleep(2)
        assert cluster.fencings == []

    simulate(scenario)
