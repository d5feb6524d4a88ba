"""The guards that mutants remove are where their tables say. That something notices takes minutes
and is seen by ``make mutants``; that a guard was renamed is seen here."""

from __future__ import annotations

import cleaner_mutants
import cluster_mutants
import coordination_mutants
import pytest
import raft_mutants
from mutants import ROOT, Mutant

RAFT = "controller/tidelog/controller/raft"
PLACES: list[tuple[str, str, str]] = [
    (mutant.name, mutant.path, mutant.guard)
    for table in (cleaner_mutants.MUTANTS, cluster_mutants.MUTANTS, coordination_mutants.MUTANTS)
    for mutant in table
] + [(mutant.name, f"{RAFT}/{mutant.module}.py", mutant.guard) for mutant in raft_mutants.MUTANTS]


@pytest.mark.parametrize(("path", "guard"), [p[1:] for p in PLACES], ids=[p[0] for p in PLACES])
def test_the_guard_is_there_once(path: str, guard: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8").count(guard) == 1


def detectors(mutants: list[Mutant]) -> set[str]:
    return {one for mutant in mutants for one in mutant.detectors}


def test_the_detectors_are_there() -> None:
    named = detectors(cleaner_mutants.MUTANTS) | detectors(cluster_mutants.MUTANTS)
    named |= detectors(coordination_mutants.MUTANTS)
    files = {one.split("::")[0] for one in named if one.startswith("tests/")}
    assert files
    assert [one for one in files if not (ROOT / one).exists()] == []
