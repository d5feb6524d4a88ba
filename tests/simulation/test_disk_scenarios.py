"""Disks that lie, hang, fill up or lose bits, and the nodes on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_lab import STEADY, THREE, SimLab, simulate, with_settings
from slow_tests import slow_after

from tidelog.simulation.history import Violation
from tidelog.simulation.log_scan import LogScan

CARELESS = replace(STEADY, has_careless=True)
TWO_DIRECTORIES = with_settings(THREE, {"log.dirs": "/data/logs,/data/more-logs"})
RARE_CHECKPOINTS = with_settings(THREE, {"log.flush.offset.checkpoint.interval.ms": "600000"})
"""Recovery looks at everything: nothing is vouched for by a checkpoint."""


async def restart_all_down(lab: SimLab) -> None:
    await lab.cluster.until(
        lambda: all(
            n.is_serving or not lab.cluster.is_alive(i) for i, n in lab.cluster.nodes.items()
        ),
        "nodes serve or are down",
    )
    await lab.cluster.start()
    await lab.cluster.until_serving()


# --- fsync -----------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("seed", slow_after(1, [1, 2, 3]))
def test_a_failed_fsync_costs_the_node_its_place_until_it_has_fetched_again(
    who: str, seed: int
) -> None:
    """Hazard 44: the next fsync "succeeds", and what the first one lost is gone for good."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.leader() if who == "leader" else lab.followers()[0]
        lab.cluster.nodes[node].disk.faults.fail("sync", lab.log_directory())
        await lab.until_down(node)
        assert "failed" in lab.cluster.halts[0][1]
        # The pages are marked clean: a power loss takes what was never written.
        await lab.cluster.power_loss([node])
        await lab.until_acknowledged(5)
        await lab.cluster.restart(node)
        await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed, workload=CARELESS, failing=(1, 2, 3))


@pytest.mark.parametrize("seed", slow_after(1, [1, 2]))
def test_with_a_second_directory_only_the_broken_one_goes_offline(seed: int) -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.leader()
        replicas = lab.cluster.replicas(node)
        assert replicas is not None
        directory = replicas.partitions[lab.ref()].log.directory
        lab.cluster.nodes[node].disk.faults.fail("sync", directory)
        await lab.until_led_by_another(node)
        await lab.until_acknowledged(10)
        assert lab.cluster.is_alive(node)
        assert replicas.partitions[lab.ref()].failure is not None
        await lab.cluster.kill(node)
        await lab.cluster.restart(node)
        await lab.until_acknowledged(5)
        await lab.finish()

    workload = replace(CARELESS, partitions=2)
    simulate(scenario, seed=seed, plan=TWO_DIRECTORIES, workload=workload, failing=(1, 2, 3))


# --- hanging and full disks ------------------------------------------------------------


def test_a_disk_that_hangs_for_too_long_makes_its_node_give_up_leadership() -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.leader()
        lab.cluster.stall_disk(node, True)
        await lab.until_led_by_another(node)
        await lab.until_acknowledged(5)
        lab.cluster.stall_disk(node, False)
        await lab.until_down(node)
        await lab.cluster.restart(node)
        await lab.finish()

    simulate(scenario)


def test_a_disk_that_hangs_for_a_moment_costs_nothing() -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.leader()
        lab.cluster.stall_disk(node, True)
        await lab.pass_time(2.0)
        lab.cluster.stall_disk(node, False)
        await lab.until_acknowledged(5)
        await lab.finish()
        assert lab.cluster.halts == []

    simulate(scenario)


@pytest.mark.parametrize("seed", slow_after(1, [1, 2, 3]))
def test_a_full_disk_refuses_and_goes_on_when_there_is_room(seed: int) -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.followers()[0] if seed == 3 else lab.leader()
        lab.cluster.limit_disk(node, 3_000)
        await lab.pass_time(6.0)
        lab.cluster.limit_disk(node, None)
        await restart_all_down(lab)
        await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed)


# --- bits ------------------------------------------------------------------------------


def flip_in_log(lab: SimLab, node: int, offset_from_end: int) -> int:
    """Damage the body of a batch; the offset it begins at."""
    view = lab.cluster.disk_view(node)
    directory = lab.log_directory()
    name = [n for n in view.names(directory) if n.endswith(".log")][-1]
    scan = LogScan(directory)
    batches = scan.batches(view)
    wanted = batches[max(0, len(batches) - offset_from_end)]
    for one in [n for n in view.names(directory) if n.endswith(".log")]:
        path = f"{directory}/{one}"
        data = view.read(path)
        at = data.find(wanted.base_offset.to_bytes(8, "big"))
        if at >= 0 and int(one[:20]) <= wanted.base_offset:
            lab.cluster.nodes[node].disk.flip_bit(path, at + 70, 3)
            return wanted.base_offset
    raise AssertionError(f"no batch at {wanted.base_offset} in {name}")


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("seed", slow_after(1, [1, 2, 3]))
def test_a_flipped_bit_that_recovery_finds_is_fetched_again(who: str, seed: int) -> None:
    """Hazards 14 and 41: whoever finds damage does not lead while a sound one is there."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.leader() if who == "leader" else lab.followers()[0]
        await lab.until_acknowledged(10)
        flip_in_log(lab, node, offset_from_end=6)
        await lab.cluster.kill(node)
        # The others go down too, so that the damaged one is the first to be asked for.
        others = [n for n in (1, 2, 3) if n != node]
        await lab.cluster.power_loss(others)
        await lab.cluster.restart(node)
        await lab.pass_time(1.0)
        await lab.cluster.start(others)
        await lab.cluster.until_serving()
        await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed, plan=RARE_CHECKPOINTS, flipped=())


def test_damage_that_nobody_noticed_is_found_by_the_checks_at_the_end() -> None:
    """That a test of this kind can fail at all."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        flip_in_log(lab, lab.followers()[0], offset_from_end=4)
        with pytest.raises(Violation, match="stored CRC"):
            await lab.finish()
        lab.world.loop.watch(None)

    simulate(scenario)
