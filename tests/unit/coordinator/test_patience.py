"""How long somebody is kept waiting for what needs other nodes."""

from __future__ import annotations

import pytest

from tidelog.coordinator.patience import CUT_OFF_PATIENCE_MS, Patience


@pytest.mark.parametrize(
    ("timeout_ms", "waited_ms", "is_cut_off", "is_over"),
    [
        (30_000, 0, False, False),
        (30_000, 29_999, False, False),
        (30_000, 30_000, False, True),
        (30_000, 0, True, False),
        (30_000, CUT_OFF_PATIENCE_MS - 1, True, False),
        (30_000, CUT_OFF_PATIENCE_MS, True, True),
        (100, 99, True, False),
        (100, 100, True, True),
    ],
)
def test_a_broker_that_is_cut_off_keeps_nobody_waiting(
    timeout_ms: float, waited_ms: float, is_cut_off: bool, is_over: bool
) -> None:
    assert Patience(timeout_ms).is_over(waited_ms, is_cut_off=is_cut_off) is is_over


def test_it_is_looked_at_often_and_at_the_end() -> None:
    patience = Patience(1_100)
    looks_ms = []
    waited_ms = 0.0
    while not patience.is_over(waited_ms, is_cut_off=False):
        waited_ms += patience.next_look_ms(waited_ms)
        looks_ms.append(waited_ms)
    assert looks_ms == [250, 500, 750, 1_000, 1_100]


def test_a_timer_that_rings_early_does_not_make_it_spin() -> None:
    assert Patience(1_000).next_look_ms(999.9999) == 1.0
