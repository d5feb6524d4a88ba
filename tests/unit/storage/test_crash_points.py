"""A fixed life of a log, stopped before every single change that it makes to the disk.

At each of these points the machine is stopped in several ways: the process is killed, or the
power fails and takes another choice of what was not synced. What is then found is held against
the model (``log_world``), the log goes on for a while, and loses power once more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_lab import small_config
from log_world import LogWorld

from tidelog.simulation import SimRandom, SimulatedCrash

Step = Callable[[LogWorld], None]
POWER_SEEDS = (1, 2, 3)

VALUES = [b"a" * 40, b"b" * 25]


def flush_with_an_append_between(world: LogWorld) -> None:
    world.begin_flush()
    world.append([b"not flushed yet"])
    while world.flush is not None:
        world.step_flush()


def flush_with_a_truncation_between(world: LogWorld) -> None:
    world.begin_flush()
    world.step_flush()
    world.truncate_to(world.end - 3)
    world.append([b"written over"])
    while world.flush is not None:
        world.step_flush()


def commit_all(world: LogWorld) -> None:
    world.finish_flush()
    world.advance_high_watermark(world.end)


SCRIPT: list[Step] = [
    lambda w: w.append(VALUES),
    lambda w: w.append_idempotent(1, VALUES),
    lambda w: w.append_idempotent(2, VALUES, is_transactional=True),
    commit_all,
    lambda w: w.write_checkpoints(),
    lambda w: w.append_idempotent(1, [b"c" * 90]),
    lambda w: w.end_txn(2, commit=False),
    flush_with_an_append_between,
    lambda w: w.roll(),
    lambda w: w.begin_epoch(),
    lambda w: w.append(VALUES),
    lambda w: w.write_checkpoints(1),
    lambda w: w.append_idempotent(2, VALUES, is_transactional=True),
    commit_all,
    lambda w: w.raise_log_start(3),
    lambda w: w.write_checkpoints(2),
    lambda w: w.append([b"d" * 300]),
    lambda w: w.append([b"e" * 300]),
    lambda w: w.append(VALUES),
    lambda w: w.end_txn(2, commit=True),
    commit_all,
    lambda w: w.retain(small_config(retention_bytes=900)),
    lambda w: w.unlink_due(),
    lambda w: w.write_checkpoints(),
    flush_with_a_truncation_between,
    lambda w: w.truncate_to(w.log.segments[1].base_offset + 1),
    lambda w: w.append_as_follower([(0, VALUES), (0, [b"f" * 200]), (0, VALUES)]),
    commit_all,
    lambda w: w.close(),
    lambda w: w.append_idempotent(1, VALUES),
    lambda w: w.truncate_to(w.end - 6),
    lambda w: w.append(VALUES),
    lambda w: w.restart_at(w.end + 7),
    lambda w: w.append_as_follower([(0, VALUES)]),
    commit_all,
    lambda w: w.close(),
]


class Counting:
    """How many changes the script makes to the disk."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: str, path: str) -> None:
        self.count += 1


def life(config_changes: dict[str, object]) -> LogWorld:
    return LogWorld(small_config(**config_changes), seed=7)


def play(world: LogWorld) -> None:
    for step in SCRIPT:
        step(world)


def count_changes(config_changes: dict[str, object]) -> int:
    """The hook goes with the run of the process, so it is set again after each ``close``."""
    world, counting = life(config_changes), Counting()
    for step in SCRIPT:
        world.disk.on_operation(counting)
        step(world)
    return counting.count


def play_until(world: LogWorld, nth: int, landed_bytes: int) -> bool:
    """Whether the crash came."""
    counting = Counting()

    def crash(kind: str, path: str) -> None:
        counting.count += 1
        if counting.count == nth:
            raise SimulatedCrash(f"before {kind} {path}", landed_bytes=landed_bytes)

    world.stays_down = True
    try:
        for step in SCRIPT:
            world.disk.on_operation(crash)
            step(world)
    except SimulatedCrash:
        return True
    return False


def go_on(world: LogWorld) -> None:
    """The log is usable, and what it flushes now is safe as well."""
    world.check_all_reads()
    world.begin_epoch()
    world.append(VALUES)
    world.append_idempotent(1, VALUES)
    world.finish_flush()
    world.append(VALUES)
    world.write_checkpoints()
    world.restart(by_power_loss=True)
    world.check_all_reads()


TOTAL = count_changes({})
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_the_log_survives_a_stop_before_every_change(part: int) -> None:
    for nth in range(1 + part, TOTAL + 1, PARTS):
        world = life({})
        # Every third write lands in part, every third in full, with the crash right behind it.
        assert play_until(world, nth, landed_bytes=(0, 70, 10**6)[nth % 3])
        disk = world.disk
        for seed in POWER_SEEDS:
            go_on(world.after(disk.power_loss(SimRandom(seed)), lost_power=True))
        go_on(world.after(disk.kill(), lost_power=False))


def test_the_script_is_worth_its_name() -> None:
    """It rolls, cuts, retains, checkpoints and closes: hundreds of changes of every kind."""
    kinds: set[str] = set()
    world = life({})
    for step in SCRIPT:
        world.disk.on_operation(lambda kind, path: kinds.add(kind))
        step(world)
    assert TOTAL > 200
    assert kinds >= {"create", "write", "truncate", "sync", "rename", "unlink", "sync_dir"}


def test_a_run_without_a_crash_ends_as_the_model_says() -> None:
    world = life({"preallocate": True})
    play(world)
    assert world.crashes == 0
    world.check_all_reads()
