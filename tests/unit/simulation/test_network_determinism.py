"""The same seed gives the same run, event for event, in every process."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog.simulation import run_simulation

SCENARIO = Path(__file__).with_name("network_scenario.py")


def told_by_another_process(hash_seed: str, seed: int) -> str:
    finished = subprocess.run(
        [sys.executable, str(SCENARIO), str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return finished.stdout


def test_a_chatty_cluster_under_faults_is_the_same_in_every_process() -> None:
    told = [told_by_another_process(hash_seed, 7) for hash_seed in ("0", "4242")]
    assert told[0] == told[1]
    assert int(told[0].split()[0]) > 2000, "too little happened to show anything"


@pytest.fixture(scope="module")
def scenario() -> dict[str, Any]:
    return runpy.run_path(str(SCENARIO))


@pytest.mark.parametrize("seed", range(8))
def test_nodes_talk_again_after_any_faults(scenario: dict[str, Any], seed: int) -> None:
    first = run_simulation(scenario["main"], seed, time_limit_s=1000)
    if seed < 2:
        assert run_simulation(scenario["main"], seed, time_limit_s=1000) == first
