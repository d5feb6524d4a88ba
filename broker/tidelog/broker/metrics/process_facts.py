"""The process as its system sees it, from /proc; what a system does not tell is left out."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator
from typing import Final

_STARTED_AT_S: Final = time.time() - time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
_PAGE_BYTES: Final = resource.getpagesize()
_RSS, _VSIZE, _THREADS, _START_TICKS = 21, 20, 17, 19
"""Fields of /proc/self/stat, counted from the one behind the command."""


def process_samples() -> Iterator[tuple[str, float]]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield "process_cpu_seconds_total", usage.ru_utime + usage.ru_stime
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        open_fds = len(os.listdir("/proc/self/fd"))
        started_at_s = _boot_time_s() + int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        yield "process_start_time_seconds", _STARTED_AT_S
        return
    yield "process_start_time_seconds", started_at_s
    yield "process_open_fds", open_fds
    yield "process_threads", int(fields[_THREADS])
    yield "process_virtual_memory_bytes", int(fields[_VSIZE])
    yield "process_resident_memory_bytes", int(fields[_RSS]) * _PAGE_BYTES


def _boot_time_s() -> float:
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            if line.startswith("btime "):
                return float(line.split()[1])
    raise ValueError("/proc/stat has no btime")


def collections() -> Iterator[tuple[int, int]]:
    """By generation."""
    for generation, stats in enumerate(gc.get_stats()):
        yield generation, stats["collections"]
