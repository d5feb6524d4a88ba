"""The ports driven by a seed: time, chance, a disk that can lose power, a network that breaks."""

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
from tidelog.simulation.fault_driver import FaultDriver
from tidelog.simulation.fault_schedule import (
    Budget,
    BudgetExceeded,
    FaultSchedule,
    draw_schedule,
    shrink,
)
from tidelog.simulation.faults import FaultTarget
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.network import NetworkSettings, SimNetwork
from tidelog.simulation.offload import InlineOffload, SimOffload
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_listener import SimByteStream, SimListener, connect_client
from tidelog.simulation.sim_peer_server import SimPeerServer
from tidelog.simulation.sim_peers import SimPeers
from tidelog.simulation.trace import Trace

__all__ = [
    "Budget",
    "BudgetExceeded",
    "CrashAt",
    "Deadlock",
    "DiskFaults",
    "FaultDriver",
    "FaultSchedule",
    "FaultTarget",
    "InlineOffload",
    "LinkQuality",
    "NetworkSettings",
    "SimByteStream",
    "SimClock",
    "SimDisk",
    "SimFile",
    "SimListener",
    "SimNetwork",
    "SimOffload",
    "SimPeerServer",
    "SimPeers",
    "SimProcess",
    "SimRandom",
    "SimulatedCrash",
    "TimeLimitExceeded",
    "Trace",
    "VirtualEventLoop",
    "World",
    "connect_client",
    "draw_schedule",
    "run_simulation",
    "shrink",
]
