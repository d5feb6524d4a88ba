"""Random schedules over three pure replicas keep what replication promises, and heal."""

from __future__ import annotations

import pytest
from replication_world import World


@pytest.mark.parametrize("seed", range(100))
def test_nothing_committed_is_lost_or_rewritten(seed: int) -> None:
    world = World(seed)
    world.run(3000)
    world.heal()


def test_the_schedules_reach_what_they_are_about() -> None:
    acknowledged, elections, isrs = 0, 0, set()
    for seed in range(12):
        world = World(seed)
        world.run(3000)
        acknowledged += world.acknowledged
        state = world.controller.state(world.ref)
        elections += state.leader_epoch
        for delta in world.controller.deltas:
            changed = delta.after.topics.partition(world.ref)
            if changed is not None:
                isrs.add(len(changed.isr))
    assert acknowledged > 250
    assert elections > 20
    assert isrs >= {1, 2, 3}
