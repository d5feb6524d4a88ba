"""Guards removed on purpose, one at a time, in a copy: something must notice.

A ``Mutant`` names a guard by its text, what stands in its place, and the detectors that are known
to catch it: tests, or seeds of the simulation (``cluster:7``, ``quorum:3``). The room of the guard
is copied aside and put before the real one on the path, so that the tree is never touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900
_SEED_KINDS = ("cluster", "quorum", "groups", "transactions")


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    what: str
    """The hazard or the rule that the guard is for."""
    path: str
    guard: str
    without: str
    detectors: tuple[str, ...]


def judge(mutant: Mutant, detectors: Sequence[str] | None = None) -> str | None:
    """The first detector that notices, and how; None if the mutant lives."""
    with tempfile.TemporaryDirectory() as folder:
        _copy_without(mutant, Path(folder))
        for detector in mutant.detectors if detectors is None else detectors:
            noticed = _try(detector, folder)
            if noticed is not None:
                return f"{detector} ({noticed})"
    return None


def _copy_without(mutant: Mutant, folder: Path) -> None:
    room = mutant.path.split("/")[0]
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / room / "tidelog", folder / "tidelog", ignore=ignore)
    module = folder / Path(mutant.path).relative_to(room)
    source = module.read_text(encoding="utf-8")
    if source.count(mutant.guard) != 1:
        raise SystemExit(f"{mutant.name}: the guard is not found once in {mutant.path}")
    module.write_text(source.replace(mutant.guard, mutant.without), encoding="utf-8")


def _try(detector: str, folder: str) -> str | None:
    kind, _, seed = detector.partition(":")
    if kind in _SEED_KINDS and seed.isdecimal():
        run = _python(folder, "-c", _SEED, kind, seed)
        return run.stdout.strip()[:150] or None if run.returncode else None
    run = _python(folder, "-m", "pytest", *_PYTEST_OPTIONS, detector)
    if run.returncode == 0:
        return None
    if run.returncode != 1:
        raise SystemExit(f"{detector} could not be run:\n{run.stdout[-2000:]}{run.stderr[-1000:]}")
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    return failed[0].split("::", 1)[-1][:150] if failed else "failed"


_PYTEST_OPTIONS = (
    "-q", "-x", "--no-header", "-p", "no:cacheprovider", "--hypothesis-profile=as-found",
)  # fmt: skip
_SEED = (
    "import sys; from tidelog.simulation.runner import run_one;"
    " result = run_one(sys.argv[1], int(sys.argv[2]));"
    " print((result.failure or '').splitlines()[-1:]); sys.exit(result.failure is not None)"
)


def _python(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([folder, str(ROOT), str(ROOT / "tests" / "support")])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def run_all(mutants: Iterable[Mutant], names: Sequence[str]) -> int:
    """Judge all, or those that are named; 1 if one lives."""
    chosen = [mutant for mutant in mutants if not names or mutant.name in names]
    alive: list[str] = []
    for mutant in chosen:
        noticed = judge(mutant)
        print(f"{mutant.name} ({mutant.what}): {noticed or 'LIVES'}", flush=True)
        if noticed is None:
            alive.append(mutant.name)
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants noticed; alive: {alive or 'none'}")
    return 1 if alive else 0
