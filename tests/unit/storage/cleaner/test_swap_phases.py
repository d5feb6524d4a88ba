"""Between two steps of a swap the log goes on; whoever cuts it completes the swap first."""

from __future__ import annotations

import copy
import errno

import pytest
from cleaner_world import CleanerWorld, begin, filled, leftovers
from log_lab import PARTITION

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import in_one_go
from tidelog.simulation import SimRandom
from tidelog.storage.cleaner.cleaning import Cleaning
from tidelog.storage.names import LOG_SUFFIX
from tidelog.storage.swapping import SwapFailed

PHASES = (0, 1, 2)
SEEDS = (None, *range(6))


def in_phase(phase: int) -> tuple[CleanerWorld, Cleaning]:
    """A swap of which so many directory syncs are done."""
    world = filled(5, internal_segment_bytes=250)
    cleaning = begin(world)
    assert in_one_go(cleaning.work())
    assert cleaning.begin_swap()
    for _ in range(phase):
        in_one_go(cleaning.sync_swap())
        assert cleaning.advance_swap()
    return world, cleaning


def finish(cleaning: Cleaning) -> None:
    while True:
        in_one_go(cleaning.sync_swap())
        if not cleaning.advance_swap():
            return


def revived(world: CleanerWorld, seed: int | None) -> CleanerWorld:
    """What is found after a crash at this moment: killed without a seed, else without power."""
    other = copy.copy(world)
    other.model = copy.deepcopy(world.model)
    other.disk = world.disk.kill() if seed is None else world.disk.power_loss(SimRandom(seed))
    other._start()
    other.log.advance_high_watermark(other.log.end_offset)
    return other


@pytest.mark.parametrize("phase", PHASES)
def test_the_log_is_read_and_written_in_the_middle_of_a_swap(phase: int) -> None:
    world, cleaning = in_phase(phase)
    world.check()
    world.write([(b"a", b"meanwhile")])
    world.roll()
    world.commit()
    world.check()
    for segment in world.log.segments:  # what was opened and let go is found again
        segment.unload()
    world.check()
    finish(cleaning)
    for segment in world.log.segments:
        segment.unload()
    world.check()
    assert leftovers(world) == []
    cleaning.run_here()
    world.check()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_in_the_middle_loses_nothing(phase: int, seed: int | None) -> None:
    world, _ = in_phase(phase)
    world.write([(b"a", b"meanwhile")])
    world.commit()
    again = revived(world, seed)
    assert again.log.end_offset == world.log.end_offset
    again.check()
    assert leftovers(again) == []


@pytest.mark.parametrize("phase", PHASES)
def test_a_truncation_completes_the_swap_and_stays(phase: int) -> None:
    """A follower is cut below what was swapped; no crash may bring the rest back."""
    for seed in SEEDS:
        world, cleaning = in_phase(phase)
        cut = Offset(2)
        world.log.truncate_to(cut, TimestampMs(world.now))
        end = world.log.end_offset
        assert end <= cut
        assert leftovers(world) == []
        assert not cleaning.advance_swap()
        again = revived(world, seed)
        assert again.log.end_offset == end


@pytest.mark.parametrize("phase", PHASES)
def test_segments_that_go_in_the_middle_do_not_come_back(phase: int) -> None:
    for seed in SEEDS:
        world, cleaning = in_phase(phase)
        start = world.log.segments[1].base_offset
        world.log.raise_log_start(start)
        world.directory.write_log_starts()
        assert world.log.apply_retention(TimestampMs(world.now))
        assert world.log.segments[0].base_offset == start
        assert not cleaning.advance_swap()
        world.log.flush_now()
        again = revived(world, seed)
        assert again.log.segments[0].base_offset == start
        names = again.disk.list_dir(PARTITION)
        assert f"{0:020d}{LOG_SUFFIX}" not in names


@pytest.mark.parametrize("phase", PHASES)
def test_a_sync_that_fails_closes_the_log(phase: int) -> None:
    world, cleaning = in_phase(phase)
    failure = OSError(errno.EIO, "no disk")
    with pytest.raises(SwapFailed, match="no disk"):
        cleaning.advance_swap(failure)
    assert world.log.failure is not None
    assert not world.log.is_swapping
    world.restart(by_power=False)
    world.check()


def test_two_swaps_at_once_are_refused() -> None:
    world, _ = in_phase(1)
    with pytest.raises(ValueError, match="another swap"):
        world.log.begin_swap([world.log.segments[1]], TimestampMs(world.now))
