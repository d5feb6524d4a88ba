"""Where the nodes of a local cluster are born: one process that has imported everything, and forks.

Imports are most of what a node's start costs, and nodes of one machine can share them. Each node
is nevertheless a process of its own, with its own id, log, group and end; started from its file
by hand it runs just the same.

The process at the other end is ``nursery_process``. Down the socket goes one line for each node
to start, with the descriptor that its output goes to, and one to say goodbye; back come one line
with a node's id and, when it has ended, one with how. Whoever loses the other end of the socket
ends: a nursery whose launcher is gone, killed even, stops its nodes, and nodes whose nursery is
gone are killed by the kernel. If no goodbye was said, nobody is left to remove what the launcher
would have removed, and the nursery does.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

_MODULE: Final = "tidelog.testing.nursery_process"
_ANSWER_S: Final = 60.0
"""The first node has to wait until all is imported."""
_END_S: Final = 60.0


class NurseryFailed(Exception):
    """The nursery did not start, or has ended; what it printed says why."""


class ForkedNode:
    """A node's process, as far as its launcher needs to know it; like ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._has_ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._has_ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"node with process id {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended, and word of it is on its way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, returncode: int) -> None:
        self.returncode = returncode
        self._has_ended.set()


class Nursery:
    """Begins to import when it is made, so make it early; ``close`` ends all of its nodes."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> None:
        """Its nodes get ``environment`` besides this process's; ``within`` is a command that runs
        another in its own place, such as ``ip netns exec NAME``."""
        self.leftover: Path | None = None
        """A directory that nobody needs when the launcher is gone. Told with each node to start."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*within, sys.executable, "-m", _MODULE, str(theirs.fileno())],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the launcher
            )
        self._nodes: dict[int, ForkedNode] = {}
        self._born: queue.SimpleQueue[ForkedNode | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._hear, daemon=True)
        self._listener.start()

    def start(self, arguments: Sequence[str]) -> tuple[ForkedNode, IO[str]]:
        """``tidelog server`` with these arguments, and all that it will print."""
        output, nodes_output = os.pipe()
        try:
            return self._ask_for(arguments, nodes_output), open(
                output, encoding="utf-8", errors="replace"
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(nodes_output)

    def _ask_for(self, arguments: Sequence[str], output: int) -> ForkedNode:
        leftover = None if self.leftover is None else str(self.leftover)
        request = json.dumps({"arguments": list(arguments), "leftover": leftover})
        try:
            socket.send_fds(self._socket, [f"{request}\n".encode()], [output])
            node = self._born.get(timeout=_ANSWER_S)
        except (OSError, queue.Empty) as error:
            raise NurseryFailed(f"no node could be started: {error}") from error
        if node is None:
            raise NurseryFailed("the process that starts nodes has ended")
        return node

    def close(self) -> None:
        """Nodes that still run are asked to end, and killed if they do not."""
        with suppress(OSError):  # it may be gone already
            self._socket.sendall(b'{"goodbye": true}\n')
            self._socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        self._socket.close()

    def _hear(self) -> None:
        with self._socket.makefile("r", encoding="ascii") as words, suppress(ConnectionError):
            for line in words:
                word, *numbers = line.split()
                if word == "born":
                    node = self._nodes[int(numbers[0])] = ForkedNode(int(numbers[0]))
                    self._born.put(node)
                elif word == "ended":
                    self._nodes.pop(int(numbers[0])).ended(int(numbers[1]))
        for node in self._nodes.values():  # the kernel kills nodes whose nursery has gone
            node.ended(-signal.SIGKILL)
        self._born.put(None)
