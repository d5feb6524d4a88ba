"""A pass that stops before every single change it makes to the disk (hazard 18, KAFKA-6264).

At each of these points the process is killed, or the power fails and takes another choice of what
was not synced. The log that is found must hold the same newest records, aborted ones must stay
hidden, and the next pass must bring it where an undisturbed one would have.
"""

from __future__ import annotations

import copy

import pytest
from cleaner_world import CleanerWorld
from log_lab import PARTITION, small_config

from tidelog.simulation import CrashAt, SimRandom, SimulatedCrash

CONFIG = small_config(
    cleanup_policy=("compact",),
    internal_segment_bytes=500,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
POWER_SEEDS = (1, 2, 3, 4)


def life() -> CleanerWorld:
    """A log that was cleaned once: tombstones and markers have horizons, which are now over."""
    world = CleanerWorld(CONFIG, seed=3)
    for turn in range(3):
        world.write([(b"a", b"%d" % turn), (b"b", None if turn == 1 else b"x" * 30)])
        world.write_as(1, [(b"c", b"%d" % turn), (b"a", b"kept")])
        world.write_as(2, [(b"d", b"aborted"), (b"a", b"aborted")], is_transactional=True)
        world.write([(b"e", b"y" * 40)])
        world.end_txn(2, commit=False)
        world.write_as(3, [(b"f", None)], is_transactional=True)
        world.end_txn(3, commit=turn != 1)
        world.roll()
        if turn == 1:
            world.commit()
            assert world.clean() is not None
            world.now += 2_000
    world.commit()
    return world


def passed(world: CleanerWorld, nth: int) -> bool:
    """Whether the pass came to its end before its nth change."""
    world.disk.on_operation(CrashAt(nth, landed_bytes=(0, 70, 10**6)[nth % 3]))
    try:
        world.clean()
    except SimulatedCrash:
        return False
    finally:
        world.disk.on_operation(None)
    return True


def revived(world: CleanerWorld, seed: int | None) -> CleanerWorld:
    """The same past on another disk; killed without a seed, else without power."""
    other = copy.copy(world)
    other.model = copy.deepcopy(world.model)
    end = world.log.end_offset
    other.disk = world.disk.kill() if seed is None else world.disk.power_loss(SimRandom(seed))
    other._start()
    other.log.advance_high_watermark(other.log.end_offset)
    assert other.log.end_offset == end
    return other


def test_every_change_to_the_disk_may_be_the_last() -> None:
    undisturbed = life()
    kinds: list[str] = []
    undisturbed.disk.on_operation(lambda kind, path: kinds.append(kind))
    undisturbed.clean()
    undisturbed.disk.on_operation(None)
    undisturbed.now += 2_000
    expected = undisturbed.read_committed()
    assert kinds.count("rename") > 20
    nth = 1
    while True:
        world = life()
        if passed(world, nth):
            break
        for seed in (None, *POWER_SEEDS):
            again = revived(world, seed)
            again.check()
            names = again.disk.list_dir(PARTITION)
            assert [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))] == []
            again.clean()
            assert again.read_committed() == expected
        nth += 1
    assert nth == len(kinds) + 1


@pytest.mark.parametrize("seed", POWER_SEEDS)
def test_a_finished_pass_survives_the_power(seed: int) -> None:
    world = life()
    report = world.clean()
    assert report is not None
    again = revived(world, seed)
    again.check()
    assert again.directory.clean_points.get(world.log.tp) == report.clean_point
    undisturbed = life()
    undisturbed.clean()
    assert again.batches() == undisturbed.batches()
