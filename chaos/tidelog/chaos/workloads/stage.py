"""What a workload is given, and what it must be: the frame that the runner knows.

A workload is a set of threads with stock clients on them. The runner makes its topics, starts it,
breaks the cluster, and then asks three things of it in this order: to stop beginning anything new
(``stop``), to read everything back (``read_back``), and to leave (``close``).
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.chaos.recorder import Recorder

FINAL_READER: Final = "final-reader"
"""Reads every topic from its start to its end when all is healed."""

_UNHEARD: Final = logging.Logger("chaos clients", logging.CRITICAL + 1)
"""Clients complain all the time while nodes are broken; what matters is in the history."""

_ASK_WHO_LEADS_MS: Final = 200
"""librdkafka 2.10 and later forget a broker that has left the metadata, and with it sometimes the
new leader of a partition it had just learnt of; what they ask next is when this time is over."""


@dataclass(frozen=True, slots=True)
class Stage:
    bootstrap: str
    recorder: Recorder
    seed: int = 0
    rate: float = 2_000.0
    """Records per second that the whole workload writes, at most."""
    topic_prefix: str = ""
    """Keeps apart what runs one after another on the same cluster."""
    has_new_groups: bool = True
    """Whether the cluster knows the group protocol of KIP-848."""
    patience_s: float = 60.0
    """How long an operation may take before the run gives up on it."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)


class Workload(ABC):
    name: str
    node_settings: Mapping[str, str] = {}
    """Settings that the nodes should have, where the run starts them."""

    @property
    @abstractmethod
    def topics(self) -> Sequence[TopicPlan]:
        """What the runner makes before ``start``."""

    @property
    def groups(self) -> Sequence[str]:
        """Groups whose coordinators may be broken."""
        return ()

    @property
    @abstractmethod
    def workers(self) -> Sequence[Worker]:
        """All threads it has; ``start`` starts them."""

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    @abstractmethod
    def stop(self, patience_s: float) -> None:
        """Begin nothing new, and wait so long for what is under way; the rest is UNKNOWN."""

    @abstractmethod
    def read_back(self, patience_s: float) -> None:
        """Note all that is there, once nothing is written any more."""

    def failures(self) -> Sequence[str]:
        """Of its threads that ended although nobody asked them to."""
        return [worker.failure for worker in self.workers if worker.failure]

    def idle(self) -> Sequence[str]:
        """Its threads that nothing has succeeded for yet: the workload is not under way."""
        return [worker.name for worker in self.workers if not worker.has_succeeded]


class Worker(ABC):
    """A thread that works until it is told to stop; what ends it early is kept for the runner."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
        self.failure = ""
        self._has_succeeded = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_succeeded(self) -> bool:
        """Whether its client was served at least once: what comes later is no start any more."""
        return self._has_succeeded

    def note_success(self) -> None:
        self._has_succeeded = True

    @abstractmethod
    def work(self) -> None:
        """Returns soon after ``stopping`` is set."""

    def finish(self, patience_s: float) -> None:
        self.stopping.set()
        if self._thread.ident is not None:
            self._thread.join(patience_s)
        if self._thread.is_alive() and not self.failure:
            self.failure = f"{self.name}: has not ended {patience_s:g} s after it was asked to"

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # the runner tells it, on its own thread
            self.failure = f"{self.name}: {type(error).__name__}: {error}"


def client_settings(bootstrap: str, client: str, **more: Any) -> dict[str, Any]:
    """What all clients have in common: they find a new leader soon and do not talk.

    A node that stands still answers nothing, so requests are given up well before the session of
    a broker ends, and who leads is asked without being pushed to.
    """
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "logger": _UNHEARD,
        "socket.timeout.ms": 4_000,
        "socket.connection.setup.timeout.ms": 2_000,
        "api.version.request.timeout.ms": 2_000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 100,
        "topic.metadata.refresh.interval.ms": _ASK_WHO_LEADS_MS,
        "topic.metadata.refresh.fast.interval.ms": 50,
        **{_setting(name): value for name, value in more.items()},
    }


def _setting(name: str) -> str:
    return name if name.endswith("_cb") else name.replace("_", ".")
