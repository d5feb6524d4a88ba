"""Meters: spreads of values, and what can be read off them."""

from __future__ import annotations

import pytest

from tidelog.kernel.meters import LATENCY_BOUNDS_MS, Spread, quantile
from tidelog.replication.meters import FIELDS, TopicMeter, TopicMeters


def test_a_value_is_counted_at_the_least_bound_that_holds_it() -> None:
    spread = Spread((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        spread.observe(value)
    assert spread.counts == [2, 2, 1]
    assert spread.count == 5
    assert spread.total == 104.0


def test_latency_bounds_rise() -> None:
    assert list(LATENCY_BOUNDS_MS) == sorted(set(LATENCY_BOUNDS_MS))


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([0, 0, 0], 0.5, 0.0),
        ([10, 0, 0], 0.5, 0.5),
        ([10, 0, 0], 1.0, 1.0),
        ([5, 5, 0], 0.5, 1.0),
        ([5, 5, 0], 0.75, 2.0),
        ([0, 0, 3], 0.99, 3.0),
        ([1, 0, 3], 0.99, 3.0),
    ],
)
def test_quantiles(counts: list[int], share: float, value: float) -> None:
    assert quantile((1.0, 3.0), counts, share) == pytest.approx(value)


def test_every_count_of_a_topic_starts_at_zero_and_is_summed() -> None:
    meters = TopicMeters()
    for number, name in enumerate(FIELDS, start=1):
        assert getattr(TopicMeter(), name) == 0
        setattr(meters.of("a"), name, number)
        setattr(meters.of("b"), name, 100)
    assert [getattr(meters.sum(), name) for name in FIELDS] == [
        100 + number for number in range(1, len(FIELDS) + 1)
    ]


def test_sums_do_not_go_back_when_a_topic_is_deleted() -> None:
    meters = TopicMeters()
    meters.of("a").bytes_in = 7
    meters.of("b").bytes_in = 1
    meters.forget("a")
    meters.forget("never there")
    assert [name for name, _ in meters] == ["b"]
    assert meters.sum().bytes_in == 8
    meters.of("a").bytes_in += 2
    assert meters.sum().bytes_in == 10
