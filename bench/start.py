"""`make bench-start`: how long a node and a cluster take to serve, phase by phase, and in how much
memory.

One node runs in this module's own process for nodes (``python -m bench.start node …``), which
notes the time at the end of each phase. Three nodes are started as a person would, by ``tidelog
up``, and seen from outside: by their log lines, and by a stock client whose first record they
acknowledge. Processor time is told beside wall time, because it says the same on a busy machine.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bench.table import Row

SERVING_GOAL_S: Final = 1.5
MEMORY_GOAL_MB: Final = 80
ROUNDS: Final = 3
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MARK: Final = "phase "
_LOGGED: Final = {
    "settings": re.compile("may open [0-9]+ files"),
    "controller serving": re.compile("serves other nodes at"),
    "registered": re.compile("is registered with epoch"),
    "unfenced": re.compile("broker [0-9]+ is in service"),
}
"""The lines of a node's log with which phases end."""


# --- what the system knows of a process ------------------------------------------------


def age_s(pid: int | str = "self") -> float:
    """Since the process began, to a hundredth of a second."""
    began = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]) / _TICKS
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def processor_s(pid: int) -> float:
    """Of the process and of those children that it has seen end."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS


def memory_mb(pid: int | str, kind: str = "Rss") -> float:
    """``Rss``: all that is mapped; ``Pss``: what is shared counts in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"{kind} of process {pid} is not told")


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


# --- one node, from inside -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    wall_s: float
    processor_s: float
    memory_mb: float


class Marks(logging.Handler):
    """Tells the launcher when a phase has ended; once each."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for name, line in _LOGGED.items():
            if line.search(text):
                self.mark(name)

    def mark(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            told = (name, age_s(), time.process_time(), memory_mb("self"))
            print(f"{_MARK}{json.dumps(told)}", flush=True)


def run_node(arguments: list[str]) -> int:
    marks = Marks()
    marks.mark("interpreter")
    from tidelog.broker import process

    process.load_modules()
    from tidelog.broker import node

    marks.mark("imports")
    open_directory: Callable[..., Any] = vars(node)["open_directory"]

    def open_and_tell(*given: Any, **named: Any) -> Any:
        opened = open_directory(*given, **named)
        marks.mark("directories")
        return opened

    vars(node)["open_directory"] = open_and_tell
    logging.getLogger().addHandler(marks)
    logging.getLogger().setLevel(logging.INFO)
    return process.main(arguments)


def start_one_node() -> list[Phase]:
    from tidelog.testing.local_cluster import LocalCluster

    phases: list[Phase] = []

    def take(_: int, line: str) -> None:
        if line.startswith(_MARK):
            phases.append(Phase(*json.loads(line.removeprefix(_MARK))))

    with LocalCluster(1, server=(sys.executable, "-m", "bench.start", "node"), on_line=take) as one:
        await_first_answer(one.bootstrap, replicas=1)
        process = one.nodes[1].process
        assert process is not None
        phases.append(
            Phase(
                "first acks=all answer",
                age_s(process.pid),
                processor_s(process.pid),
                memory_mb(process.pid),
            )
        )
    return phases


def phases_of_one_node() -> Iterator[Row]:
    """The quickest of some rounds: whatever else the machine does only makes it slower."""
    from bench.table import Row

    rounds = [start_one_node() for _ in range(ROUNDS)]
    for row in min(rounds, key=lambda phases: phases[-1].wall_s):
        name = f"1 node: {row.name}"
        yield Row(f"{name}, after", row.wall_s * 1000, "ms")
        yield Row(f"{name}, processor", row.processor_s * 1000, "ms")
        yield Row(f"{name}, memory", row.memory_mb, "MB")


# --- three nodes, from outside ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    after_s: dict[str, float]
    """By phase, when the last of the nodes had ended it."""
    processor_s: float
    resident_mb: float
    shared_out_mb: float


def start_three_nodes() -> Started:
    command = [str(Path(sys.executable).with_name("tidelog")), "up", "--ephemeral", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as lines:
            began = time.time()
            up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, text=True)
        try:
            assert up.stdout is not None
            told = json.loads(up.stdout.readline())
            ready_s = time.time() - began
            await_first_answer(told["bootstrap"], replicas=3)
            answered_s = time.time() - began
            pids = [node["pid"] for node in told["nodes"]]
            return Started(
                {
                    **logged_phases(log.read_text(encoding="utf-8"), began),
                    "ready": ready_s,
                    "first acks=all answer": answered_s,
                },
                sum(map(processor_s, family(up.pid))),
                max(map(memory_mb, pids)),
                max(memory_mb(pid, "Pss") for pid in pids),
            )
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(60)


def logged_phases(text: str, began: float) -> dict[str, float]:
    """Log lines carry the time of day; ``[2] 10:48:19.485 INFO …``."""
    midnight = datetime.fromtimestamp(began).replace(hour=0, minute=0, second=0, microsecond=0)
    ended: dict[str, float] = {}
    for line in text.splitlines():
        at = re.match(r"\[\d+\] (\d\d):(\d\d):(\d\d\.\d{3}) ", line)
        for name, phase in _LOGGED.items():
            if at is not None and phase.search(line):
                hours, minutes, seconds = at.groups()
                of_day = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
                ended[name] = max(ended.get(name, 0.0), midnight.timestamp() + of_day - began)
    return ended


def phases_of_three_nodes() -> Iterator[Row]:
    from bench.table import Row

    rounds = [start_three_nodes() for _ in range(ROUNDS)]
    best = min(rounds, key=lambda one: one.after_s["first acks=all answer"])
    for name, after_s in best.after_s.items():
        goal = SERVING_GOAL_S if name == "first acks=all answer" else None
        yield Row(f"3 nodes by tidelog up: {name}, after", after_s, "s", goal, "lower")
    yield Row("3 nodes by tidelog up: processor time of all", best.processor_s, "s")
    yield Row("3 nodes: memory of a node", best.resident_mb, "MB", MEMORY_GOAL_MB, "lower")
    yield Row("3 nodes: memory of a node, shared in part", best.shared_out_mb, "MB")


# --- a client --------------------------------------------------------------------------


def await_first_answer(bootstrap: str, replicas: int) -> None:
    """By a producer that is not idempotent: librdkafka gives up its first connection as soon as it
    knows the brokers, finds none to ask for a producer id, and asks again half a second later by a
    timer of its own, whatever the cluster does."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    at: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(at)
    admin.create_topics([NewTopic("first", 1, replicas)])["first"].result(30)
    producer = Producer({**at, "acks": "all", "linger.ms": 0})
    failed: list[object] = []
    producer.produce("first", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(30)
    assert failed == [None], failed


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["node"]:
        return run_node(arguments[1:])
    import confluent_kafka  # noqa: F401  (before any clock runs)

    from bench.table import Row, report

    load = os.getloadavg()[0]
    rows = [*phases_of_one_node(), *phases_of_three_nodes()]
    rows.append(Row("load of the machine in the minute before", load, "processes"))
    report("start", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
