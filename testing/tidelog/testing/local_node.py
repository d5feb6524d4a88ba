"""One node of a local cluster: where it listens, where its data is, and its process.

The process runs in a group of its own, so that Ctrl-C in a terminal reaches the launcher only and
the launcher decides how nodes end. A thread drains what the node prints: a node must never block
because nobody reads its log.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.nursery import ForkedNode, Nursery, NurseryFailed

OnLine: TypeAlias = Callable[[int, str], None]
"""Told the node's id and a line that it printed."""

NodeProcess: TypeAlias = subprocess.Popen[str] | ForkedNode

LAST_WORDS: Final = 40
_DRAIN_S: Final = 5.0


class ClusterFailed(Exception):
    """A node ended, or the cluster did not serve in time; the text has the node's last words."""


@dataclass(slots=True)
class LocalNode:
    """One process, or the place for one."""

    node_id: int
    kafka: SocketAddress
    rpc: SocketAddress
    data_dir: Path
    config: Path
    http: SocketAddress | None = None
    process: NodeProcess | None = None
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_WORDS))
    is_wanted: bool = False
    """Started, and not stopped or killed through this object since."""
    reader: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was ever started."""
        return self.process.poll() if self.process is not None else None

    def description(self) -> dict[str, Any]:
        return {
            "id": self.node_id,
            "pid": self.process.pid if self.process is not None else None,
            "kafka": str(self.kafka),
            "rpc": str(self.rpc),
            "http": None if self.http is None else str(self.http),
            "data_dir": str(self.data_dir),
            "config": str(self.config),
        }

    # --- life --------------------------------------------------------------------------

    def start(
        self, server: Sequence[str] | Nursery, on_line: OnLine, more: Sequence[str] = ()
    ) -> None:
        """By a command of its own, or as a child of a nursery; ``more`` are further arguments."""
        if self.is_running:
            raise ClusterFailed(f"node {self.node_id} is running already")
        arguments = ["--config", str(self.config), *more]
        output: IO[str]
        if isinstance(server, Nursery):
            try:
                self.process, output = server.start(arguments)
            except NurseryFailed as failure:
                raise ClusterFailed(str(failure)) from failure
        else:
            self.process, output = _run_command([*server, *arguments])
        self.is_wanted = True
        self.last_words.clear()
        self.reader = threading.Thread(target=self._read_lines, args=(output, on_line), daemon=True)
        self.reader.start()

    def ask_to_end(self) -> None:
        """SIGTERM; a paused process gets it only when it goes on."""
        self.is_wanted = False
        if self.process is not None and self.is_running:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.is_wanted = False
        if self.process is not None:
            self.process.kill()

    def send(self, number: signal.Signals) -> None:
        if self.process is None or not self.is_running:
            raise ClusterFailed(f"node {self.node_id} is not running")
        self.process.send_signal(number)

    def wait_for_end(self, timeout_s: float) -> None:
        """Wait, kill it if that takes too long, and take in its last words."""
        if self.process is None:
            return
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.reader is not None:
            self.reader.join(_DRAIN_S)

    def obituary(self) -> str:
        """How an ended node ended, and what it said last."""
        self.wait_for_end(_DRAIN_S)
        words = "\n".join(f"  {line}" for line in self.last_words) or "  (it printed nothing)"
        return f"node {self.node_id} ended with {ending(self.exit_code)}:\n{words}"

    def _read_lines(self, output: IO[str], on_line: OnLine) -> None:
        with output:
            for line in output:
                self.last_words.append(line.rstrip("\n"))
                on_line(self.node_id, line.rstrip("\n"))


def _run_command(command: Sequence[str]) -> tuple[subprocess.Popen[str], IO[str]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    assert process.stdout is not None
    return process, process.stdout


def ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"signal {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"
