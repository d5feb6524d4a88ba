"""The ports driven by a seed: virtual time, chosen chance, a disk that can lose power."""

from tidelog.simulation.clock import SimClock
from tidelog.simulation.disk import SimDisk, SimFile
from tidelog.simulation.disk_faults import CrashAt, DiskFaults, SimulatedCrash
from tidelog.simulation.event_loop import (
    Deadlock,
    TimeLimitExceeded,
    VirtualEventLoop,
    World,
    run_simulation,
)
from tidelog.simulation.offload import InlineOffload, SimOffload
from tidelog.simulation.random import SimRandom

__all__ = [
    "CrashAt",
    "Deadlock",
    "DiskFaults",
    "InlineOffload",
    "SimClock",
    "SimDisk",
    "SimFile",
    "SimOffload",
    "SimRandom",
    "SimulatedCrash",
    "TimeLimitExceeded",
    "VirtualEventLoop",
    "World",
    "run_simulation",
]
