"""The same seed is the same run, in any process; what fails can be told and made smaller."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from slow_tests import slow_after

from tidelog.simulation import runner
from tidelog.simulation.__main__ import main
from tidelog.simulation.history import Violation
from tidelog.simulation.quorum_run import QuorumRun
from tidelog.simulation.runner import Order, describe_failure, run_many, run_one, shrunk
from tidelog.simulation.seed_run import SeedResult

SCRIPT = (
    "import sys; from tidelog.simulation.runner import run_one;"
    " result = run_one(sys.argv[1], int(sys.argv[2]));"
    " print(result.digest, result.events, result.failure)"
)


REPLAYED = [("cluster", 4), ("quorum", 3), ("groups", 15), ("transactions", 8)]


@pytest.mark.parametrize("kind_and_seed", slow_after(1, REPLAYED), ids=str)
def test_a_seed_replays_in_another_process_whatever_its_hash_seed(
    kind_and_seed: tuple[str, int],
) -> None:
    kind, seed = kind_and_seed
    # In this process the hash seed is the system's choice, or pytest's.
    elsewhere = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = run_one(kind, seed)
    assert elsewhere.stdout.strip() == f"{here.digest} {here.events} {here.failure}"
    assert here.events > 1_000


# Before a fixture below adds one of its own.
KNOWN_KINDS = set(runner.KINDS)


class BrokenQuorumRun(QuorumRun):
    """Fails whenever a node was paused; stands for a defect that one kind of fault shows."""

    kind = "broken"

    async def finish(self) -> None:
        await super().finish()
        if any("Pause" in str(fault) for fault in self.schedule.faults):
            raise Violation("it was paused")


@pytest.fixture(scope="module")
def failing_seed() -> Iterator[SeedResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runner.KINDS, "broken", BrokenQuorumRun)
        for seed in range(1, 200):
            result = run_one("broken", seed)
            if result.failure is not None and len(result.schedule.faults) > 1:
                yield result
                return
    raise AssertionError("no seed pauses a node")


def test_a_failing_seed_tells_all_and_shrinks(failing_seed: SeedResult) -> None:
    text = describe_failure(failing_seed)
    assert "Violation: it was paused" in text
    assert f"make sim KIND=broken SEED={failing_seed.seed}" in text
    assert failing_seed.digest in text
    assert repr(failing_seed.schedule) in text
    smaller = shrunk(failing_seed)
    assert len(smaller.faults) == 1
    assert "Pause" in str(smaller.faults[0])


def test_failures_are_counted_and_make_the_command_fail(
    failing_seed: SeedResult, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    order = Order("broken", failing_seed.seed, 1, processes=1)
    assert [one.seed for one in run_many(order, out)] == [failing_seed.seed]
    assert "1 failed" in out.getvalue()
    assert main(["run", "--kind", "broken", "--seed", str(failing_seed.seed)]) == 1
    assert "FAILED broken seed" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_runs_seeds_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--kind", "quorum", "--seed", "1", "--count", "3"]) == 0
    out = capsys.readouterr().out
    assert "3/3 quorum seeds" in out
    assert "3 quorum seeds from 1 on, 0 failed" in out


def test_time_is_a_limit_too() -> None:
    out = io.StringIO()
    assert run_many(Order("quorum", 1, 1_000, minutes=0.0, processes=2), out) == []
    assert "seeds from 1 on, 0 failed" in out.getvalue()


@pytest.mark.slow
def test_a_look_at_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--kind", "quorum", "--seed", "2", "--trace"]) == 0
    told = capsys.readouterr()
    assert "the leader of term 1" in told.err
    unwatched = run_one("quorum", 2)
    assert unwatched.digest in told.out
    assert unwatched.digest != run_one("quorum", 1).digest
    assert main(["shrink", "--kind", "quorum", "--seed", "2"]) == 1


def test_the_kinds_are_those_the_command_knows() -> None:
    plain = {"quorum", "cluster", "compaction", "groups", "transactions"}
    assert plain | {"groups-cleaned", "transactions-cleaned"} == KNOWN_KINDS
