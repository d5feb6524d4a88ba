"""The command itself: help, version, and how little it loads before it knows what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_help_lists_the_groups(tidelog: Run) -> None:
    ran = tidelog("--help")
    assert ran.code == 0
    assert "log" in ran.out


def test_log_help_lists_the_commands(tidelog: Run) -> None:
    ran = tidelog("log", "--help")
    assert ran.code == 0
    assert all(command in ran.out for command in ("dump", "verify", "reindex"))


def test_version(tidelog: Run) -> None:
    assert tidelog("--version").out == f"tidelog {version('tidelog')}\n"


def test_an_unknown_command_is_a_wrong_use(tidelog: Run) -> None:
    assert tidelog("dig").code == 2
    assert tidelog("log", "dig").code == 2


def test_nothing_heavy_is_loaded_for_help() -> None:
    program = (
        "import sys, tidelog.cli.main; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}, key=str)); "
        "print(*sorted(name for name in sys.modules if name.startswith('tidelog.')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    roots, own = ran.stdout.splitlines()
    assert not {"numpy", "kio", "grpc", "confluent_kafka", "asyncio", "cramjam"} & set(
        roots.split()
    )
    assert own.split() == ["tidelog.cli", "tidelog.cli.log_commands", "tidelog.cli.main"]


def test_a_reader_that_stops_early_causes_no_traceback(golden_copy: Callable[..., Path]) -> None:
    log = golden_copy("segments/codec-large-blocks/files") / "00000000000000000000.log"
    command = [sys.executable, "-c", "from tidelog.cli.main import main; main()", "log", "dump"]
    process = subprocess.Popen(
        [*command, "--print-data-log", str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    complaint = process.stderr.read()
    process.wait(30)
    assert b"Traceback" not in complaint
