"""The handlers that need nothing but the metadata image and the controllers, put together."""

from __future__ import annotations

from tidelog.broker.calls import Handler
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.alter_configs import AlterConfigs
from tidelog.broker.handlers.alter_partition_reassignments import AlterPartitionReassignments
from tidelog.broker.handlers.auto_creation import TopicAutoCreation
from tidelog.broker.handlers.create_partitions import CreatePartitions
from tidelog.broker.handlers.create_topics import CreateTopics
from tidelog.broker.handlers.delete_topics import DeleteTopics
from tidelog.broker.handlers.describe_cluster import DescribeCluster
from tidelog.broker.handlers.describe_configs import DescribeConfigs
from tidelog.broker.handlers.describe_quorum import DescribeQuorum
from tidelog.broker.handlers.describe_topic_partitions import DescribeTopicPartitions
from tidelog.broker.handlers.elect_leaders import ElectLeaders
from tidelog.broker.handlers.forwarding import Forwarder
from tidelog.broker.handlers.incremental_alter_configs import IncrementalAlterConfigs
from tidelog.broker.handlers.init_producer_id import InitProducerId
from tidelog.broker.handlers.list_partition_reassignments import ListPartitionReassignments
from tidelog.broker.handlers.metadata import Metadata
from tidelog.broker.handlers.producer_id_blocks import ProducerIdBlocks
from tidelog.broker.handlers.raft_voters import AddRaftVoter, RemoveRaftVoter
from tidelog.broker.handlers.unregister_broker import UnregisterBroker
from tidelog.broker.handlers.update_features import UpdateFeatures


class Administration:
    """What these handlers share, and the work they leave behind when they have answered.

    ApiVersions is not among them: it is made last, from the keys of all handlers of the node.
    """

    def __init__(self, context: BrokerContext) -> None:
        self.auto_creation = TopicAutoCreation(context)
        self.producer_ids = ProducerIdBlocks(context)
        self.init_producer_id = InitProducerId(self.producer_ids)
        forwarder = Forwarder(context)
        self.handlers: tuple[Handler, ...] = (
            Metadata(context, self.auto_creation),
            CreateTopics(forwarder),
            DeleteTopics(forwarder),
            self.init_producer_id,
            DescribeConfigs(context),
            AlterConfigs(context, forwarder),
            CreatePartitions(forwarder),
            ElectLeaders(forwarder),
            IncrementalAlterConfigs(context, forwarder),
            AlterPartitionReassignments(forwarder),
            ListPartitionReassignments(forwarder),
            DescribeQuorum(context),
            UpdateFeatures(forwarder),
            UnregisterBroker(forwarder),
            AddRaftVoter(context, forwarder),
            RemoveRaftVoter(context, forwarder),
            DescribeCluster(context),
            DescribeTopicPartitions(context),
        )

    async def close(self) -> None:
        await self.auto_creation.close()
        await self.producer_ids.close()
