"""Target ``netns``: processes on this machine, each in a network namespace of its own; needs root.

Links are broken by the kernel, packet by packet: connections see lost packets, retransmission and
time-outs, not a proxy. Clients on this machine reach every node that runs.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from tidelog.chaos.targets.base import TargetError
from tidelog.chaos.targets.namespaces import Namespaces, why_not
from tidelog.chaos.targets.packets import NO_NETEM, NodePackets, has_netem
from tidelog.chaos.targets.processes import ProcessTarget
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster, LocalNode
from tidelog.testing.nursery import Nursery

_KAFKA_PORT: Final = 9092
_RPC_PORT: Final = 9093
_HTTP_PORT: Final = 9644


class NamespacedCluster(LocalCluster):
    """A local cluster whose nodes are born, and listen, in namespaces of their own."""

    def __init__(self, namespaces: Namespaces, nodes: int, **options: Any) -> None:
        self._namespaces = namespaces
        self._nurseries: dict[int, Nursery] = {}
        super().__init__(nodes, **options)

    def stop(self) -> None:
        with ExitStack() as stack:
            stack.callback(super().stop)
            self._end_nodes()

    def _end_nodes(self) -> None:
        for node in self.nodes.values():
            node.ask_to_end()
        for nursery in self._nurseries.values():
            nursery.close()
        self._nurseries.clear()

    def _place(self, number: int, dialled: str, port: int | None) -> LocalNode:
        host = self._namespaces.addresses[number]
        return LocalNode(
            number,
            SocketAddress(host, _KAFKA_PORT),
            SocketAddress(host, _RPC_PORT),
            self.data_dir / f"node-{number}",
            self.data_dir / f"node-{number}.properties",
            SocketAddress(host, _HTTP_PORT),
        )

    def _get_server(self, node_id: int) -> Nursery:
        if node_id not in self._nurseries:
            within = self._namespaces.within(node_id)
            self._nurseries[node_id] = Nursery(self.environment, within)
        return self._nurseries[node_id]

    def _bound(self, node: LocalNode) -> SocketAddress:
        return node.kafka

    def _near(self, node: LocalNode) -> SocketAddress:
        return node.kafka


class NetnsTarget(ProcessTarget):
    """Use as a context manager, or call ``start`` and ``stop``."""

    name = "netns"

    def _make_cluster(self, nodes: int, **options: Any) -> LocalCluster:
        """Raises ``TargetError`` where namespaces cannot be made."""
        if reason := why_not():
            raise TargetError(reason)
        spaces = self._namespaces = Namespaces(range(1, nodes + 1))
        self._packets = {
            node: NodePackets(partial(spaces.within, node), spaces.addresses)
            for node in spaces.nodes
        }
        return NamespacedCluster(spaces, nodes, **options)

    def start(self) -> None:
        with ExitStack() as undo:
            undo.callback(self._namespaces.close)
            self._namespaces.open()
            super().start()
            undo.pop_all()

    def stop(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._namespaces.close)
            super().stop()

    def cannot(self, fault: str) -> str | None:
        if fault == "delay" and not has_netem():
            return NO_NETEM
        return super().cannot(fault)

    # --- network between nodes ---------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        self._packets[target].cut_from(source)

    def mend(self, source: int, target: int) -> None:
        self._packets[target].mend_from(source)

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        self._packets[source].slow_to(target, delay_ms, bytes_per_s)

    def reset_link(self, source: int, target: int) -> None:
        self._packets[target].reset_from(source, _RPC_PORT)

    def lose(self, source: int, target: int, share: float) -> None:
        self._packets[target].lose_from(source, share)

    def heal_all(self) -> None:
        for packets in self._packets.values():
            packets.heal()
        super().heal_all()
