"""What targets have in common whose nodes are processes of a local cluster.

Owner: whoever made the target. Links are left to the kind of target. Everything that acts is
remembered, so that ``heal_all`` undoes whatever is still in force, also after an interruption.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tidelog.chaos.faults.table import FAULTS, Family
from tidelog.chaos.power_loss import lose_unsynced
from tidelog.chaos.targets.base import SOUND, Rigging, TargetError
from tidelog.kernel.real.rigging import RIGGED, SWITCHES, give_orders
from tidelog.testing.local_cluster import ClusterFailed, LocalCluster, OnLine

_RIGGED_FAMILIES: Final = (Family.DISK, Family.CLOCK, Family.POWER)


class ProcessTarget:
    """The part that signals, starts and rigs processes; subclasses have the links."""

    name = ""

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        is_rigged: bool = True,
        unsafe_switches: Sequence[str] = (),
        on_line: OnLine = lambda node_id, line: None,
    ) -> None:
        """``is_rigged`` lets disks and calendars be spoiled; ``unsafe_switches`` are further
        words of ``TIDELOG_UNSAFE_TESTING``."""
        with in_words():
            self._cluster = self._make_cluster(
                nodes,
                settings=settings,
                data_dir=data_dir,
                environment=unsafe_environment(is_rigged, unsafe_switches),
                on_line=on_line,
            )
        self._paused: set[int] = set()
        self._rigged: set[int] = set()

    def _make_cluster(self, nodes: int, **options: Any) -> LocalCluster:
        return LocalCluster(nodes, **options)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def nodes(self) -> Sequence[int]:
        return sorted(self._cluster.nodes)

    def __enter__(self) -> ProcessTarget:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with in_words():
            self._cluster.start()

    def stop(self) -> None:
        """Data that nobody will see again is worth no farewell: when all nodes of a cluster are
        asked to end, the last of a quorum wait long for a controller that lets them go."""
        with ExitStack() as stack:
            stack.callback(self._cluster.stop)
            self._resume_all()
            if self._cluster.is_ephemeral:
                self._cluster.kill_all()

    def cannot(self, fault: str) -> str | None:
        row = FAULTS[fault]
        if self.name not in row.targets:
            return f"{fault} cannot be done to target {self.name}"
        if len(self.nodes) < row.min_nodes:
            return f"{fault} needs {row.min_nodes} nodes, and there are {len(self.nodes)}"
        if row.family in _RIGGED_FAMILIES and not self._is_rigged:
            return f"{fault} needs nodes with rigged disks and calendars (is_rigged=True)"
        return None

    def environment(self) -> Mapping[str, str]:
        told = {
            "tidelog": version("tidelog"),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
            "target": self.name,
            "nodes": str(len(self.nodes)),
            "rigged disks": "yes" if self._is_rigged else "no",
        }
        return {**told, **dict(self._cluster.settings)}

    def log_dirs(self, node: int) -> Sequence[Path]:
        return [self._cluster.nodes[node].data_dir]

    # --- processes ---------------------------------------------------------------------

    def is_running(self, node: int) -> bool:
        return self._cluster.nodes[node].is_running

    def kill(self, node: int) -> None:
        self._cluster.kill(node)
        self._paused.discard(node)

    def terminate(self, node: int) -> None:
        self._cluster.stop_node(node)
        self._paused.discard(node)

    def start_node(self, node: int) -> None:
        if not self.is_running(node):
            with in_words():
                self._cluster.start_node(node)

    def pause(self, node: int) -> None:
        with in_words():
            self._cluster.pause(node)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        self._paused.discard(node)
        if self.is_running(node):
            with in_words():
                self._cluster.resume(node)

    # --- disk and calendar -------------------------------------------------------------

    def rig(self, node: int, rigging: Rigging) -> None:
        self._require_rigged()
        self._rigged.add(node)
        give_orders(str(self._cluster.nodes[node].data_dir), rigging)

    def lose_unsynced(self, node: int) -> str:
        self._require_rigged()
        if self.is_running(node):
            raise TargetError(f"node {node} runs; power loss is for a node that was killed")
        return str(lose_unsynced(self._cluster.nodes[node].data_dir))

    @property
    def _is_rigged(self) -> bool:
        return RIGGED in self._cluster.environment.get(SWITCHES, "").split(",")

    def _require_rigged(self) -> None:
        if not self._is_rigged:
            raise TargetError("the nodes' disks and calendars are not rigged (is_rigged=True)")

    # --- everything --------------------------------------------------------------------

    def heal_all(self) -> None:
        for node in sorted(self._rigged):
            self.rig(node, SOUND)
        self._rigged.clear()
        self._resume_all()
        for node in self.nodes:
            self.start_node(node)

    def wait_until_serving(self, timeout_s: float = 30.0) -> None:
        """Every node names every node as alive."""
        with in_words():
            self._cluster.wait_until_serving(timeout_s)

    def _resume_all(self) -> None:
        for node in sorted(self._paused):
            self.resume(node)


@contextmanager
def in_words() -> Iterator[None]:
    """Failures of the launcher are failures of the target."""
    try:
        yield
    except ClusterFailed as failure:
        raise TargetError(str(failure)) from failure


def unsafe_environment(is_rigged: bool, more: Sequence[str]) -> dict[str, str]:
    """The switches of nodes that tests may break."""
    words = [*([RIGGED] if is_rigged else []), *more]
    return {SWITCHES: ",".join(words)}
