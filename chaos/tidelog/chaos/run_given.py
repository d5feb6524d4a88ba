"""A cluster that somebody else runs, known by its address: it is loaded and watched, not broken.

Any Kafka-compatible cluster will do. The only fault that can be done to it is what any client may
do: administration.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.chaos.faults.table import FAULTS, Family
from tidelog.chaos.targets.base import Rigging, TargetDown, TargetError
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.probe import ClusterAnswer, ProbeFailed, ask_cluster

_ASK_S: Final = 5.0
_REACH_S: Final = 10.0


class GivenCluster:
    """A ``Target``; raises TargetError at once if nobody answers."""

    name = "address"

    def __init__(self, bootstrap: str) -> None:
        self._answer = _reach(bootstrap)
        known = (str(address) for address in self._answer.brokers.values())
        self._addresses = ",".join(known) or bootstrap

    @property
    def bootstrap(self) -> str:
        return self._addresses

    @property
    def nodes(self) -> Sequence[int]:
        return sorted(self._answer.brokers)

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """It is not ours to stop."""

    def cannot(self, fault: str) -> str | None:
        if FAULTS[fault].family is Family.ADMINISTRATION:
            return None
        return (
            "a cluster known only by its address can be loaded but not broken; "
            "take --target local, netns or compose"
        )

    def environment(self) -> Mapping[str, str]:
        return {
            "cluster": self._answer.cluster_id or "unnamed",
            "bootstrap": self._addresses,
            "nodes": ", ".join(map(str, self.nodes)),
        }

    def log_dirs(self, node: int) -> Sequence[Path]:
        return ()

    def is_running(self, node: int) -> bool:
        return node in self._answer.brokers

    def heal_all(self) -> None:
        """Nothing was broken."""

    def kill(self, node: int) -> None:
        self._refuse()

    def terminate(self, node: int) -> None:
        self._refuse()

    def start_node(self, node: int) -> None:
        self._refuse()

    def pause(self, node: int) -> None:
        self._refuse()

    def resume(self, node: int) -> None:
        self._refuse()

    def cut(self, source: int, target: int) -> None:
        self._refuse()

    def mend(self, source: int, target: int) -> None:
        self._refuse()

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        self._refuse()

    def reset_link(self, source: int, target: int) -> None:
        self._refuse()

    def lose(self, source: int, target: int, share: float) -> None:
        self._refuse()

    def rig(self, node: int, rigging: Rigging) -> None:
        self._refuse()

    def lose_unsynced(self, node: int) -> str:
        self._refuse()
        return ""

    def _refuse(self) -> None:
        raise TargetError("a cluster known only by its address cannot be broken")


def _reach(bootstrap: str) -> ClusterAnswer:
    try:
        addresses = [SocketAddress.parse(part.strip()) for part in bootstrap.split(",")]
    except ValueError as error:
        raise TargetError(
            f"{bootstrap!r} is neither local, netns or compose nor HOST:PORT,…: {error}"
        ) from None
    deadline = time.monotonic() + _REACH_S
    problem = ""
    for address in addresses:
        try:
            return ask_cluster(address, min(_ASK_S, max(0.5, deadline - time.monotonic())))
        except ProbeFailed as error:
            problem = str(error)
    raise TargetDown(
        f"no node answers at {bootstrap} ({problem}). Is a cluster running there? "
        "tidelog up starts one"
    )
