"""The cluster of a test: local nodes that can be killed, stopped, paused and cut off, and asked.

Every method blocks until it is done. ``cluster.aio`` has each of them as a coroutine, for tests on
an event loop (pytest-asyncio, or anyio on asyncio); ``healthy()`` and ``group_stable()`` are
coroutines of the cluster itself, as they are what such tests wait for most.

What one test broke the next must not find: ``heal`` undoes all faults, and the pytest plugin calls
it after each test that left one.

Nodes speak to each other through proxies in this process, which is how ``cut`` works. A test that
holds the interpreter for seconds therefore holds up the nodes; ``with_cuts=False`` avoids that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import combinations
from types import TracebackType
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeAlias, TypeVar

from tidelog.testing.link_proxies import LinkProxies
from tidelog.testing.local_cluster import ClusterFailed, LocalCluster, LocalNode
from tidelog.testing.probe import PartitionAnswer, ProbeFailed, ask_cluster, ask_topics
from tidelog.testing.threads import in_thread

if TYPE_CHECKING:
    from tidelog.client import GroupDescription
    from tidelog.client.sync import Admin

SettingValue: TypeAlias = object
"""Text, a number, true or false. To a type checker a dictionary of some of each is of objects."""

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS: Final = 3
_POLL_S: Final = 0.05
_PROBE_S: Final = 1.0
_ADMIN_S: Final = 30
_SMALL: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Tests have few groups and transactions, and wait for their topics when they first use them."""


class FixtureCluster:
    """Use as a context manager, or by the fixtures of the pytest plugin."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, SettingValue] | None = None,
        with_cuts: bool = True,
    ) -> None:
        self._size = nodes
        self._settings = {**_SMALL, **_texts(settings or {})}
        self._with_cuts = with_cuts and nodes > 1
        self._local: LocalCluster | None = None
        self._links: LinkProxies | None = None
        self._admin: Admin | None = None
        self._paused: set[int] = set()
        self._cut: set[tuple[int, int]] = set()
        self.aio = AsyncView(self)
        """The same methods, as coroutines."""

    # --- life -------------------------------------------------------------------------------

    def start(self, timeout_s: float = 30.0) -> None:
        """On ports that are free. One may be taken between the choice and its use, so again."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_once(timeout_s)
                return
            except BaseException as problem:
                self.stop()
                if attempt == _ATTEMPTS or not isinstance(problem, ClusterFailed):
                    raise

    def _start_once(self, timeout_s: float) -> None:
        local = self._local = LocalCluster(self._size, settings=self._settings)
        if self._with_cuts:
            self._links = LinkProxies()
            for source in local.nodes:
                others = [
                    f"{target}@{self._links.open(source, target, local.nodes[target].rpc)}"
                    for target in local.nodes
                    if target != source
                ]
                local.node_settings[source] = {"peer.dial.overrides": ",".join(others)}
        local.start(timeout_s)

    def stop(self) -> None:
        """End all nodes at once; nobody will look at their data."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        local, self._local = self._local, None
        if local is not None:
            local.kill_all()
            local.stop()
        links, self._links = self._links, None
        if links is not None:
            links.close()
        self._paused.clear()
        self._cut.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- what it is -------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """For ``bootstrap.servers``."""
        return self._running.bootstrap

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self._running.nodes)

    @property
    def living(self) -> tuple[int, ...]:
        """Nodes that run and are not paused."""
        found = self._running.nodes.values()
        return tuple(n.node_id for n in found if n.is_running and n.node_id not in self._paused)

    @property
    def is_harmed(self) -> bool:
        """A node is down or paused, or a link is cut."""
        if self._local is None:
            return False
        return bool(self._cut) or len(self.living) < len(self.nodes)

    @property
    def _running(self) -> LocalCluster:
        if self._local is None:
            raise ClusterFailed("the cluster is not started")
        return self._local

    def _node(self, node: int) -> LocalNode:
        found = self._running.nodes.get(node)
        if found is None:
            raise ValueError(
                f"there is no node {node!r}; there are {', '.join(map(str, self.nodes))}"
            )
        return found

    # --- faults -----------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """SIGKILL, as a crash."""
        self._node(node)
        self._running.kill(node)
        self._paused.discard(node)

    def shut_down(self, node: int) -> None:
        """SIGTERM, and wait: it hands its leaderships over first."""
        self._node(node)
        self._running.stop_node(node)
        self._paused.discard(node)

    def restart(self, node: int, timeout_s: float = 30.0) -> None:
        """Start a node again, shutting it down first if it runs; returns when it serves."""
        if self._node(node).is_running:
            self.shut_down(node)
        self._running.start_node(node)
        self._until(lambda: self._is_serving(node), f"node {node} serves", timeout_s)

    def pause(self, node: int) -> None:
        """SIGSTOP: it neither answers nor hangs up."""
        self._node(node)
        self._running.pause(node)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        self._node(node)
        self._running.resume(node)
        self._paused.discard(node)

    def cut(self, a: int, b: int) -> None:
        """Nothing that either of two nodes sends reaches the other; clients reach both."""
        for source, target in self._pair(a, b):
            self._proxies.cut(source, target)
            self._cut.add((source, target))

    def mend(self, a: int, b: int) -> None:
        for source, target in self._pair(a, b):
            self._proxies.mend(source, target)
            self._cut.discard((source, target))

    def isolate(self, node: int) -> None:
        """Cut a node off from all others."""
        for other in self.nodes:
            if other != node:
                self.cut(node, other)

    def heal(self, timeout_s: float = 60.0) -> None:
        """Undo every fault, and wait until the cluster is as it was."""
        for a, b in combinations(self.nodes, 2):
            if (a, b) in self._cut:
                self.mend(a, b)
        for node in list(self._paused):
            self.resume(node)
        for node in self.nodes:
            if not self._node(node).is_running:
                self._running.start_node(node)
        self.wait_healthy(timeout_s)

    def _pair(self, a: int, b: int) -> list[tuple[int, int]]:
        self._node(a)
        self._node(b)
        if a == b:
            raise ValueError(f"node {a} cannot be cut off from itself")
        return [(a, b), (b, a)]

    @property
    def _proxies(self) -> LinkProxies:
        if self._links is None:
            raise ClusterFailed("links of this cluster cannot be cut: it was made without proxies")
        return self._links

    # --- asking -----------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int = 0, timeout_s: float = 30.0) -> int:
        """Who leads a partition; waits while nobody does.

        A node that was cut off may still believe that it leads, so the newest epoch counts, and
        only once its leader says so itself.
        """
        found: list[int] = []
        seen = [""]

        def ask() -> bool:
            answers = [
                (one.leader_epoch, node, one.leader)
                for node in self.living
                for one in self._partitions_at(node, [topic])
                if one.partition == partition
            ]
            newest = max((epoch for epoch, _, _ in answers), default=-1)
            named = {leader for epoch, _, leader in answers if epoch == newest}
            seen[0] = f"nodes name {named}" if answers else "no living node knows of it"
            found.extend(
                node for epoch, node, leader in answers if epoch == newest and leader == node
            )
            return bool(found)

        self._until(ask, f"{topic}-{partition} has a leader", timeout_s, lambda: seen[0])
        return found[0]

    def wait_healthy(self, timeout_s: float = 30.0) -> None:
        """Until every node serves, and every partition has a leader and all its replicas."""
        problem = ["nothing was asked yet"]

        def ask() -> bool:
            problem[0] = self._first_problem() or ""
            return not problem[0]

        self._until(ask, "the cluster is healthy", timeout_s, lambda: problem[0])

    def wait_group_stable(
        self, group: str, members: int | None = None, timeout_s: float = 30.0
    ) -> None:
        """Until a group has settled: STABLE, and with so many members if that is given."""
        seen = ["nothing was heard of it yet"]

        def ask() -> bool:
            known = self._describe_group(group)
            seen[0] = (
                "nobody answers for it"
                if known is None
                else (f"it is {known.state} with {len(known.members)} members")
            )
            if known is None or known.state != "STABLE":
                return False
            return members is None or len(known.members) == members

        self._until(ask, f"group {group!r} is stable", timeout_s, lambda: seen[0])

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until its partitions have leaders."""
        self.admin.create_topic(name, partitions, replication_factor, configs=configs)
        for partition in range(partitions):
            self.leader_of(name, partition)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topic(name)

    @property
    def admin(self) -> Admin:
        """A client for administration."""
        if self._admin is None:
            from tidelog.client.sync import Admin

            self._admin = Admin(
                {"bootstrap.servers": self.bootstrap, "default.api.timeout.ms": _ADMIN_S * 1000}
            )
        return self._admin

    async def healthy(self, timeout_s: float = 30.0) -> None:
        await self.aio.wait_healthy(timeout_s)

    async def group_stable(
        self, group: str, members: int | None = None, timeout_s: float = 30.0
    ) -> None:
        await self.aio.wait_group_stable(group, members, timeout_s)

    def _describe_group(self, group: str) -> GroupDescription | None:
        from tidelog.client import RequestFailed

        try:
            return self.admin.describe_group(group)
        except RequestFailed:  # its coordinator may be on the way to another node
            return None

    def _is_serving(self, node: int) -> bool:
        with suppress(ProbeFailed):
            return node in ask_cluster(self._node(node).kafka, _PROBE_S).brokers
        return False

    def _partitions_at(self, node: int, topics: list[str]) -> list[PartitionAnswer]:
        try:
            return ask_topics(self._node(node).kafka, topics, _PROBE_S)
        except ProbeFailed:
            return []

    def _first_problem(self) -> str | None:
        from tidelog.client import RequestFailed

        if fallen := self._running.fallen():
            raise ClusterFailed(fallen[0].obituary())
        if absent := sorted(set(self.nodes) - set(self.living)):
            return f"node {absent[0]} is {'paused' if absent[0] in self._paused else 'down'}"
        try:
            self._running.wait_until_serving(_PROBE_S)
            topics = self.admin.list_topics(include_internal=True)
        except (ClusterFailed, RequestFailed) as problem:
            return str(problem)
        return self._first_unready(topics)

    def _first_unready(self, topics: list[str]) -> str | None:
        """A partition that lacks its leader or a replica, as its leader says if it has one."""
        words: dict[str, str | None] = {}
        for node in self.nodes:
            for one in self._partitions_at(node, topics):
                name = f"{one.topic}-{one.partition}"
                if one.leader == node:
                    missing = sorted(set(one.replicas) - set(one.isr))
                    words[name] = f"{name} waits for replicas on {missing}" if missing else None
                else:
                    words.setdefault(name, f"{name} has no leader")
        return next((said for said in words.values() if said), None)

    def _until(
        self,
        condition: Callable[[], bool],
        what: str,
        timeout_s: float,
        why: Callable[[], str] = lambda: "",
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                reason = f": {why()}" if why() else ""
                raise TimeoutError(f"not within {timeout_s:g} s: {what}{reason}")
            time.sleep(_POLL_S)


def _texts(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """As they stand in a node's file."""
    found = {}
    for name, value in settings.items():
        if not isinstance(value, str | int | float):
            raise TypeError(f"{name}: text, a number, true or false is wanted, not {value!r}")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


class AsyncView:
    """The methods of a cluster for tests on an event loop: each runs in a thread meanwhile."""

    def __init__(self, cluster: FixtureCluster) -> None:
        self._cluster = cluster

    async def kill(self, node: int) -> None:
        await self._run(self._cluster.kill, node)

    async def shut_down(self, node: int) -> None:
        await self._run(self._cluster.shut_down, node)

    async def restart(self, node: int, timeout_s: float = 30.0) -> None:
        await self._run(self._cluster.restart, node, timeout_s)

    async def pause(self, node: int) -> None:
        await self._run(self._cluster.pause, node)

    async def resume(self, node: int) -> None:
        await self._run(self._cluster.resume, node)

    async def cut(self, a: int, b: int) -> None:
        await self._run(self._cluster.cut, a, b)

    async def mend(self, a: int, b: int) -> None:
        await self._run(self._cluster.mend, a, b)

    async def isolate(self, node: int) -> None:
        await self._run(self._cluster.isolate, node)

    async def heal(self, timeout_s: float = 60.0) -> None:
        await self._run(self._cluster.heal, timeout_s)

    async def leader_of(self, topic: str, partition: int = 0, timeout_s: float = 30.0) -> int:
        return await self._run(self._cluster.leader_of, topic, partition, timeout_s)

    async def wait_healthy(self, timeout_s: float = 30.0) -> None:
        await self._run(self._cluster.wait_healthy, timeout_s)

    async def wait_group_stable(
        self, group: str, members: int | None = None, timeout_s: float = 30.0
    ) -> None:
        await self._run(self._cluster.wait_group_stable, group, members, timeout_s)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        await self._run(self._cluster.create_topic, name, partitions, replication_factor, configs)

    async def delete_topic(self, name: str) -> None:
        await self._run(self._cluster.delete_topic, name)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(call, *args, **kwargs)
