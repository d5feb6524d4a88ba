"""What a node's replicas know of the other brokers: their newest registrations.

One object is shared by all machines of a node. Its owner, the shell that applies metadata,
replaces the map; the machines only look things up.
"""

from __future__ import annotations

from immutables import Map

from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.kernel.ids import BrokerEpoch, NodeId


class ClusterView:
    __slots__ = ("brokers",)

    def __init__(self, brokers: Map[NodeId, BrokerRegistration] | None = None) -> None:
        self.brokers: Map[NodeId, BrokerRegistration] = Map() if brokers is None else brokers

    def epoch_of(self, broker: NodeId) -> BrokerEpoch:
        """Of the newest registration; −1 if there is none."""
        known = self.brokers.get(broker)
        return BrokerEpoch(-1) if known is None else known.epoch

    def rack_of(self, broker: NodeId) -> str | None:
        known = self.brokers.get(broker)
        return None if known is None else known.rack

    def is_alive(self, broker: NodeId) -> bool:
        known = self.brokers.get(broker)
        return known is not None and not known.fenced

    def may_join(self, broker: NodeId, epoch: BrokerEpoch | None, state: PartitionState) -> bool:
        """Whether the controller would let this incarnation of a broker into the ISR."""
        known = self.brokers.get(broker)
        return (
            known is not None
            and known.is_active
            and known.epoch == epoch
            and broker not in state.restarts_empty
            and known.has_online(state.directory_of(broker))
        )
