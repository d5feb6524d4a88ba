"""Processes of a peer that is not Tidelog: started from a command, killed, started again.

A process writes to a log file beside its data. All processes are groups of their own and end with
this object, whatever it was that ended the measurement; if that was SIGKILL, what was launched
directly is killed by the kernel (where there is util-linux), and the data is removed by another.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from bench.peers.peer import NODES, PeerFailed
from bench.scratch import Scratch

_END_S: Final = 20.0
_LAST_WORDS: Final = 2_000


@dataclass(slots=True)
class Nodes:
    """The processes of one cluster, by node number, and the folder that all their files are in."""

    name: str
    _scratch: Scratch = field(init=False)
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scratch = Scratch(prefix=f"peer-{self.name}-")

    @property
    def home(self) -> Path:
        return self._scratch.path

    def launch(
        self, node: int, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        with (self.home / f"{node}.out").open("ab") as output:
            self._running[node] = subprocess.Popen(
                [*dying_with_this_process(), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env={**os.environ, **(environment or {})},
                process_group=0,
            )

    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values() if process.poll() is None]

    def kill(self, node: int) -> None:
        process = self._running.pop(node)
        with suppress(ProcessLookupError):  # it had ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_END_S)

    def await_(self, is_ready: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            for node, process in self._running.items():
                if process.poll() is not None:
                    raise PeerFailed(f"{self.name} node {node} ended: {self.last_words(node)}")
            if time.monotonic() > deadline:
                words = "\n".join(self.last_words(node) for node in self._running)
                raise PeerFailed(f"{self.name}: {what} not within {timeout_s:g} s: {words}")
            time.sleep(0.02)

    def last_words(self, node: int) -> str:
        return (self.home / f"{node}.out").read_text(errors="replace")[-_LAST_WORDS:]

    def stop(self) -> None:
        """The data goes with them, so nothing is gained from a slow end."""
        for node in list(self._running):
            self.kill(node)
        self._scratch.remove()


class OfProcesses(ABC):
    """What peers have in common whose nodes are processes with a port for clients each."""

    name: ClassVar[str]
    patience_s: ClassVar[float] = 60.0
    """How long its nodes may take until they listen."""

    def __init__(self) -> None:
        self._nodes: Nodes | None = None
        self._ports: list[int] = []

    @abstractmethod
    def start_node(self, node: int) -> None: ...

    def start(self) -> None:
        for node in range(1, NODES + 1):
            self.start_node(node)
        self.await_serving()

    def await_serving(self) -> None:
        self._running().await_(lambda: all(map(listens, self._ports)), "listening", self.patience_s)

    def pids(self) -> Sequence[int]:
        return self._running().pids()

    def data_dirs(self) -> Sequence[Path]:
        return [self._data_dir(node) for node in range(1, NODES + 1)]

    def kill(self, node: int) -> None:
        self._running().kill(node)

    def stop(self) -> None:
        if self._nodes is not None:
            self._nodes.stop()
            self._nodes = None

    def _running(self) -> Nodes:
        if self._nodes is None:
            raise PeerFailed(f"{self.name} is not running")
        return self._nodes

    def _data_dir(self, node: int) -> Path:
        return self._running().home / f"data-{node}"


def dying_with_this_process() -> Sequence[str]:
    """What to run a command with, so that the kernel kills it when whoever started it has died."""
    return ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
