"""Transactions under faults, zombies and late requests: a fixed set of seeds."""

from __future__ import annotations

import pytest
from slow_tests import slow_after

from tidelog.simulation.runner import describe_failure, run_one

SEEDS = range(1, 7)


@pytest.mark.parametrize("seed", slow_after(2, SEEDS))
def test_transactions(seed: int) -> None:
    result = run_one("transactions", seed)
    assert result.failure is None, describe_failure(result)
