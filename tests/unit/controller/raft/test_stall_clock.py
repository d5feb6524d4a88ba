"""Time lost in stalls is not counted as silence of the others (hazard 42)."""

from __future__ import annotations

import pytest

from tidelog.controller.raft.stall_clock import StallClock


def steps(*events: tuple[float, float | None]) -> StallClock:
    """Events as (now, due of a tick or None), with ticks 20 ms apart from time 0."""
    clock = StallClock(0.0, 20.0)
    for now_ms, due_ms in events:
        clock.observe(now_ms)
        if due_ms is not None:
            clock.tick(due_ms)
    return clock


@pytest.mark.parametrize(
    ("events", "running_ms"),
    [
        ([(20, 20), (40, 40), (60, 60)], 60),
        # A little late is normal.
        ([(20, 20), (55, 40), (75, 60)], 75),
        # Nothing ran for 2500 ms: one interval of that counts.
        ([(20, 20), (2520, 40)], 40),
        ([(20, 20), (2520, None)], 40),
        ([(20, 20), (2520, None), (2520, 40)], 40),
        # The shell delivers all the ticks of the stall afterwards: nothing is lost twice.
        ([(20, 20), (2520, 40), (2521, 60), (2522, 80)], 42),
        # A tick waited behind other events for 200 ms, although something ran all the time.
        ([(20, 20), (40, None), (80, None), (120, None), (160, None), (200, None), (240, 40)], 40),
        # A clock that goes back is a clock that stands still.
        ([(20, 20), (10, 40)], 20),
    ],
)
def test_running_time(events: list[tuple[float, float | None]], running_ms: float) -> None:
    assert steps(*events).running_ms == running_ms


def test_heartbeats_go_by_real_time() -> None:
    assert steps((20, 20), (2520, 40)).real_ms == 2520
