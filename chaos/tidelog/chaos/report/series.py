"""Operations summed up per column of a chart, so that a long run draws no more than a short one.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.chaos.history import Operation, Outcome, Verb

Floats = npt.NDArray[np.float64]

_COLUMNS: Final = 480
_STEPS_MS: Final = (
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
)  # fmt: skip
_SECOND_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Series:
    """Equal steps from the beginning of the run."""

    step_ms: float
    values: list[float | None]
    """None: nothing to tell of that step."""


@dataclass(frozen=True, slots=True)
class Writes:
    """When appends ended, and how long those took that were acknowledged."""

    acknowledged_ms: Floats
    latency_ms: Floats
    in_vain_ms: Floats

    @staticmethod
    def of(operations: Sequence[Operation]) -> Writes:
        appends = [one for one in operations if one.verb is Verb.APPEND]
        good = [one for one in appends if one.outcome is Outcome.OK and one.ended_ms is not None]
        bad = [one for one in appends if one.outcome is not Outcome.OK]
        ended = np.fromiter((one.ended_ms for one in good), np.float64, len(good))
        invoked = np.fromiter((one.invoked_ms for one in good), np.float64, len(good))
        in_vain = (one.ended_ms if one.ended_ms is not None else one.invoked_ms for one in bad)
        return Writes(ended, ended - invoked, np.fromiter(in_vain, np.float64, len(bad)))


def step_for(end_ms: float, least_ms: float = 0.0) -> float:
    """A round step that gives no more columns than can be told apart."""
    wanted = max(end_ms / _COLUMNS, least_ms)
    return float(next((step for step in _STEPS_MS if step >= wanted), wanted))


def per_second(times_ms: Floats, end_ms: float) -> Series:
    step_ms = step_for(end_ms)
    count = _count(end_ms, step_ms)
    columns = np.clip((times_ms / step_ms).astype(np.int64), 0, count - 1)
    sums = np.bincount(columns, minlength=count)
    return Series(step_ms, [float(one) / step_ms * _SECOND_MS for one in sums])


def percentiles(
    times_ms: Floats, values: Floats, end_ms: float, percents: Sequence[float]
) -> list[Series]:
    """Per step of a second or more, one series per wanted percentile."""
    step_ms = step_for(end_ms, _SECOND_MS)
    count = _count(end_ms, step_ms)
    columns = np.clip((times_ms / step_ms).astype(np.int64), 0, count - 1)
    order = np.lexsort((values, columns))
    bounds = np.searchsorted(columns[order], np.arange(count + 1))
    ordered = values[order]
    found = []
    for percent in percents:
        sizes = bounds[1:] - bounds[:-1]
        ranks = bounds[:-1] + np.maximum(np.ceil(percent / 100 * sizes).astype(np.int64) - 1, 0)
        picked = [
            float(ordered[rank]) if size else None for rank, size in zip(ranks, sizes, strict=True)
        ]
        found.append(Series(step_ms, picked))
    return found


def _count(end_ms: float, step_ms: float) -> int:
    return max(1, int(np.ceil(end_ms / step_ms)))
