"""The process that imports what nodes need and forks a node whenever its launcher asks.

It has one thread and has started nothing when it forks: no event loop, no gRPC. A node's life is
known by a pipe that only the node holds open; its end is told with the code that ``subprocess``
would give it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Final

from tidelog.broker import process

_MAX_REQUEST_BYTES: Final = 1 << 16
_STOP_S: Final = 20.0
_PR_SET_PDEATHSIG: Final = 1


class NurseryProcess:
    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher
        self._selector = selectors.DefaultSelector()
        self._selector.register(launcher, selectors.EVENT_READ)
        self._nodes: dict[int, int] = {}
        """Process ids by the descriptors that are readable when the process has ended."""
        self._leftover: str | None = None

    def run(self) -> list[str] | None:
        """In each node its arguments; in the nursery, None at its end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._launcher:
                    self._bury(key.fd)
                    continue
                match self._request():
                    case {"arguments": list(arguments), "leftover": leftover}, output:
                        self._leftover = leftover
                        if self._give_birth(output):
                            return arguments
                    case {"goodbye": True}, _:
                        self._end_nodes()
                        return None
                    case _:
                        self._end_nodes()
                        self._remove_leftover()
                        return None

    def _request(self) -> tuple[object, int]:
        """What was said, None if the launcher has gone, and the descriptor that came with it."""
        try:
            line, outputs, _, _ = socket.recv_fds(self._launcher, _MAX_REQUEST_BYTES, 1)
            while line and not line.endswith(b"\n"):
                line += self._launcher.recv(_MAX_REQUEST_BYTES)
        except ConnectionResetError:  # it went without having read all it was told
            line = b""
        return (json.loads(line), next(iter(outputs), -1)) if line else (None, -1)

    def _give_birth(self, output: int) -> bool:
        """True in the child."""
        lifeline, held_by_node = os.pipe()
        nursery = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(lifeline)
            self._become_node(nursery, output)
            return True
        os.close(output)
        os.close(held_by_node)
        self._nodes[lifeline] = pid
        self._selector.register(lifeline, selectors.EVENT_READ)
        self._tell(f"born {pid}")
        return False

    def _become_node(self, nursery: int, output: int) -> None:
        os.setpgid(0, 0)
        _die_with(nursery)
        self._selector.close()
        self._launcher.close()
        for lifeline in self._nodes:
            os.close(lifeline)
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)

    def _bury(self, lifeline: int) -> None:
        self._selector.unregister(lifeline)
        os.close(lifeline)
        pid = self._nodes.pop(lifeline)
        _, status = os.waitpid(pid, 0)
        self._tell(f"ended {pid} {os.waitstatus_to_exitcode(status)}")

    def _tell(self, words: str) -> None:
        with suppress(OSError):  # the launcher has gone, which is seen when it is read from
            self._launcher.sendall(f"{words}\n".encode())

    def _end_nodes(self) -> None:
        """The launcher has gone: nodes get the time for a clean end, and no more."""
        self._selector.unregister(self._launcher)
        for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, None)):
            for pid in self._nodes.values():
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
            deadline = None if patience_s is None else time.monotonic() + patience_s
            while self._nodes and (deadline is None or time.monotonic() < deadline):
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                for key, _ in self._selector.select(left_s):
                    self._bury(key.fd)

    def _remove_leftover(self) -> None:
        if self._leftover is not None:
            import shutil  # only here: nodes would have it in memory, too

            shutil.rmtree(self._leftover, ignore_errors=True)


def _die_with(parent: int) -> None:
    """Be killed when the parent dies, so that a node never outlives what could stop it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before this was asked for
            os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    process.load_modules()
    gc.collect()
    gc.freeze()  # nodes share this memory as long as no collection writes to it
    nodes_arguments = NurseryProcess(socket.socket(fileno=int(arguments[0]))).run()
    return 0 if nodes_arguments is None else process.main(nodes_arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
