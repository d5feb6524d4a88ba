"""The simulated cluster that tests are given: time, faults, and the same again from a seed."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.simulation.simulated_cluster import AsyncView, CallFailed, SimulatedCluster

HOUR_MS = 3_600_000


def story(seed: int) -> list[Any]:
    """What a test may see of a run."""
    with SimulatedCluster(seed) as cluster:
        configs = {"retention.ms": str(HOUR_MS), "segment.ms": str(HOUR_MS // 6)}
        cluster.create_topic("t", configs=configs)
        found: list[Any] = [cluster.produce("t", b"%d" % n, key=b"k") for n in range(2)]
        first = cluster.leader_of("t")
        cluster.kill(first)
        found.append(cluster.produce("t", b"2"))
        assert cluster.leader_of("t") != first
        cluster.restart(first)
        cluster.advance(minutes=30)
        cluster.produce("t", b"3")
        assert [one.value for one in cluster.read("t")] == [b"0", b"1", b"2", b"3"]
        cluster.advance(minutes=45)
        found += [cluster.first_offset("t"), cluster.read("t"), cluster.now_ms]
        return found


def test_retention_and_failover_in_virtual_time_and_again_from_the_same_seed() -> None:
    once = story(5)
    assert once[:4] == [0, 1, 2, 3]
    assert [one.value for one in once[4]] == [b"3"]
    assert story(5) == once


@pytest.mark.asyncio
async def test_a_test_may_have_an_event_loop_of_its_own() -> None:
    with SimulatedCluster(1, nodes=1) as cluster:
        await cluster.aio.create_topic("t", 2)
        assert await cluster.aio.produce("t", b"x", partition=1) == 0
        assert cluster.produce("t", b"y", partition=1) == 1  # blocking, inside of a running loop
        before_ms = cluster.now_ms
        await cluster.aio.advance(days=1)
        assert cluster.now_ms >= before_ms + 24 * HOUR_MS
        await cluster.healthy()
        assert [one.value for one in await cluster.aio.read("t", 1, 1)] == [b"y"]


def test_what_it_refuses() -> None:
    cluster = SimulatedCluster(1, nodes=1)
    with cluster:
        with pytest.raises(ValueError, match="there is no node 2; there are 1"):
            cluster.kill(2)
        with pytest.raises(ValueError, match="time does not go back"):
            cluster.advance(seconds=-1)
        cluster.create_topic("t")
        with pytest.raises(CallFailed, match="TOPIC_ALREADY_EXISTS"):
            cluster.create_topic("t")
        with pytest.raises(CallFailed, match="OFFSET_OUT_OF_RANGE"):
            cluster.read("t", offset=7)
    with pytest.raises(RuntimeError, match="is closed"):
        cluster.leader_of("t")


def test_every_method_that_waits_has_an_asynchronous_form() -> None:
    methods = {
        name for name, one in vars(SimulatedCluster).items() if callable(one) and name[0] != "_"
    }
    view = {name for name in vars(AsyncView) if name[0] != "_"}
    assert methods - {"close", "healthy"} == view
