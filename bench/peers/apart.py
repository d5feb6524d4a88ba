"""Work of a client in a process of its own, which is new each time.

What a process did before decides how fast it is: out of a heap that has had gigabytes of records in
it, others come more slowly. Whoever has the later turn would be measured with what the turns before
left behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, Generic, TypeVar

from bench.peers.peer import PeerFailed

Result = TypeVar("Result")

YIELDING: Final = 19
"""The lowest priority. librdkafka's threads spin while records wait for room among the requests in
flight. On a machine that clients and nodes share they would take half of it from the nodes, and the
more so the fewer threads a node has."""


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    result: Result
    processor_s: float
    """What the work took, without making the process ready."""


def apart(work: Callable[[], Result], niceness: int = 0) -> Done[Result]:
    """``work`` goes to the other process, so it is a function of a module, or a partial of one."""
    context = get_context("spawn")
    answer, teller = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(teller, work, niceness), daemon=True)
    child.start()
    teller.close()
    try:
        told: Done[Result] | str = answer.recv()
    except EOFError:
        child.join()
        raise PeerFailed(f"the client's process ended with {child.exitcode}") from None
    finally:
        child.kill()  # it has nothing left to do, or whoever waited for it was stopped
        child.join()
        answer.close()
    if isinstance(told, str):
        raise PeerFailed(told)
    return told


def _tell(teller: Connection, work: Callable[[], Any], niceness: int) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    before = time.process_time()
    try:
        result = work()
    except Exception as failure:  # each peer's client has errors of its own, and not all can travel
        teller.send(str(failure) if isinstance(failure, PeerFailed) else repr(failure))
    else:
        teller.send(Done(result, time.process_time() - before))
