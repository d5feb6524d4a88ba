"""The directory of a benchmark goes however the benchmark ends, killed even."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

from bench.scratch import NoRoom, need_room, scratch

ROOT = Path(__file__).parents[3]
BENCHMARK = """
import sys
from bench.scratch import scratch
with scratch(sys.argv[1]) as work:
    (work / "data").write_bytes(b"x" * 1000)
    print(work, flush=True)
    sys.stdin.read()
"""


@contextmanager
def benchmark(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has made its directory, and ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        work = Path(process.stdout.readline().strip())
        assert work.parent == parent.resolve() and (work / "data").is_file()
        yield process, work


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_benchmark_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with benchmark(tmp_path) as (process, work):
        process.send_signal(number)
        process.wait(60)
        until(lambda: not work.exists(), f"{work} is removed after {number.name}")


def test_a_benchmark_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with benchmark(tmp_path) as (process, work):
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert not work.exists()


def test_sigterm_is_as_before_when_it_is_over(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="midway"), scratch(str(tmp_path)):
        raise RuntimeError("midway")
    assert signal.getsignal(signal.SIGTERM) is before
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_refused_beforehand(tmp_path: Path) -> None:
    need_room(tmp_path, 1000)
    with pytest.raises(NoRoom, match="are free there; --dir takes another place"):
        need_room(tmp_path, shutil.disk_usage(tmp_path).total)
