"""Loads of `make bench-peers` run in processes of their own, and what goes wrong there is told."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial

import pytest

from bench.peers.apart import YIELDING, apart
from bench.peers.peer import PeerFailed


def priority_of_a_thread() -> int:
    seen: list[int] = []
    look = partial(os.getpriority, os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=lambda: seen.append(look()))
    thread.start()
    thread.join()
    return seen[0]


def spin() -> None:
    start = time.process_time()
    while time.process_time() - start < 0.05:
        pass


def lose(topic: str) -> None:
    raise PeerFailed(f"a record of {topic} was lost")


def test_each_load_has_a_new_process_and_only_yielding_ones_the_lowest_priority() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    pids = {os.getpid(), apart(os.getpid).result, apart(os.getpid).result}
    assert len(pids) == 3
    assert apart(priority_of_a_thread, YIELDING).result == 19
    assert apart(priority_of_a_thread).result == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_only_the_work_counts_not_the_start_of_the_process() -> None:
    assert apart(os.getpid).processor_s < 0.05 <= apart(spin).processor_s


def test_how_a_load_failed_is_told() -> None:
    with pytest.raises(PeerFailed, match=r"^a record of load was lost$"):
        apart(partial(lose, "load"))
    with pytest.raises(PeerFailed, match="ZeroDivisionError"):
        apart(partial(divmod, 1, 0))
    with pytest.raises(PeerFailed, match="ended with 3"):
        apart(partial(os._exit, 3))


def test_the_process_does_not_outlive_who_waits_for_it() -> None:
    code = (
        "import signal, time\n"
        "from functools import partial\n"
        "from bench.peers.apart import apart\n"
        "signal.alarm(1)\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "apart(partial(time.sleep, 600))\n"
    )
    # Interrupted, it ends at once: it does not wait ten minutes for the other to be done.
    ended = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code])
    assert ended == -signal.SIGINT
