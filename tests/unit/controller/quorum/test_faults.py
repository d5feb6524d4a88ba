"""Seeds of trouble: whatever happens, nothing that was acknowledged is lost and all agree."""

from __future__ import annotations

import pytest
from quorum_faults import run_seed

SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed(seed: int) -> None:
    cluster = run_seed(seed)
    assert cluster.acknowledged
