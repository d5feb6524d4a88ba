"""The machine's clocks and chance satisfy their ports."""

from __future__ import annotations

from tidelog.kernel.ports import Clock, Random
from tidelog.kernel.real import SystemClock, SystemRandom


def draws(random: Random) -> tuple[float, int, bytes]:
    return random.random(), random.randrange(10, 1_000_000), random.randbytes(16)


def test_clocks_have_the_right_units() -> None:
    clock: Clock = SystemClock()
    year_2020_ms, year_2200_ms = 1_577_836_800_000, 7_258_118_400_000
    assert year_2020_ms < clock.wall_ms() < year_2200_ms
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first


def test_a_given_seed_repeats_and_no_seed_does_not() -> None:
    assert draws(SystemRandom(7)) == draws(SystemRandom(7))
    drawn = SystemRandom()
    assert draws(drawn) != draws(SystemRandom())
    assert draws(SystemRandom(drawn.initial_seed)) == draws(SystemRandom(drawn.initial_seed))
    repeated = SystemRandom(drawn.initial_seed)
    assert draws(repeated) != draws(drawn)  # `drawn` has moved on
