"""A pass that stops before every single change it makes to the disk (hazard 18, KAFKA-6264).

At each of these points the process is killed, or the power fails and takes another choice of what
was not synced. The log that is found must hold the same newest records, aborted ones must stay
hidden, and the next pass must bring it where an undisturbed one would have.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from cleaner_world import CleanerWorld
from log_lab import PARTITION, batch_of, small_config

from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash
from tidelog.storage.tidy import finish_interrupted_work

CONFIG = small_config(
    cleanup_policy=("compact",),
    internal_segment_bytes=250,
    segment_index_bytes=2_400,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
LATER = replace(CONFIG, internal_segment_bytes=900)
"""Under which several old segments become one new one."""
POWER_SEEDS = (1, 2, 3, 4)


def life() -> CleanerWorld:
    """A log that was cleaned once: tombstones and markers have horizons, which are now over."""
    world = CleanerWorld(CONFIG, seed=3)
    for turn in range(2):
        world.write([(b"a", b"%d" % turn), (b"b", None if turn == 0 else b"x" * 30)])
        world.write_as(2, [(b"d", b"aborted"), (b"a", b"aborted")], is_transactional=True)
        world.write_as(1, [(b"c", b"%d" % turn), (b"a", b"kept")])
        world.end_txn(2, commit=False)
        if turn == 0:  # of this producer only an empty batch will be left
            world.write_as(4, [(b"g", b"aborted")], is_transactional=True)
            world.end_txn(4, commit=False)
        world.write_as(3, [(b"f", None)], is_transactional=True)
        world.end_txn(3, commit=turn != 1)
        world.roll()
        if turn == 0:
            world.commit()
            assert world.clean() is not None
            world.now += 2_000
    world.config = LATER
    world.log.update_config(LATER)
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
    assert len(undisturbed.log.segments) < len(life().log.segments) - 1
    nth = 1
    while True:
        world = life()
        if passed(world, nth):
            break
        for seed in (*POWER_SEEDS, None):  # a killed machine goes on with the same disk
            # Other seeds at each point: the first thing a seed draws is how much is lost.
            again = revived(world, None if seed is None else 100 * nth + seed)
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


@pytest.mark.parametrize(
    ("found", "left"),
    [
        # The new index has its name already, the new log not yet: the index is not the old one.
        (["0.log.swap", "0.txnindex"], ["0.log", "0.txnindex"]),
        # The old log is there: so is the old index, and the new segment has none (Kafka).
        (["0.log", "0.txnindex", "0.log.swap"], ["0.log"]),
        # Everything old is there still.
        (["0.log", "0.index", "4.log", "4.index", "0.log.swap", "0.index.swap"],
         ["0.index", "0.log"]),
        # The new segment is not complete, so it is worthless.
        (["0.log", "4.log", "0.log.swap", "0.index.cleaned"], ["0.log", "4.log"]),
        # The new log has its name: what is left to do is to rename the rest.
        (["0.log", "0.index.swap", "8.log", "0.log.deleted"], ["0.index", "0.log", "8.log"]),
    ],
)  # fmt: skip
def test_what_a_restart_makes_of_files_in_the_middle_of_a_swap(
    found: list[str], left: list[str]
) -> None:
    disk = SimDisk()
    disk.make_dirs(PARTITION)
    new = batch_of([b"v"] * 6, base_offset=0)
    for name in found:
        number, _, rest = name.partition(".")
        file = disk.open(f"{PARTITION}/{int(number):020d}.{rest}", create=True)
        file.pwrite(new if "log" in rest else b"", 0)
    finish_interrupted_work(disk, PARTITION, lambda note: None)
    assert disk.list_dir(PARTITION) == [f"{int(n[0]):020d}{n[1:]}" for n in left]
