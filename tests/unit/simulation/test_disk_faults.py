"""Every fault of the simulated disk, and what code under test can do about it."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable

import pytest

from tidelog.kernel.ports import Disk, Steps
from tidelog.simulation import (
    CrashAt,
    InlineOffload,
    SimDisk,
    SimFile,
    SimOffload,
    SimRandom,
    SimulatedCrash,
    World,
    run_simulation,
)
from tidelog.simulation.disk_faults import MutationKind

SEEDS = range(50)


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    made.make_dirs("/d")
    made.sync_dir("/")
    return made


def durable_file(disk: SimDisk, content: bytes) -> SimFile:
    file = disk.open("/d/f", create=True)
    file.pwrite(content, 0)
    file.sync()
    disk.sync_dir("/d")
    return file


def errno_of(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


# Full.


def test_a_full_disk_takes_what_fits_and_recovers_by_itself(disk: SimDisk) -> None:
    disk.faults.capacity_bytes = 10
    file = disk.open("/d/f", create=True)
    file.pwrite(b"123456", 0)
    assert disk.free_bytes("/d") == 4
    assert errno_of(lambda: file.pwritev([b"789", b"0AB"], 6)) == errno.ENOSPC
    assert file.pread(99, 0) == b"1234567890"
    assert disk.free_bytes("/d") == 0
    file.pwrite(b"over", 2)  # needs no room
    assert errno_of(lambda: file.pwrite(b"x", 10)) == errno.ENOSPC
    file.truncate(6)
    file.pwrite(b"abcd", 6)
    assert file.pread(99, 0) == b"12overabcd"


def test_room_comes_back_when_the_last_handle_of_an_unlinked_file_closes(disk: SimDisk) -> None:
    disk.faults.capacity_bytes = 4
    durable_file(disk, b"1234").close()
    file = disk.open("/d/f")
    disk.unlink("/d/f")
    assert disk.free_bytes("/d") == 0
    file.close()
    assert disk.free_bytes("/d") == 4


def test_a_full_disk_is_full_after_the_restart(disk: SimDisk) -> None:
    disk.faults.capacity_bytes = 4
    durable_file(disk, b"1234")
    after = disk.power_loss(SimRandom(0))
    assert errno_of(lambda: after.open("/d/f").pwrite(b"x", 4)) == errno.ENOSPC


# Errors.


def test_a_failed_write_may_leave_a_prefix(disk: SimDisk) -> None:
    file = durable_file(disk, b"base")
    disk.faults.fail("write", landed_bytes=2)
    assert errno_of(lambda: file.pwrite(b"WXYZ", 4)) == errno.EIO
    assert file.pread(99, 0) == b"baseWX"
    file.pwrite(b"WXYZ", 4)
    assert file.pread(99, 0) == b"baseWXYZ"


def test_failures_strike_by_path_after_some_and_for_some_times(disk: SimDisk) -> None:
    disk.faults.fail("write", "/f", error=errno.ENXIO, skip=1, times=2)
    file, other = disk.open("/d/f", create=True), disk.open("/d/other", create=True)
    other.pwrite(b"x", 0)
    file.pwrite(b"1", 0)
    assert errno_of(lambda: file.pwrite(b"2", 0)) == errno.ENXIO
    other.pwrite(b"x", 0)
    assert errno_of(lambda: file.pwrite(b"3", 0)) == errno.ENXIO
    file.pwrite(b"4", 0)
    assert file.pread(9, 0) == b"4"


def test_failures_can_be_permanent_until_healed(disk: SimDisk) -> None:
    disk.faults.fail("read", times=None)
    file = durable_file(disk, b"x")
    for _ in range(3):
        assert errno_of(lambda: file.pread(1, 0)) == errno.EIO
    assert errno_of(lambda: disk.read("/d/f")) == errno.EIO
    disk.faults.heal()
    assert file.pread(1, 0) == b"x"


OPERATIONS: list[tuple[MutationKind, Callable[[SimDisk, SimFile], object]]] = [
    ("create", lambda d, f: d.open("/d/new", create=True)),
    ("write", lambda d, f: f.pwrite(b"y", 0)),
    ("truncate", lambda d, f: f.truncate(0)),
    ("sync", lambda d, f: f.sync()),
    ("set_mtime", lambda d, f: d.set_mtime("/d/f", d.stat("/d/f").mtime_ms)),  # type: ignore[union-attr]
    ("mkdir", lambda d, f: d.make_dirs("/d/new")),
    ("rename", lambda d, f: d.rename("/d/f", "/d/g")),
    ("unlink", lambda d, f: d.unlink("/d/f")),
    ("rmdir", lambda d, f: d.remove_tree("/d/empty")),
    ("sync_dir", lambda d, f: d.sync_dir("/d")),
]
operations = pytest.mark.parametrize(
    ("kind", "do"), OPERATIONS, ids=[case[0] for case in OPERATIONS]
)


@operations
def test_a_failed_operation_changes_nothing_that_is_seen(
    disk: SimDisk, kind: MutationKind, do: Callable[[SimDisk, SimFile], object]
) -> None:
    file = durable_file(disk, b"x")
    disk.make_dirs("/d/empty")
    disk.faults.fail(kind)
    assert errno_of(lambda: do(disk, file)) == errno.EIO
    assert disk.list_dir("/d") == ["empty", "f"]
    assert disk.read("/d/f") == b"x"
    do(disk, file)


@operations
@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_read_only_disk_refuses_changes_and_serves_reads(
    disk: SimDisk, error: int, kind: MutationKind, do: Callable[[SimDisk, SimFile], object]
) -> None:
    file = durable_file(disk, b"x")
    disk.make_dirs("/d/empty")
    disk.faults.read_only_error = error
    if kind in ("sync", "sync_dir"):
        do(disk, file)
    else:
        assert errno_of(lambda: do(disk, file)) == error
    assert errno_of(lambda: disk.open("/d/f")) == error
    assert disk.open("/d/f", read_only=True).pread(9, 0) == b"x"
    assert disk.list_dir("/d") == ["empty", "f"]


def test_no_permission_has_the_type_the_system_gives_it(disk: SimDisk) -> None:
    disk.faults.read_only_error = errno.EACCES
    with pytest.raises(PermissionError):
        disk.open("/d/f", create=True)


def test_after_a_failed_sync_the_next_one_succeeds_and_the_data_is_lost(disk: SimDisk) -> None:
    """Hazard 44: the pages are clean although they never reached the medium."""
    file = durable_file(disk, b"base")
    file.pwrite(b"LOST", 4)
    disk.faults.fail("sync")
    assert errno_of(file.sync) == errno.EIO
    file.sync()
    assert file.pread(99, 0) == b"baseLOST"
    assert {disk.power_loss(SimRandom(seed)).read("/d/f") for seed in SEEDS} == {b"base"}


def test_what_a_failed_sync_lost_leaves_a_hole_between_what_is_synced_later() -> None:
    disk = SimDisk(sector_bytes=4)
    disk.make_dirs("/d")
    disk.sync_dir("/")
    file = durable_file(disk, b"base")
    file.pwrite(b"LOST", 4)
    disk.faults.fail("sync")
    assert errno_of(file.sync) == errno.EIO
    file.pwrite(b"BASE", 0)
    file.pwrite(b"kept", 8)
    file.sync()
    found = {disk.power_loss(SimRandom(seed)).read("/d/f") for seed in SEEDS}
    assert found == {b"BASE\0\0\0\0kept"}


def test_what_is_written_again_after_a_failed_sync_can_be_synced(disk: SimDisk) -> None:
    file = durable_file(disk, b"base")
    file.pwrite(b"AGAIN", 4)
    disk.faults.fail("sync")
    assert errno_of(file.sync) == errno.EIO
    file.pwrite(b"AGAIN", 4)
    file.truncate(8)
    file.sync()
    assert {disk.power_loss(SimRandom(seed)).read("/d/f") for seed in SEEDS} == {b"baseAGAI"}


# Damage.


@pytest.mark.parametrize(
    ("cached", "durable", "now", "after"),
    [(True, True, b"aBc", b"aBc"), (True, False, b"aBc", b"abc"), (False, True, b"abc", b"aBc")],
)
def test_a_bit_flips_in_the_cache_or_on_the_medium(
    disk: SimDisk, cached: bool, durable: bool, now: bytes, after: bytes
) -> None:
    file = durable_file(disk, b"abc")
    disk.flip_bit("/d/f", 1, 5, cached=cached, durable=durable)
    file.sync()  # nothing is dirty, so nothing is repaired
    assert disk.read("/d/f") == now
    assert disk.power_loss(SimRandom(0)).read("/d/f") == after


def test_a_bit_that_is_not_there_cannot_flip(disk: SimDisk) -> None:
    file = durable_file(disk, b"abc")
    file.pwrite(b"d", 3)
    for position, bit in [(4, 0), (-1, 0), (0, 8)]:
        with pytest.raises(ValueError, match=r"no bit .* of byte"):
            disk.flip_bit("/d/f", position, bit)
    with pytest.raises(ValueError, match="not on the medium"):
        disk.flip_bit("/d/f", 3, 0, cached=False)


# Crashes.


def replace_file(disk: Disk, content: bytes, *, skip: str = "") -> None:
    """What every checkpoint file needs: all of the old or all of the new content."""
    try:
        file = disk.open("/d/f.tmp", create=True)
        file.truncate(0)
        file.pwrite(content, 0)
        if skip != "sync":
            file.sync()
        file.close()
        disk.rename("/d/f.tmp", "/d/f")
        if skip != "sync_dir":
            disk.sync_dir("/d")
    except Exception:
        pytest.fail("a crash is no Exception")
    finally:
        disk.unlink("/d/f.tmp")


def contents_after_crashes(*, skip: str = "") -> tuple[set[bytes], set[bytes]]:
    """What /d/f holds after power loss at every operation; and after the last one."""
    found: set[bytes] = set()
    for nth in itertools.count(1):
        disk = SimDisk()
        disk.make_dirs("/d")
        disk.sync_dir("/")
        durable_file(disk, b"old" * 300)
        hook = CrashAt(nth)
        disk.on_operation(hook)
        crashed = False
        try:
            replace_file(disk, b"new" * 400, skip=skip)
        except SimulatedCrash:
            crashed = True
        after = {disk.power_loss(SimRandom(seed)).read("/d/f") for seed in SEEDS}
        found |= after
        if not crashed:
            assert hook.seen == nth - 1
            return found, after
    raise AssertionError("the count ended")


def test_a_file_is_replaced_atomically_whatever_the_crash() -> None:
    found, at_the_end = contents_after_crashes()
    assert found == {b"old" * 300, b"new" * 400}
    assert at_the_end == {b"new" * 400}


def test_the_disk_shows_a_forgotten_sync() -> None:
    found, _ = contents_after_crashes(skip="sync")
    assert found - {b"old" * 300, b"new" * 400}
    _, at_the_end = contents_after_crashes(skip="sync_dir")
    assert at_the_end == {b"old" * 300, b"new" * 400}


@operations
def test_a_crashed_disk_refuses_everything_until_the_next_run(
    disk: SimDisk, kind: MutationKind, do: Callable[[SimDisk, SimFile], object]
) -> None:
    file = durable_file(disk, b"x")
    disk.make_dirs("/d/empty")
    disk.on_operation(CrashAt(1, {kind}))
    calls: list[Callable[[], object]] = [
        lambda: do(disk, file),
        lambda: do(disk, file),
        lambda: file.pread(1, 0),
        lambda: disk.stat("/d"),
    ]
    for call in calls:
        with pytest.raises(SimulatedCrash):
            call()
    file.close()
    after = disk.kill()
    assert after.list_dir("/d") == ["empty", "f"]
    do(after, after.open("/d/f"))


def test_a_hook_sees_every_change_before_it_is_made(disk: SimDisk) -> None:
    seen: list[tuple[str, str]] = []
    disk.on_operation(lambda kind, path: seen.append((kind, path)))
    disk.make_dirs("/d/p/q")
    disk.open("/d/p/f", create=True).pwrite(b"x", 0)
    disk.open("/d/p/f").sync()
    disk.remove_tree("/d/p")
    assert seen == [
        ("mkdir", "/d/p"),
        ("mkdir", "/d/p/q"),
        ("create", "/d/p/f"),
        ("write", "/d/p/f"),
        ("sync", "/d/p/f"),
        ("unlink", "/d/p/f"),
        ("rmdir", "/d/p/q"),
        ("rmdir", "/d/p"),
    ]


def test_a_crash_can_fall_into_the_middle_of_a_write(disk: SimDisk) -> None:
    file = durable_file(disk, b"base")
    disk.on_operation(CrashAt(1, {"write"}, landed_bytes=2))
    with pytest.raises(SimulatedCrash, match="write /d/f"):
        file.pwrite(b"WXYZ", 4)
    assert disk.kill().read("/d/f") == b"baseWX"


# Slow.


def two_steps(times: list[float], clock: Callable[[], float]) -> Steps[str]:
    times.append(clock())
    yield
    times.append(clock())
    return "done"


def step_times(*, delay_ms: float = 0.0, stalled_for_s: float = 0.0) -> list[float]:
    """When each of two offloaded steps ran, and when the caller went on."""

    async def main(world: World) -> list[float]:
        disk = SimDisk(clock=world.clock)
        disk.faults.step_delay_ms = delay_ms
        disk.faults.stalled = stalled_for_s > 0
        offload = SimOffload(world.random.fork("offload"), disk.faults, max_delay_ms=5)
        times: list[float] = []
        running = asyncio.create_task(offload.run(two_steps(times, world.clock.monotonic_ms)))
        await asyncio.sleep(stalled_for_s)
        disk.faults.stalled = False
        assert await running == "done"
        return [*times, world.clock.monotonic_ms()]

    return run_simulation(main, seed=1)


def test_offloaded_steps_run_after_drawn_delays() -> None:
    first, second, end = step_times()
    assert 0 < first < 5
    assert first < second < first + 5
    assert end == second


def test_a_slow_disk_delays_each_step() -> None:
    first, second, _ = step_times(delay_ms=1000)
    assert 1000 < first < 1005
    assert 1000 < second - first < 1005


def test_a_stalled_disk_holds_steps_up_until_it_goes_on() -> None:
    first, second, _ = step_times(stalled_for_s=60)
    assert 60_000 <= first < 60_011
    assert second < 60_020


def test_cancelled_work_is_closed() -> None:
    events: list[str] = []
    begun = asyncio.Event()

    def work() -> Steps[None]:
        try:
            events.append("first")
            begun.set()
            yield
            events.append("second")
        finally:
            events.append("closed")

    async def main(world: World) -> None:
        offload = SimOffload(world.random)
        running = asyncio.create_task(offload.run(work()))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run_simulation(main, seed=1)
    assert events == ["first", "closed"]


def test_inline_offload_takes_no_time_and_passes_errors_on() -> None:
    times: list[float] = []
    assert asyncio.run(InlineOffload().run(two_steps(times, lambda: 7.0))) == "done"
    assert times == [7.0, 7.0]

    def failing() -> Steps[None]:
        yield
        raise OSError(errno.EIO, "no disk")

    with pytest.raises(OSError, match="no disk"):
        asyncio.run(InlineOffload().run(failing()))
