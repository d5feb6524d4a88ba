"""Compaction while a replica is away for longer than tombstones last: a fixed set of seeds."""

from __future__ import annotations

import pytest
from slow_tests import slow_after

from tidelog.replication.partition import Partition
from tidelog.simulation.runner import describe_failure, run_one
from tidelog.storage.cleaner.cleaning import NO_FLOOR

SEEDS = range(1, 7)


@pytest.mark.parametrize("seed", slow_after(2, SEEDS))
def test_no_deleted_key_comes_back(seed: int) -> None:
    result = run_one("compaction", seed)
    assert result.failure is None, describe_failure(result)
    assert ", 0 tombstones dropped" not in result.summary  # else nothing was put to the test


def test_they_do_if_each_replica_follows_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's rule: a tombstone goes when its time is over here, whoever else may need it."""
    monkeypatch.setattr(Partition, "clean_floor", lambda partition: NO_FLOOR)
    result = run_one("compaction", 1)
    assert result.failure is not None
    assert "the deleted key" in result.failure
