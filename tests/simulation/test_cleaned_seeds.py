"""Groups and transactions whose internal topics are compacted meanwhile: a few fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest

from tidelog.simulation.runner import describe_failure, run_one
from tidelog.storage.cleaner.offset_map import OffsetMap

SEEDS = [("groups-cleaned", 2), ("transactions-cleaned", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_coordinators_find_what_they_wrote(kind: str, seed: int) -> None:
    result = run_one(kind, seed)
    assert result.failure is None, describe_failure(result)
    assert ", 0 passes" not in result.summary  # else nothing was put to the test


def test_they_do_not_if_the_newest_record_of_a_key_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner for which every record has a newer one."""

    def newer(offset_map: OffsetMap, digests: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return np.full(len(digests[0]), 2**62, np.int64)

    monkeypatch.setattr(OffsetMap, "get", newer)
    assert run_one(*SEEDS[0]).failure is not None
