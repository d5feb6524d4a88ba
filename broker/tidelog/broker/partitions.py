"""From what a client named to the replica on this node, or to the reason why there is none."""

from __future__ import annotations

from typing import Protocol

from tidelog.broker.context import BrokerContext
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, PartitionIndex, TopicId
from tidelog.replication.partition import Partition
from tidelog.wire.protocol.hot_responses.leaders import CurrentLeader, NodeEndpoint


class Replicas(Protocol):
    """The replicas this node holds."""

    def lookup(self, topic: str, index: int) -> Partition | ErrorCode: ...

    def lookup_ref(self, ref: PartitionRef) -> Partition | ErrorCode: ...


class PartitionFinder:
    """Names and ids at the edge, replicas inside."""

    def __init__(self, context: BrokerContext, replicas: Replicas) -> None:
        self._context = context
        self._replicas = replicas

    def find(self, name: str, topic_id: TopicId, index: PartitionIndex) -> Partition | ErrorCode:
        """By id if one is given, else by name."""
        if topic_id != ZERO_UUID:
            return self._replicas.lookup_ref(PartitionRef(topic_id, index))
        found = self._replicas.lookup(name, index)
        # A topic that is deleted this moment is still in one place and not in the other.
        return (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is ErrorCode.UNKNOWN_TOPIC_ID else found
        )

    def name_of(self, name: str, topic_id: TopicId) -> str:
        """The topic's name, whichever way it was named; empty if it is not known."""
        if topic_id == ZERO_UUID:
            return name
        topic = self._context.image.topics.by_id.get(topic_id)
        return "" if topic is None else topic.name

    def state(self, name: str, topic_id: TopicId, index: PartitionIndex) -> PartitionState | None:
        topics = self._context.image.topics
        topic = topics.by_id.get(topic_id) if topic_id != ZERO_UUID else topics.named(name)
        return None if topic is None else topic.partitions.get(index)


class LeaderHints:
    """Who leads instead, for clients that came to the wrong node (KIP-951)."""

    def __init__(self, context: BrokerContext, finder: PartitionFinder, listener: str) -> None:
        self._context = context
        self._finder = finder
        self._listener = listener
        self._leaders: dict[int, None] = {}

    def of(self, name: str, topic_id: TopicId, index: PartitionIndex) -> CurrentLeader | None:
        state = self._finder.state(name, topic_id, index)
        if state is None:
            return None
        self._leaders[state.leader] = None
        return CurrentLeader(state.leader, state.leader_epoch)

    def endpoints(self) -> list[NodeEndpoint]:
        """The addresses of the leaders that were named."""
        view = self._context.view(self._listener)
        return [
            NodeEndpoint(node.node_id, node.host, node.port, node.rack)
            for node in view.live
            if node.node_id in self._leaders
        ]
