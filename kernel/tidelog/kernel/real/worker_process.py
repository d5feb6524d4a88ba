"""The worker's side of ``process_offload``: answer questions on standard input until it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

LENGTH: Final = struct.Struct(">I")
WORKER_OF: Final = "TIDELOG_WORKER_OF"
"""The environment variable that tells a worker which process it works for."""

NICENESS: Final = 10
"""A tenth of the share of a process that is not nice, where both want the processor."""
_PR_SET_PDEATHSIG: Final = 1


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer until the asking process closes the socket or is gone."""
    _become_a_worker()
    with socket.socket(fileno=os.dup(0)) as link:
        while (question := _read_frame(link)) is not None:
            reply = answer(question)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.sendall(LENGTH.pack(len(reply)))
                link.sendall(reply)


def _become_a_worker() -> None:
    """Low priority; deaf to the terminal's signals, which are for the node; and mortal."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform.startswith("linux"):
        # The end of input is read only between two questions. A node that is killed and starts
        # again must not meet the worker of its former life at its files.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    owner = os.environ.get(WORKER_OF)
    if owner is not None and os.getppid() != int(owner):
        sys.exit(0)  # it was gone before we asked to be told


def _read_frame(link: socket.socket) -> bytes | None:
    """None at the end of input."""
    head = _read(link, LENGTH.size)
    if head is None:
        return None
    return _read(link, LENGTH.unpack(head)[0])


def _read(link: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            part = link.recv(min(size - len(data), 1 << 20))
        except ConnectionResetError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)
