"""A worker process for tests: says what it is told, and does what it is told to."""

from __future__ import annotations

import os
import signal
import time

from tidelog.kernel.real.worker_process import serve


def answer(question: bytes) -> bytes:
    match question:
        case b"pid":
            return str(os.getpid()).encode()
        case b"nice":
            return str(os.nice(0)).encode()
        case b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"crash":
            raise ValueError("as it was told to")
        case b"never":
            time.sleep(600)
    return question


if __name__ == "__main__":
    serve(answer)
