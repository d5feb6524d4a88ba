"""What clients are told about brokers: addresses, and which replicas are there.

A broker registers an address per listener. A client gets those of the listener it came by, since
only these are sure to be reachable for it; a broker without that listener does not exist for it.
A broker that is fenced is not named, but a partition it leads still says so (it is about to get
another leader), and its replicas count as offline. A replica in a directory that failed is offline
too (KIP-112).
"""

from __future__ import annotations

from immutables import Map

from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionState
from tidelog.kernel.ids import NO_NODE, DirectoryId, NodeId
from tidelog.wire.protocol.hot_responses.leaders import NodeEndpoint


def advertised_endpoint(broker: BrokerRegistration, listener_name: str) -> NodeEndpoint | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener_name:
            return NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
    return None


class ListenerView:
    """The brokers of one moment as one listener's clients see them; made anew when they change."""

    __slots__ = ("_online", "brokers", "live", "registered")

    def __init__(self, brokers: Map[NodeId, BrokerRegistration], listener_name: str) -> None:
        self.brokers = brokers
        self.registered: dict[NodeId, NodeEndpoint] = {}
        """By id, the fenced ones included."""
        self._online: dict[NodeId, frozenset[DirectoryId]] = {}
        for broker_id in sorted(brokers):
            broker = brokers[broker_id]
            endpoint = advertised_endpoint(broker, listener_name)
            if endpoint is None:
                continue
            self.registered[broker_id] = endpoint
            if not broker.fenced:
                unassigned = (UNASSIGNED,) if broker.log_dirs else ()
                self._online[broker_id] = frozenset((*broker.log_dirs, *unassigned))
        self.live = tuple(self.registered[broker_id] for broker_id in self._online)

    @property
    def controller_id(self) -> NodeId:
        """Where administrative requests shall go. Every broker passes them on, so the lowest live
        one is as good as any, and the same for all who ask."""
        return min(self._online, default=NO_NODE)

    def is_live(self, broker: NodeId) -> bool:
        return broker in self._online

    def leader(self, state: PartitionState) -> NodeId:
        """NO_NODE without one, or if this listener's clients could not reach it."""
        return state.leader if state.leader in self.registered else NO_NODE

    def offline(self, state: PartitionState) -> tuple[NodeId, ...]:
        online = self._online
        return tuple(
            broker
            for broker, directory in zip(state.replicas, state.directories, strict=True)
            if broker not in online or directory not in online[broker]
        )

    def known(self, nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Those that have this listener."""
        return tuple(node for node in nodes if node in self.registered)
