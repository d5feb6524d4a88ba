"""A fixed set of seeds of each kind. A failing one prints its schedule and how to run it again."""

from __future__ import annotations

import pytest
from slow_tests import slow_after

from tidelog.simulation.runner import describe_failure, run_one

QUORUM_SEEDS = range(1, 17)
CLUSTER_SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", slow_after(6, QUORUM_SEEDS))
def test_quorum(seed: int) -> None:
    result = run_one("quorum", seed)
    assert result.failure is None, describe_failure(result)


@pytest.mark.parametrize("seed", slow_after(4, CLUSTER_SEEDS))
def test_cluster(seed: int) -> None:
    result = run_one("cluster", seed)
    assert result.failure is None, describe_failure(result)
