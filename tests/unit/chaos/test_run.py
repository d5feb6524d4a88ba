"""What a run refuses before it begins, and what is shown of it."""

from __future__ import annotations

import io
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog.chaos.history import PartitionState, Sample
from tidelog.chaos.recorder import Totals
from tidelog.chaos.run import run
from tidelog.chaos.run_given import GivenCluster
from tidelog.chaos.run_options import (
    RunFailed,
    RunOptions,
    RunRefused,
    check_options,
    split_names,
)
from tidelog.chaos.run_progress import PlainProgress, status_table
from tidelog.chaos.run_status import Status, Throughput, leaders_text, status_line
from tidelog.chaos.targets.base import TargetError


class Stubborn:
    """A target of some nodes that can do only what it is told it can."""

    name = "local"
    bootstrap = "127.0.0.1:1"

    def __init__(self, nodes: int, reasons: Mapping[str, str] | None = None) -> None:
        self.nodes: Sequence[int] = range(1, nodes + 1)
        self._reasons = reasons or {}

    def cannot(self, fault: str) -> str | None:
        return self._reasons.get(fault)


def options(**changes: Any) -> RunOptions:
    given = {"workload": "append", "faults": ("kill-leader",), "duration_s": 10.0, "seed": 1}
    return RunOptions(**{**given, **changes})


def check(wanted: RunOptions, target: object) -> list[str]:
    return [fault.name for fault in check_options(wanted, target)]  # type: ignore[arg-type]


def test_families_stand_for_their_faults() -> None:
    assert check(options(faults=("cuts", "restart")), Stubborn(3)) == [
        "restart", "cut", "cut-leader", "cut-one-way", "cut-from-controllers", "ring",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload": "dance"}, "there is no workload 'dance'; there are append, copier"),
        ({"faults": ("kill-cat",)}, "there is no fault 'kill-cat'"),
        ({"rate": 0.0}, "a rate of 0"),
        ({"duration_s": -1.0}, "cannot last -1 s"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RunRefused, match=words):
        check(options(**changes), Stubborn(3))


def test_all_that_stands_in_the_way_is_said_at_once() -> None:
    target = Stubborn(2, {"loss": "iptables is missing", "delay": "iptables is missing"})
    with pytest.raises(RunRefused) as refused:
        check(options(faults=("kill-leader", "loss", "delay")), target)
    text = str(refused.value)
    assert "kill-leader needs 3 nodes, and there are 2" in text
    assert "delay, loss: iptables is missing" in text


def test_a_place_that_takes_no_history_is_said_before_anything_starts(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(RunRefused, match="no history can be written to"):
        run(options(), Stubborn(3), place)  # type: ignore[arg-type]


class Fallen(Stubborn):
    """A target that never comes up."""

    def start(self) -> None:
        raise TargetError("node 2 ended with exit code 1")


def test_a_target_that_does_not_come_up_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="target local does not come up: node 2 ended"):
        run(options(), Fallen(3), tmp_path)  # type: ignore[arg-type]


def test_names_are_split_as_people_write_them() -> None:
    assert split_names("cut, kill-leader,,") == ("cut", "kill-leader")


# --- a cluster of somebody else ----------------------------------------------------------


def test_an_address_that_nobody_answers_at_is_said() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: refused at once
        port = held.getsockname()[1]
        with pytest.raises(TargetError, match=f"no node answers at 127.0.0.1:{port}"):
            GivenCluster(f"127.0.0.1:{port}")


def test_what_is_no_target_is_said() -> None:
    with pytest.raises(TargetError, match="'locall' is neither local, netns or compose"):
        GivenCluster("locall")


# --- what is shown -----------------------------------------------------------------------

WHOLE = PartitionState("events", 0, 1, 3, (1, 2, 3), (1, 2, 3))
LACKING = PartitionState("events", 1, None, 4, (1, 2, 3), (2, 3))


def status(elapsed_s: float = 12.0, **changes: Any) -> Status:
    given: dict[str, Any] = {
        "phase": "running",
        "elapsed_s": elapsed_s,
        "duration_s": 90.0,
        "per_s": 1999.6,
        "totals": Totals(10, 0, 2, 9),
        "fault": "",
        "faults_done": 1,
        "faults_planned": 4,
        "sample": Sample(1.0, 2, (1, 2, 3), (WHOLE,)),
    }
    return Status(**{**given, **changes})


def test_throughput_is_of_the_last_second() -> None:
    seen = Throughput()
    assert seen.per_s(0.0, 0) == 0.0
    assert seen.per_s(0.5, 500) == 1000.0
    assert seen.per_s(1.0, 500) == 500.0
    assert seen.per_s(2.0, 500) == 0.0


def test_a_line_names_the_partitions_that_lack_something() -> None:
    assert "all in sync" in status_line(status())
    sample = Sample(1.0, None, (2, 3), (WHOLE, LACKING))
    line = status_line(status(sample=sample, fault="kill-leader node 1"))
    assert "events-1 –[2,3]" in line and "events-0" not in line
    assert "controller ?" in line and line.endswith("fault 1/4: kill-leader node 1")
    assert leaders_text(sample) == "events-0 1[1,2,3]  events-1 –[2,3]"


def test_a_log_gets_a_line_per_change_and_every_few_seconds() -> None:
    out = io.StringIO()
    progress = PlainProgress(out)
    for elapsed_s, fault in [(0.0, ""), (0.1, ""), (1.0, "cut"), (1.1, "cut"), (6.5, "cut")]:
        progress.show(status(elapsed_s, fault=fault))
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["0.0", "1.0", "6.5"]


def test_a_terminal_gets_a_table() -> None:
    from rich.console import Console

    out = io.StringIO()
    sample = Sample(1.0, 2, (2, 3), (WHOLE, LACKING))
    Console(file=out, width=100).print(status_table(status(sample=sample, fault="cut node 1")))
    text = out.getvalue()
    assert "cut node 1" in text and "no leader, in sync 2,3" in text and "12 of 90 s" in text
