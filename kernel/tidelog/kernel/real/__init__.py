"""The ports on a real machine. Only start-up code and tools pick these; logic takes a port."""

from tidelog.kernel.real.clock import SystemClock
from tidelog.kernel.real.disk import OsDisk, OsFile
from tidelog.kernel.real.offload import ThreadOffload
from tidelog.kernel.real.random import SystemRandom

__all__ = ["OsDisk", "OsFile", "SystemClock", "SystemRandom", "ThreadOffload"]
