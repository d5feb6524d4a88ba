"""What a peer is to this benchmark: three nodes on this machine, and a client that loads them.

Every peer writes a topic to three nodes. What an acknowledgement means is chosen when it starts:
the strongest promise that it can make, or the default of Apache Kafka, which leaves writing to disk
to the operating system. A peer that cannot run here says why, and which command would help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

NODES: Final = 3
PARTITIONS: Final = 3
BUILD: Final = Path(__file__).parents[2] / "build" / "peers"
"""Where `make setup-peers` puts programs; ignored by git."""


class Durability(Enum):
    """What has happened to a record on two of three nodes, or on all, when it is acknowledged."""

    SYNCED = "synced"
    PAGE_CACHE = "page cache"


class PeerFailed(Exception):
    """A peer did not start or did not answer; the text has its last words."""


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a peer is not measured here, and what would change that."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Produced:
    records: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds, one per record: until it was acknowledged, and until a reader had it."""

    acknowledged: Sequence[float]
    arrived: Sequence[float]


class Client(Protocol):
    """The load that a peer is put under; each method makes its own connections and ends them."""

    def create(self, topic: str, partitions: int) -> None:
        """A topic on three nodes; returns when it can be written to."""

    def delete(self, topic: str) -> None: ...

    def produce(self, topic: str, size: int, seconds: float, clients: int = 1) -> Produced:
        """As fast as it goes, every record acknowledged; ``clients`` write at the same time."""

    def write(self, topic: str, size: int, records: int) -> None:
        """So many records, acknowledged."""

    def touch(self, topic: str, partitions: int) -> None:
        """One acknowledged record on every partition, as soon as that can be had."""

    def consume(self, topic: str, partitions: int, records: int) -> float:
        """Records a second, from the first on."""

    def latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        """At a fixed rate, small records, one reader that waits for them."""

    def acknowledgements(self, topic: str, interval_s: float) -> Acknowledgements:
        """A writer of partition 0 that goes on until it is told to end."""


class Acknowledgements(Protocol):
    """Runs in the background, writing a small record at a time."""

    def newest(self) -> float:
        """When the last acknowledgement came, by ``time.perf_counter``; 0.0 before the first."""

    def end(self) -> Sequence[float]:
        """When each acknowledgement came."""


class Peer(Protocol):
    """Three nodes: ``prepare``, ``start``, ``stop``, and all that again."""

    @property
    def name(self) -> str: ...

    @property
    def client(self) -> Client:
        """There from ``prepare`` on."""

    def absence(self) -> Absence | None:
        """Why it cannot run here; None if it can."""

    def cannot(self, experiment: str) -> str | None:
        """Why it is left out of an experiment; None if it is not."""

    def version(self) -> str: ...

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """What is not default, as its configuration files have it."""

    def prepare(self, durability: Durability) -> None:
        """Files and folders of three empty nodes."""

    def start(self) -> None:
        """Returns when a client may ask for a topic, and ask again if it is too early."""

    def await_serving(self) -> None:
        """The same after nodes were started one by one."""

    def pids(self) -> Sequence[int]: ...

    def data_dirs(self) -> Sequence[Path]: ...

    def leader(self, topic: str) -> int:
        """The node that leads partition 0."""

    def is_whole(self, topic: str) -> bool:
        """Whether partition 0 has all its replicas, in sync."""

    def kill(self, node: int) -> None:
        """SIGKILL, and wait for its end."""

    def start_node(self, node: int) -> None:
        """Again, with the data that it had."""

    def stop(self) -> None:
        """End all and remove their data."""
