"""The group coordinator of a broker and the handlers that use it, put together."""

from __future__ import annotations

from tidelog.broker.calls import Handler
from tidelog.broker.context import BrokerContext
from tidelog.broker.group_explanation import GroupExplanation
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.auto_creation import TopicAutoCreation
from tidelog.broker.handlers.consumer_group_describe import ConsumerGroupDescribe
from tidelog.broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeat
from tidelog.broker.handlers.delete_groups import DeleteGroups
from tidelog.broker.handlers.describe_groups import DescribeGroups
from tidelog.broker.handlers.find_coordinator import FindCoordinator
from tidelog.broker.handlers.heartbeat import Heartbeat
from tidelog.broker.handlers.internal_topic_creation import InternalTopicCreation
from tidelog.broker.handlers.join_group import JoinGroup
from tidelog.broker.handlers.leave_group import LeaveGroup
from tidelog.broker.handlers.list_groups import ListGroups
from tidelog.broker.handlers.offset_commit import OffsetCommit
from tidelog.broker.handlers.offset_delete import OffsetDelete
from tidelog.broker.handlers.offset_fetch import OffsetFetch
from tidelog.broker.handlers.sync_group import SyncGroup
from tidelog.broker.ports import NodePorts
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.kernel.peers import PeerServer
from tidelog.replication.replicas import ReplicaSet


class GroupCoordination:
    """Owner: the broker role."""

    def __init__(
        self,
        context: BrokerContext,
        replicas: ReplicaSet,
        ports: NodePorts,
        auto_creation: TopicAutoCreation,
        *,
        expected_brokers: int,
    ) -> None:
        self.groups = groups = Groups(context, replicas, ports.clock, ports.offload)
        self._explanation = GroupExplanation(context, groups, ports.peers)
        creation = InternalTopicCreation(context, auto_creation, ports.clock, expected_brokers)
        self.handlers: tuple[Handler, ...] = (
            FindCoordinator(context, creation),
            JoinGroup(groups, ports.random),
            SyncGroup(groups),
            Heartbeat(groups),
            LeaveGroup(groups),
            OffsetCommit(context, groups),
            OffsetFetch(context, groups),
            OffsetDelete(groups),
            ListGroups(groups),
            DescribeGroups(groups),
            DeleteGroups(groups),
            ConsumerGroupHeartbeat(context, groups, ports.random),
            ConsumerGroupDescribe(groups),
        )

    def serve_peers(self, server: PeerServer) -> None:
        self._explanation.serve_peers(server)

    def follow(self, delta: MetadataDelta) -> None:
        self.groups.follow(delta)

    def close(self) -> None:
        self.groups.close()
