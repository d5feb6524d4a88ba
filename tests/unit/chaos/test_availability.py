"""Gaps, throughput and the time to a full ISR, of runs whose figures are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chaos_scripts import OK, UNKNOWN, header

from tidelog.chaos.availability import has_full_isr, measure, percentile
from tidelog.chaos.history import (
    FaultBand,
    History,
    Operation,
    Outcome,
    PartitionState,
    RunEnd,
    Sample,
    Verb,
)

END_MS = 30_000.0


def append(
    invoked_ms: float, ended_ms: float | None, partition: int = 0, outcome: Outcome = OK
) -> Operation:
    return Operation(
        1, "producer", Verb.APPEND, invoked_ms, ended_ms, outcome, "events", partition, 0
    )


def run(
    operations: list[Operation], faults: list[FaultBand], samples: list[Sample] | None = None
) -> History:
    return History(
        header(), tuple(operations), tuple(faults), tuple(samples or ()), end=RunEnd(END_MS, False)
    )


def steady(partition: int, *stretches: tuple[int, int]) -> list[Operation]:
    """An append every 10 ms that takes 2 ms, in each of the stretches."""
    return [
        append(float(at), at + 2.0, partition)
        for begin, end in stretches
        for at in range(begin, end, 10)
    ]


def fault(number: int, began_ms: float, ended_ms: float | None, name: str = "kill") -> FaultBand:
    return FaultBand(number, name, "node 1", (1,), began_ms, ended_ms)


def test_the_gap_of_a_fault_is_the_longest_wait_of_any_partition() -> None:
    blocked = append(10_005.0, 10_700.0, partition=1)
    operations = [
        *steady(0, (0, 30_000)),
        *steady(1, (0, 10_000), (10_700, 30_000)),
        blocked,
    ]
    (effect,) = measure(run(operations, [fault(1, 10_000.0, 13_000.0)])).effects
    assert effect.gap_ms == pytest.approx(695.0)
    assert effect.gap_at == "events-1"
    assert effect.cluster_gap_ms is not None
    assert effect.cluster_gap_ms < 15.0


def test_a_workload_that_rests_makes_no_gap() -> None:
    operations = steady(0, (0, 10_000), (12_000, 30_000))
    (effect,) = measure(run(operations, [fault(1, 10_500.0, 11_500.0)])).effects
    assert effect.gap_ms is None
    (effect,) = measure(run(operations, [fault(1, 9_990.0, 12_500.0)])).effects
    assert effect.gap_ms == pytest.approx(2.0)


def test_a_wait_that_began_before_a_fault_counts_from_its_beginning() -> None:
    operations = [append(0.0, 5.0), append(6.0, 2_006.0), append(2_100.0, 2_105.0)]
    (effect,) = measure(run(operations, [fault(1, 1_000.0, 1_500.0)])).effects
    assert effect.gap_ms == effect.cluster_gap_ms == pytest.approx(1_006.0)


def test_a_wait_over_two_faults_is_the_first_ones_in_full() -> None:
    operations = [*steady(0, (0, 1_000)), append(1_000.0, 9_000.0), *steady(0, (9_000, 10_000))]
    faults = [fault(1, 1_000.0, 2_000.0), fault(2, 5_000.0, 6_000.0)]
    effects = measure(run(operations, faults)).effects
    assert [one.gap_ms for one in effects] == [pytest.approx(8_000.0), pytest.approx(4_000.0)]


def test_the_start_of_the_clients_is_not_the_time_before_the_first_fault() -> None:
    starting = [append(0.0, 7_000.0), append(0.0, 8_000.0, 1)]
    operations = [*starting, *steady(0, (7_000, 20_000)), *steady(1, (8_000, 20_000))]
    (effect,) = measure(run(operations, [fault(1, 10_000.0, 11_000.0)])).effects
    assert effect.gap_ms == pytest.approx(2.0)
    assert effect.before_per_s == pytest.approx(200.0, abs=2)


def test_a_wait_without_an_end_is_a_gap_up_to_the_end_of_the_run() -> None:
    operations = [*steady(0, (0, 10_000)), append(10_000.0, None, outcome=UNKNOWN)]
    (effect,) = measure(run(operations, [fault(1, 9_995.0, None)])).effects
    assert effect.gap_ms == pytest.approx(20_000.0, abs=10)


def test_throughput_before_during_and_after() -> None:
    operations = steady(0, (0, 10_000), (11_000, 30_000))
    (effect,) = measure(run(operations, [fault(1, 10_000.0, 12_000.0)])).effects
    assert effect.before_per_s == pytest.approx(100.0, abs=1)
    assert effect.during_per_s == pytest.approx(50.0, abs=1)
    assert effect.after_per_s == pytest.approx(100.0, abs=1)


def test_a_fault_that_follows_at_once_has_no_throughput_before_it() -> None:
    operations = steady(0, (0, 30_000))
    faults = [fault(1, 10_000.0, 12_000.0), fault(2, 12_050.0, 13_000.0)]
    first, second = measure(run(operations, faults)).effects
    assert first.after_per_s is None
    assert second.before_per_s is None
    assert second.after_per_s == pytest.approx(100.0, abs=1)


def state(isr: tuple[int, ...], leader: int | None = 1) -> PartitionState:
    return PartitionState("events", 0, leader, 0, (1, 2, 3), isr)


def test_the_time_to_a_full_isr_counts_from_the_healing() -> None:
    samples = [
        Sample(9_000.0, 1, (1, 2, 3), (state((1, 2, 3)),)),
        Sample(12_000.0, 1, (1, 2), (state((1, 2)),)),
        Sample(12_500.0, 1, (1, 2, 3), (state((1, 2, 3), leader=None),)),
        Sample(13_250.0, 1, (1, 2, 3), (state((3, 1, 2)), state((1, 2, 3)))),
    ]
    faults = [fault(1, 10_000.0, 12_000.0), fault(2, 20_000.0, 21_000.0), fault(3, 25_000.0, None)]
    effects = measure(run([], faults, samples)).effects
    assert [effect.full_isr_ms for effect in effects] == [1_250.0, None, None]
    assert [has_full_isr(sample) for sample in samples] == [True, False, False, True]


def test_faults_of_a_name_are_summed_up() -> None:
    operations = steady(0, (0, 30_000))
    operations = [one for one in operations if not 5_000 <= one.invoked_ms < 6_000]
    operations += [append(5_001.0, 6_000.0)]
    faults = [
        fault(1, 5_000.0, 7_000.0),
        fault(2, 15_000.0, 17_000.0),
        FaultBand(3, "cut", "", (), 25_000.0, 26_000.0, "no rights"),
    ]
    kill, cut = measure(run(operations, faults)).summaries
    assert (kill.name, kill.count, kill.failed) == ("kill", 2, 0)
    assert kill.gap_max_ms == pytest.approx(999.0)
    assert kill.gap_p50_ms is not None and kill.gap_p50_ms < 15.0
    assert (cut.count, cut.failed) == (1, 1)


def test_latency_and_rate_of_the_whole_run() -> None:
    operations = [
        append(float(at), at + (100.0 if at == 990 else 5.0)) for at in range(0, 1000, 10)
    ]
    figures = measure(run(operations, []))
    assert figures.latency_p50_ms == 5.0
    assert figures.latency_p99_ms == 5.0
    assert figures.latency_max_ms == 100.0
    assert figures.acknowledged_per_s == pytest.approx(91.7, abs=0.1)


def test_a_run_without_any_append_has_no_figures() -> None:
    figures = measure(run([], [fault(1, 1.0, 2.0)]))
    assert figures.latency_p50_ms is None
    assert figures.acknowledged_per_s == 0.0
    assert figures.effects[0].gap_ms is None
    assert figures.effects[0].during_per_s is None


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([3.0], 50, 3.0),
        ([3.0, 1.0], 50, 1.0),
        ([1.0, 2.0, 3.0], 50, 2.0),
        ([float(one) for one in range(1, 101)], 99, 99.0),
        ([float(one) for one in range(1, 102)], 99, 100.0),
        ([1.0, 2.0], 100, 2.0),
    ],
)
def test_a_percentile_is_a_value_that_occurred(
    values: list[float], percent: float, expected: float | None
) -> None:
    assert percentile(values, percent) == expected


def test_writes_in_transactions_have_gaps_of_their_own() -> None:
    held_up = [replace(append(10_005.0, 14_000.0, partition=1), transaction="copy-1")]
    done = measure(run([*steady(0, (0, 30_000)), *held_up], [fault(1, 10_000.0, 13_000.0)]))
    (effect,) = done.effects
    assert effect.gap_ms == pytest.approx(2.0) and effect.gap_at == "events-0"
    assert effect.transaction_gap_ms == pytest.approx(3_995.0)
    assert done.summaries[0].transaction_gap_max_ms == effect.transaction_gap_ms
