"""``tidelog chaos``: what it refuses, what it lists, and the command that repeats a run."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidelog.cli.app import app
from tidelog.cli.chaos_list import as_document, as_text
from tidelog.cli.chaos_run import ChaosOptions, command_line, interruption, parse_duration
from tidelog.cli.failures import WrongUse

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "5 days", "m", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="a time like 90"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workload", "dance"], "there is no workload 'dance'"),
        (["--faults", "kill-cat"], "there is no fault 'kill-cat'"),
        (["--nodes", "1", "--faults", "cut"], "cut needs 3 nodes, and there are 1"),
        (["--faults", "loss"], "loss cannot be done to target local"),
        (["--rate", "0"], "a rate of 0"),
        (["-o", "nonsense"], "must be name=value"),
        (["--counts", "kill-cat=1"], "there is no fault 'kill-cat' to count"),
        (["--counts", "kills=1"], "there is no fault 'kills' to count"),
        (["--counts", "cut"], "'cut' is no count of a fault"),
        (["--counts", "cut=0"], "'cut=0' is no count of a fault"),
        (["--counts", "cut=-1"], "'cut=-1' is no count of a fault"),
        (["--counts", "cut=1,cut=2"], "cut is counted twice"),
        (["--counts", ","], "no fault is counted"),
        (["--counts", "cut=1", "--nodes", "2"], "cut needs 3 nodes, and there are 2"),
    ],
)
def test_what_cannot_be_done_is_a_wrong_use(arguments: list[str], words: str) -> None:
    ended = RUNNER.invoke(app, ["chaos", "run", *arguments])
    assert ended.exit_code == 2, ended.output
    assert words in ended.output


def test_a_target_that_is_not_up_is_said() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        ended = RUNNER.invoke(app, ["chaos", "run", "--target", address, "--faults", ""])
    assert ended.exit_code == 1
    assert f"no node answers at {address}" in ended.output


def test_settings_are_for_nodes_that_the_run_starts() -> None:
    arguments = ["chaos", "run", "--target", "127.0.0.1:1", "--faults", "", "-o", "a=b"]
    ended = RUNNER.invoke(app, arguments)
    assert ended.exit_code == 2
    assert "takes no settings (a)" in ended.output


@pytest.mark.parametrize("target", ["127.0.0.1:1", "compose"])
def test_data_is_kept_of_nodes_that_the_run_configures(target: str, tmp_path: Path) -> None:
    arguments = ["chaos", "run", "--target", target, "--faults", "", "--data-dir", str(tmp_path)]
    ended = RUNNER.invoke(app, arguments)
    assert ended.exit_code == 2
    assert "--data-dir is for local and netns" in ended.output


def test_data_is_kept_apart_from_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ended = RUNNER.invoke(app, ["chaos", "run", "--data-dir", str(tmp_path)])
    assert ended.exit_code == 2
    assert f"{tmp_path} is not empty" in " ".join(ended.output.split())


def test_without_the_rights_to_make_namespaces_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ended = RUNNER.invoke(app, ["chaos", "run", "--target", "netns"])
    assert ended.exit_code == 2
    assert "network namespaces, which needs root; try --target local" in ended.output


def test_a_first_signal_asks_and_a_second_insists() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruption() as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGINT)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_can_be_repeated() -> None:
    options = ChaosOptions(
        target="netns",
        workload="append",
        faults="kills, cut",
        duration_s=90.0,
        seed=None,
        nodes=5,
        rate=2_000.0,
        output=Path("somewhere"),
        settings={"a": "b c"},
    )
    assert command_line(options, 7) == (
        "tidelog chaos run --target netns --nodes 5 --workload append --faults 'kills, cut' "
        "--duration 90s --seed 7 --rate 2000 -o 'a=b c'"
    )


def test_a_run_that_counts_can_be_repeated() -> None:
    options = ChaosOptions(
        target="local",
        workload="mixed",
        faults="kills",
        duration_s=None,
        seed=None,
        nodes=3,
        rate=600.0,
        output=None,
        settings={},
        counts="cut=2",
    )
    assert command_line(options, 7) == (
        "tidelog chaos run --target local --nodes 3 --workload mixed --counts cut=2 "
        "--seed 7 --rate 600"
    )


def test_the_list_says_why_something_cannot_be_done() -> None:
    reasons = {"local": {"loss": "loss is beyond proxies"}, "netns": {}}
    text = as_text(reasons)
    row = next(line for line in text.splitlines() if line.startswith("loss "))
    assert row.split()[1:3] == ["no", "yes"]
    assert "local   is beyond proxies  loss" in text
    document = json.loads(json.dumps(as_document(reasons)))
    loss = next(fault for fault in document["faults"] if fault["name"] == "loss")
    assert loss["targets"] == {"local": "loss is beyond proxies", "netns": None}
