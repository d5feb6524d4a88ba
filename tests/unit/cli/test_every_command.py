"""What holds for every command there is: help that explains, JSON on request, exit code 2 for
what it does not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tidelog.cli.app import app

Run = Callable[..., Any]

WITHOUT_JSON = {
    "server": "runs until it is stopped; logging.format=json is for its log",
    "controller": "the same",
    "chaos run": "writes its verdict to files, which chaos check --json reads",
}
WITH_OTHERS_HELP = {"server", "controller"}
"""Parsed without typer, see test_main."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, one in sorted(below.items()):
        yield from commands(one, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
OF_TYPER = sorted(COMMANDS.keys() - WITH_OTHERS_HELP)


def flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) > 50
    assert {"up", "topic create", "doctor", "perf produce", "quorum add"} <= COMMANDS.keys()
    assert COMMANDS.keys() >= WITHOUT_JSON.keys()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_json_can_be_had(name: str) -> None:
    assert ("--json" in flags(COMMANDS[name])) != (name in WITHOUT_JSON)


@pytest.mark.parametrize("name", OF_TYPER)
def test_help_explains_the_command_and_its_options(tidelog: Run, name: str) -> None:
    for flag in ("--help", "-h"):
        ran = tidelog(*name.split(), flag)
        assert (ran.code, ran.err) == (0, "")
        assert f"Usage: tidelog {name}" in " ".join(ran.out.split())
    command = COMMANDS[name]
    assert command.help and command.help.rstrip().endswith("."), "one sentence at least"
    hidden = {p.name for p in command.params if getattr(p, "hidden", False)}
    silent = {p.name for p in command.params if not getattr(p, "help", None)} - hidden
    assert not silent, f"without a word of help: {silent}"


@pytest.mark.parametrize("name", OF_TYPER)
def test_an_unknown_option_is_a_wrong_use(tidelog: Run, name: str) -> None:
    ran = tidelog(*name.split(), "--no-such-option")
    assert (ran.code, ran.out) == (2, "")
    assert "--no-such-option" in ran.err


ASKING = [name for name in OF_TYPER if "--bootstrap-server" in flags(COMMANDS[name])]


@pytest.mark.parametrize("name", ASKING)
def test_an_address_has_a_short_form_and_a_variable(name: str) -> None:
    parameter = next(p for p in COMMANDS[name].params if "--bootstrap-server" in p.opts)
    assert "-b" in parameter.opts
    assert parameter.envvar == "TIDELOG_BOOTSTRAP_SERVER"


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "t", "--lake", "l"),
        ("snapshot", "t", "-o", "d"),
        ("replay", "t", "--to", "u"),
        ("aggregate", "t", "--to", "u", "--schema", "a INT", "--metric", "n=count(a)",
         "--checkpoint", "c"),
        ("audit", "t", "u"),
        ("verify", "history.jsonl"),
    ],
)  # fmt: skip
def test_every_job_takes_the_options_of_spark(tidelog: Run, arguments: tuple[str, ...]) -> None:
    ran = tidelog("pipeline", *arguments, "--master", "local[1]", "--json", "--conf", "odd")
    assert (ran.code, ran.err) == (2, "--conf 'odd' is not NAME=VALUE\n")


def test_short_answers_in_json(tidelog: Run, data_dir: Path) -> None:
    assert len(json.loads(tidelog("storage", "random-uuid", "--json").out)["uuid"]) == 22
    script = json.loads(tidelog("pipeline", "script", "--json").out)["script"]
    assert script == tidelog("pipeline", "script").out.strip()


def test_what_is_wrong_with_files_in_json(tidelog: Run, data_dir: Path) -> None:
    log = data_dir / "plain-0" / "00000000000000000000.log"
    sound = tidelog("log", "verify", data_dir, "--json")
    assert sound.code == 0
    assert json.loads(sound.out)["problems"] == []
    assert json.loads(sound.out)["partitions"] == 4
    done = tidelog("log", "reindex", data_dir, "--json")
    assert (done.code, json.loads(done.out)["problems"]) == (0, [])

    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    broken = tidelog("log", "verify", data_dir, "--json")
    assert broken.code == 1
    (problem, *_) = json.loads(broken.out)["problems"]
    assert problem["path"] == str(log) and problem["problem"]
    left = tidelog("log", "reindex", data_dir, "--json")
    assert left.code == 1
    assert str(log) in json.loads(left.out)["problems"][0]
