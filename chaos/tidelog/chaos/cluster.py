"""A cluster that your own test can break: every fault a ``with`` block that heals at its end.

::

    from tidelog.chaos import Cluster

    with Cluster.local(3) as cluster:
        leader = cluster.leader_of("events", 0)
        with cluster.cut(leader, from_="controllers"):
            ...  # drive your clients against cluster.bootstrap

A block heals whatever happens in it. What acts at once and has no end (``kill``, ``lose_power``)
is a plain method. Nodes are named by their ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Literal, TypeAlias, TypeVar

from tidelog.chaos.faults.applying import AppliedFault, apply
from tidelog.chaos.faults.schedule import draw_one
from tidelog.chaos.faults.view import AdminView
from tidelog.chaos.targets.base import SOUND, Rigging, Target, TargetError
from tidelog.chaos.targets.local import LocalTarget

__all__ = ["Cluster", "From", "TargetError"]

T = TypeVar("T")

From: TypeAlias = Literal["all", "controllers", "controller"] | int | Iterable[int]
"""All other nodes, all that are controllers, the active controller, or these."""

_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05


class Cluster:
    """Use as a context manager: it starts the target and stops it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._view: AdminView | None = None

    @classmethod
    def local(cls, nodes: int = 3, *, settings: Mapping[str, str] | None = None) -> Cluster:
        """Processes on this machine, of which every node is broker and controller."""
        return cls(LocalTarget(nodes, settings=settings))

    def __enter__(self) -> Cluster:
        self.target.start()
        self._view = AdminView(self.target.bootstrap)
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self.target.stop)
            if self._view is not None:
                self._view.close()

    @property
    def bootstrap(self) -> str:
        return self.target.bootstrap

    @property
    def nodes(self) -> Sequence[int]:
        return self.target.nodes

    # --- who is who --------------------------------------------------------------------

    @property
    def view(self) -> AdminView:
        if self._view is None:
            raise TargetError("the cluster was not started; use it in a with block")
        return self._view

    def leader_of(self, topic: str, partition: int, *, timeout_s: float = _PATIENCE_S) -> int:
        """Waits for one if there is none at the moment."""
        what = f"{topic}-{partition} has no leader"
        return self._await(lambda: self.view.leader_of(topic, partition), what, timeout_s)

    def isr(self, topic: str, partition: int) -> set[int]:
        return set(self.view.isr(topic, partition))

    def followers_of(self, topic: str, partition: int) -> list[int]:
        """Those in sync, the leader apart."""
        leader = self.leader_of(topic, partition)
        return sorted(self.isr(topic, partition) - {leader})

    def controller(self, *, timeout_s: float = _PATIENCE_S) -> int:
        """The active one; waits for it."""
        return self._await(self.view.controller, "there is no active controller", timeout_s)

    def coordinator(self, group: str, *, timeout_s: float = _PATIENCE_S) -> int:
        what = f"group {group} has no coordinator"
        return self._await(lambda: self.view.coordinator(group), what, timeout_s)

    def wait_until_isr(
        self, topic: str, partition: int, nodes: Iterable[int], timeout_s: float = _PATIENCE_S
    ) -> None:
        """Until exactly these are in sync."""
        wanted = set(nodes)

        def reached() -> bool | None:
            return True if self.isr(topic, partition) == wanted else None

        what = f"the ISR of {topic}-{partition} is not {sorted(wanted)}"
        self._await(reached, what, timeout_s)

    def wait_until_whole(self, *topics: str, timeout_s: float = _PATIENCE_S) -> None:
        """Until every partition of these topics has a leader and all of its replicas in sync."""

        def reached() -> bool | None:
            states = self.view.partitions_of(topics)
            whole = [s for s in states if s.leader is not None and set(s.isr) == set(s.replicas)]
            return True if states and len(whole) == len(states) else None

        self._await(reached, f"{', '.join(topics)} is not whole", timeout_s)

    # --- processes ---------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """SIGKILL; ``start_node`` brings it back."""
        self.target.kill(node)

    def terminate(self, node: int) -> None:
        """SIGTERM: the node hands over and ends."""
        self.target.terminate(node)

    def start_node(self, node: int) -> None:
        self.target.start_node(node)

    def restart(self, node: int) -> None:
        self.target.terminate(node)
        self.target.start_node(node)

    @contextmanager
    def killed(self, *nodes: int) -> Iterator[None]:
        """Dead inside the block, started again at its end."""
        with ExitStack() as undo:
            for node in nodes:
                undo.callback(self.target.start_node, node)
                self.target.kill(node)
            yield

    @contextmanager
    def paused(self, *nodes: int) -> Iterator[None]:
        """SIGSTOP inside the block, SIGCONT at its end."""
        with ExitStack() as undo:
            for node in nodes:
                undo.callback(self.target.resume, node)
                self.target.pause(node)
            yield

    # --- network between nodes ---------------------------------------------------------

    @contextmanager
    def cut(self, node: int, from_: From = "all", *, one_way: bool = False) -> Iterator[None]:
        """``one_way``: what the node sends does not arrive, and it still hears the others."""
        with ExitStack() as undo:
            for other in self._others(node, from_):
                pairs = [(node, other)] if one_way else [(node, other), (other, node)]
                for source, target in pairs:
                    undo.callback(self.target.mend, source, target)
                    self.target.cut(source, target)
            yield

    @contextmanager
    def slowed(
        self, node: int, *, delay_ms: float = 0.0, bytes_per_s: float = 0.0, to: From = "all"
    ) -> Iterator[None]:
        """What the node sends arrives late, or at this rate; 0 means no delay, no limit."""
        with ExitStack() as undo:
            for other in self._others(node, to):
                undo.callback(self.target.slow_link, node, other, 0.0, 0.0)
                self.target.slow_link(node, other, delay_ms, bytes_per_s)
            yield

    @contextmanager
    def losing(self, node: int, share: float, *, to: From = "all") -> Iterator[None]:
        """This share of the packets that the node sends is lost; not on target ``local``."""
        with ExitStack() as undo:
            for other in self._others(node, to):
                undo.callback(self.target.lose, node, other, 0.0)
                self.target.lose(node, other, share)
            yield

    def reset(self, node: int, *, to: From = "all") -> None:
        """Reset the connections that the node has opened to others."""
        for other in self._others(node, to):
            self.target.reset_link(node, other)

    # --- disk, calendar, power ---------------------------------------------------------

    @contextmanager
    def rigged(
        self,
        node: int,
        *,
        is_disk_full: bool = False,
        is_read_only: bool = False,
        sync_ms: float = 0.0,
        skew_s: float = 0.0,
    ) -> Iterator[None]:
        """A node that met a full or read-only disk may end; start it again after the block."""
        rigging = Rigging(is_disk_full, is_read_only, sync_ms, skew_s)
        with ExitStack() as undo:
            undo.callback(self.target.rig, node, SOUND)
            self.target.rig(node, rigging)
            yield

    def lose_power(self, *nodes: int) -> str:
        """Kill these nodes (all, if none is named), take from their disks what was not synced,
        start them again. Says what was lost."""
        chosen = nodes or tuple(self.nodes)
        for node in chosen:
            self.target.kill(node)
        lost = [f"node {node}: {self.target.lose_unsynced(node)}" for node in chosen]
        for node in chosen:
            self.target.start_node(node)
        return "; ".join(lost)

    # --- by name -----------------------------------------------------------------------

    def fault(self, name: str, *, topics: Sequence[str] = (), seed: int = 0) -> AppliedFault:
        """Any fault of ``tidelog chaos list``, hitting what serves these topics: a context
        manager that heals. What its name leaves open is drawn from the seed."""
        if reason := self.target.cannot(name):
            raise TargetError(reason)
        self.view.topics = list(topics)
        return apply(draw_one(seed, name, self.nodes), self.target, self.view)

    def heal(self) -> None:
        """Undo whatever is still in force, and start every node that does not run."""
        self.target.heal_all()

    # --- inside ------------------------------------------------------------------------

    def _others(self, node: int, whom: From) -> list[int]:
        match whom:
            case "all" | "controllers":  # every node of our targets is a controller
                chosen = list(self.nodes)
            case "controller":
                chosen = [self.controller()]
            case int():
                chosen = [whom]
            case str():
                raise ValueError(f"{whom!r} is not all, controllers, controller or nodes")
            case _:
                chosen = list(whom)
        if unknown := sorted({node, *chosen} - set(self.nodes)):
            raise ValueError(f"there is no node {unknown[0]}; there are {list(self.nodes)}")
        return [other for other in chosen if other != node]

    def _await(self, ask: Callable[[], T | None], what: str, timeout_s: float) -> T:
        deadline_s = time.monotonic() + timeout_s
        while (answer := ask()) is None:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what}, {timeout_s:g} s on")
            time.sleep(_POLL_S)
        return answer
