"""The command itself: help, version, and how little it loads before it knows what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.main import main

Run = Callable[..., Any]


def test_help_lists_the_commands_and_groups(tidelog: Run) -> None:
    ran = tidelog("--help")
    assert ran.code == 0
    listed = {line.split()[1] for line in ran.out.splitlines() if line.startswith("│ ")}
    assert {"up", "topic", "produce", "consume", "server", "controller", "storage"} <= listed
    assert {"quorum", "log"} <= listed


def test_log_help_lists_the_commands(tidelog: Run) -> None:
    ran = tidelog("log", "--help")
    assert ran.code == 0
    assert all(command in ran.out for command in ("dump", "verify", "reindex"))


def test_version(tidelog: Run) -> None:
    assert tidelog("--version").out == f"tidelog {version('tidelog')}\n"


def test_an_unknown_command_is_a_wrong_use(tidelog: Run) -> None:
    assert tidelog("dig").code == 2
    assert tidelog("log", "dig").code == 2


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tidelog ver", ["verifiable-producer", "verifiable-consumer"]),
        ("tidelog group d", ["describe", "delete", "delete-offsets"]),
        ("tidelog reassign execute --th", ["--throttle"]),
    ],
)
def test_bash_completes_commands_and_options(words: str, offered: list[str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert completed("bash", **asked).split() == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_too_and_explain(shell: str) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "tidelog ver", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    told = completed(shell, **asked)
    assert "verifiable-producer" in told and "verifiable-consumer" in told
    assert "Send increasing numbers" in told and "topic" not in told


def completed(shell: str, **asked: str) -> str:
    """What the command offers a shell that asks for the rest of a line."""
    environment = {"_TIDELOG_COMPLETE": f"complete_{shell}", "PATH": os.environ["PATH"]}
    program = "import sys; sys.argv = ['tidelog']; from tidelog.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout


def loaded_after(program: str) -> tuple[set[str], set[str]]:
    """The top-level packages, and our own modules, that a program has loaded."""
    ending = (
        "; import sys; print(); print(*{name.split('.')[0] for name in sys.modules}); "
        "print(*(name for name in sys.modules if name.startswith('tidelog.')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program + ending], capture_output=True, text=True, check=True
    )
    roots, own = ran.stdout.splitlines()[-2:]
    return set(roots.split()), set(own.split())


def test_nothing_heavy_is_loaded_for_help() -> None:
    roots, own = loaded_after("import tidelog.cli.app")
    assert not {"numpy", "kio", "grpc", "confluent_kafka", "asyncio", "cramjam"} & roots
    commands = (
        "admin", "chaos", "cluster", "config", "consume", "doctor", "explain", "feature", "group",
        "log", "perf", "pipeline", "produce", "quorum", "reassign", "storage", "topic", "txn", "up",
        "verifiable",
    )  # fmt: skip
    assert own == {
        "tidelog.cli", "tidelog.cli.app", "tidelog.cli.nodes", "tidelog.cli.options",
        "tidelog.cli.failures", "tidelog.cli.exit_codes", "tidelog.cli.console_options",
        "tidelog.cli.chaos_check", "tidelog.cli.chaos_summary",
        *(f"tidelog.cli.{name}_commands" for name in commands),
    }  # fmt: skip


def test_a_node_loads_none_of_the_command_line_s_libraries() -> None:
    program = (
        "import sys; sys.argv = ['tidelog', 'server', '--help']\n"
        "from tidelog.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code in (0, None)\n"
        "pass"
    )
    roots, _ = loaded_after(program)
    assert not {"typer", "click", "rich", "confluent_kafka"} & roots


@pytest.mark.parametrize(
    ("command", "given", "handed_over"),
    [
        ("server", ["--config", "f", "-o", "a=b"], ["--config", "f", "-o", "a=b"]),
        ("controller", ["--config", "f"], ["--config", "f", "-o", "process.roles=controller"]),
    ],
)
def test_node_commands_are_handed_over_as_they_came(
    tidelog: Run,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    given: list[str],
    handed_over: list[str],
) -> None:
    seen: list[list[str]] = []

    def run_instead(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    monkeypatch.setattr("tidelog.broker.process.main", run_instead)
    assert tidelog(command, *given).code == 7
    monkeypatch.setattr(sys, "argv", ["tidelog", command, *given])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 7
    assert seen == [handed_over, handed_over]


def test_a_node_without_a_readable_configuration_is_a_wrong_use(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from tidelog.cli.main import main; main()", "server"]
    missing = subprocess.run(
        [*command, "--config", str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert (missing.returncode, "none" in missing.stderr) == (2, True)
    assert "Traceback" not in missing.stderr
    unknown = subprocess.run([*command, "--colour"], capture_output=True, text=True, check=False)
    assert (unknown.returncode, "--colour" in unknown.stderr) == (2, True)


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
