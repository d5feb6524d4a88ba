"""Runs the command as a user would, and hands out copies of Kafka's files to damage."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tidelog.cli.app import app

GOLDEN = Path(__file__).parents[2] / "data/golden"


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True, scope="session")
def commands_are_built_once() -> Iterator[None]:
    """The runner builds the whole tree of commands for every call, which takes most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(get_command))
        yield


@pytest.fixture
def tidelog() -> Callable[..., Ran]:
    def run(*arguments: str | Path, stdin: bytes = b"") -> Ran:
        given = [str(argument) for argument in arguments]
        result = CliRunner().invoke(app, given, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def golden_copy(tmp_path: Path) -> Callable[[str, str], Path]:
    """A copy of a partition's directory, inside a data directory, under the name given."""

    def copy(directory: str, name: str = "orders-0") -> Path:
        partition = tmp_path / "data" / name
        shutil.copytree(GOLDEN / directory, partition)
        (partition / "dump.txt").unlink(missing_ok=True)
        return partition

    return copy


@pytest.fixture
def data_dir(golden_copy: Callable[[str, str], Path]) -> Path:
    """A whole data directory of Kafka's: identity, checkpoints and three partitions."""
    for topic in ("plain", "txn-mixed-v2", "idempotent"):
        golden_copy(f"segments/{topic}/files", f"{topic}-0")
    data = golden_copy("segments/empty/files", "empty-0").parent
    for file in (GOLDEN / "segments/_logdir/run-1").iterdir():
        shutil.copy(file, data)
    return data
