"""The driver strikes as the schedule says, and what it did is undone at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.simulation import (
    Budget,
    FaultDriver,
    FaultSchedule,
    LinkQuality,
    SimRandom,
    Trace,
    World,
    draw_schedule,
    run_simulation,
)
from tidelog.simulation.faults import (
    BadLinks,
    ClockJump,
    Crash,
    Cut,
    DiskOperation,
    FailedOperation,
    Fault,
    FlippedBit,
    FullDisk,
    Kill,
    Pause,
    PowerLoss,
    SlowDisk,
    StalledDisk,
    Stop,
)

NODES = (1, 2, 3)


@dataclass
class RecordingTarget:
    """A cluster that only notes; it complains about what makes no sense."""

    world: World
    log: list[str] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    unsound: dict[str, object] = field(default_factory=dict)
    halts_on_failure: bool = False

    def note(self, what: str) -> None:
        self.log.append(f"{self.world.loop.time() * 1000:.0f} {what}")

    def hold(self, key: str, value: object) -> None:
        self.note(f"{key} {value}")
        if value in (None, False, 0):
            self.unsound.pop(key)
        else:
            self.unsound[key] = value

    def is_alive(self, node: int) -> bool:
        return node not in self.down

    async def kill(self, node: int) -> None:
        assert node not in self.down
        self.note(f"kill {node}")
        self.down.add(node)
        self.paused.discard(node)

    def stop(self, node: int) -> None:
        assert node not in self.down
        self.note(f"stop {node}")
        self.down.add(node)
        self.paused.discard(node)

    def crash_at(self, node: int, nth: int | None, *, is_power_loss: bool) -> None:
        self.note(f"crash {node} at {nth} {'power' if is_power_loss else 'kill'}")
        if nth is not None and nth < 10:
            self.down.add(node)
            self.paused.discard(node)

    async def power_loss(self, nodes: Sequence[int]) -> None:
        self.note(f"power loss {[*nodes]}")
        self.down.update(nodes)
        self.paused.difference_update(nodes)

    async def restart(self, node: int) -> None:
        assert node in self.down
        self.note(f"restart {node}")
        self.down.discard(node)

    def pause(self, node: int) -> None:
        assert node not in self.down | self.paused
        self.note(f"pause {node}")
        self.paused.add(node)

    def resume(self, node: int) -> None:
        assert node in self.paused
        self.note(f"resume {node}")
        self.paused.discard(node)

    def cut(self, source: int, target: int) -> None:
        assert f"cut {source}>{target}" not in self.unsound
        self.hold(f"cut {source}>{target}", True)

    def mend(self, source: int, target: int) -> None:
        self.hold(f"cut {source}>{target}", None)

    def set_quality(self, source: int, target: int, quality: LinkQuality | None) -> None:
        self.hold(f"quality {source}>{target}", quality and quality.max_delay_ms)

    def slow_disk(self, node: int, step_delay_ms: float) -> None:
        self.hold(f"slow {node}", step_delay_ms)

    def stall_disk(self, node: int, is_stalled: bool) -> None:
        self.hold(f"stall {node}", is_stalled)

    def limit_disk(self, node: int, free_bytes: int | None) -> None:
        self.hold(f"limit {node}", None if free_bytes is None else f"{free_bytes} bytes")

    def fail_disk(self, node: int, operation: DiskOperation, times: int) -> None:
        self.note(f"fail {node} {operation} {times}")
        self.unsound[f"failing {node}"] = True
        if self.halts_on_failure:
            self.down.add(node)
            self.paused.discard(node)

    def repair_disk(self, node: int) -> None:
        self.note(f"repair {node}")
        del self.unsound[f"failing {node}"]

    def flip_bit(self, node: int, draw: int) -> None:
        self.note(f"flip {node} {draw}")

    def set_clock_skew(self, node: int, skew_ms: int) -> None:
        self.hold(f"skew {node}", skew_ms)

    def is_sound(self) -> bool:
        return not self.down and not self.paused and not self.unsound


def log_of(*faults: Fault, halts_on_failure: bool = False) -> list[str]:
    async def main(world: World) -> list[str]:
        target = RecordingTarget(world, halts_on_failure=halts_on_failure)
        await FaultDriver(target).run(FaultSchedule(Budget(NODES, NODES), faults))
        assert target.is_sound()
        return target.log

    return run_simulation(main, 1)


def test_each_kind_begins_and_ends() -> None:
    slow = LinkQuality(max_delay_ms=500)
    assert log_of(
        Kill(0, 10, 1),
        PowerLoss(20, 10, (1, 2)),
        Pause(40, 10, 3),
        Cut(60, 10, ((1, 2), (2, 1))),
        BadLinks(80, 10, ((1, 3),), slow),
        SlowDisk(100, 10, 1, 5.0),
        StalledDisk(120, 10, 1),
        FullDisk(140, 10, 1, 77),
        FailedOperation(160, 10, 1, "sync", 1),
        FlippedBit(180, 10, 1, 42),
        ClockJump(200, 10, 1, -3),
        Stop(220, 10, 1),
        Crash(240, 10, 1, 3, True),
        Crash(260, 10, 1, 99, False),
    ) == [
        *("0 kill 1", "10 restart 1"),
        *("20 power loss [1, 2]", "30 restart 1", "30 restart 2"),
        *("40 pause 3", "50 resume 3"),
        *("60 cut 1>2 True", "60 cut 2>1 True", "70 cut 1>2 None", "70 cut 2>1 None"),
        *("80 quality 1>3 500", "90 quality 1>3 None"),
        *("100 slow 1 5.0", "110 slow 1 0.0"),
        *("120 stall 1 True", "130 stall 1 False"),
        *("140 limit 1 77 bytes", "150 limit 1 None"),
        *("160 fail 1 sync 1", "170 repair 1"),
        "180 flip 1 42",
        *("200 skew 1 -3", "210 skew 1 0"),
        *("220 stop 1", "230 restart 1"),
        *("240 crash 1 at 3 power", "250 crash 1 at None power", "250 restart 1"),
        *("260 crash 1 at 99 kill", "270 crash 1 at None kill"),
    ]


def test_a_node_is_up_again_when_the_last_fault_that_keeps_it_down_is_over() -> None:
    assert log_of(Kill(0, 100, 1), Kill(50, 100, 1), PowerLoss(70, 10, (1, 2))) == [
        "0 kill 1",
        "70 power loss [1, 2]",
        "80 restart 2",
        "150 restart 1",
    ]


def test_a_link_is_mended_when_the_last_cut_of_it_is_over() -> None:
    assert log_of(Cut(0, 100, ((1, 2),)), Cut(50, 100, ((1, 2), (1, 3)))) == [
        "0 cut 1>2 True",
        "50 cut 1>3 True",
        "150 cut 1>2 None",
        "150 cut 1>3 None",
    ]


def test_a_kill_ends_a_stop_and_the_next_process_is_stopped_in_turn() -> None:
    assert log_of(Pause(0, 100, 1), Kill(20, 30, 1)) == [
        *("0 pause 1", "20 kill 1", "50 restart 1", "50 pause 1", "100 resume 1"),
    ]
    assert log_of(Pause(0, 100, 1), Kill(50, 100, 1)) == [
        *("0 pause 1", "50 kill 1", "150 restart 1"),
    ]


def test_a_node_that_halted_by_itself_is_started_when_its_fault_is_over() -> None:
    failure = FailedOperation(0, 100, 1, "sync", 1)
    assert log_of(failure, Cut(20, 20, ((1, 2),)), halts_on_failure=True) == [
        *("0 fail 1 sync 1", "20 cut 1>2 True", "40 cut 1>2 None"),
        *("100 repair 1", "100 restart 1"),
    ]


def test_healing_ends_what_a_cancelled_run_left() -> None:
    async def main(world: World) -> None:
        target = RecordingTarget(world)
        driver = FaultDriver(target, Trace(world.loop.elapsed_ms))
        faults = (Kill(0, 1000, 1), Cut(0, 1000, ((1, 2),)), Pause(0, 1000, 2), Kill(900, 5, 3))
        running = asyncio.create_task(driver.run(FaultSchedule(Budget(NODES), faults)))
        await asyncio.sleep(0.5)
        running.cancel()
        await asyncio.wait({running})
        assert not target.is_sound()
        await driver.heal()
        assert target.is_sound()
        assert target.down == set()
        await driver.heal()

    run_simulation(main, 1)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 64), halts_on_failure=st.booleans())
def test_whatever_was_drawn_all_is_sound_at_the_end(seed: int, halts_on_failure: bool) -> None:
    schedule = draw_schedule(
        SimRandom(seed), Budget(NODES, NODES), duration_ms=10_000, max_faults=30
    )

    async def main(world: World) -> None:
        target = RecordingTarget(world, halts_on_failure=halts_on_failure)
        await FaultDriver(target).run(schedule)
        assert target.is_sound()
        assert round(world.loop.time() * 1000) == schedule.end_ms

    run_simulation(main, 1)
