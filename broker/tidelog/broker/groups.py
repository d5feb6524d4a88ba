"""The group coordinator of this broker: a shard per partition of ``__consumer_offsets`` it leads.

Handlers find the shard of a group here. Shards follow the roles of the replicas; deleted topics
take their offsets with them; and now and then everything that nobody uses any more is swept out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tidelog.broker.context import BrokerContext
from tidelog.broker.group_settings import ImageTopics, group_shard_settings
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS
from tidelog.broker.shard_partition import LeaderPartition
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import ResourceType
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.former_rebalances import FormerRebalances
from tidelog.coordinator.runtime.group_shard import GroupShard
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet, ShardSettings
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, ProducerId
from tidelog.kernel.ports import Clock, Offload
from tidelog.kernel.settings import Settings
from tidelog.replication.replicas import ReplicaSet


class Groups:
    """Owner: the broker role, which runs ``sweep_for_ever`` and calls ``close``."""

    def __init__(
        self, context: BrokerContext, replicas: ReplicaSet, clock: Clock, offload: Offload
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._offload = offload
        self._former = FormerRebalances()
        self._led: dict[PartitionIndex, PartitionRef] = {}
        self._shards: ShardSet[GroupShard] = ShardSet(
            CONSUMER_OFFSETS,
            self._make_shard,
            CoordinatorClock(clock),
            ShardSettings(
                lambda: context.settings.get_int("offsets.commit.timeout.ms"),
                lambda: context.settings.get_int("offsets.load.buffer.size"),
                context.cluster.is_cut_off,
            ),
        )
        replicas.role_listeners.append(self._role_changed)

    # --- looking up --------------------------------------------------------------------

    def find(self, group_id: str) -> GroupShard | ErrorCode:
        """The shard of a group, or why it is not served here and now."""
        topic = self._context.image.topics.named(CONSUMER_OFFSETS)
        if topic is None or not topic.partitions:
            return ErrorCode.NOT_COORDINATOR
        index = coordinator_partition(group_id, len(topic.partitions))
        found = self._shards.find(index)
        ref = PartitionRef(topic.topic_id, index)
        if found is ErrorCode.NOT_COORDINATOR and self._is_to_come(ref):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return found

    def _is_to_come(self, ref: PartitionRef) -> bool:
        """Whether this broker is to lead a partition whose log is still being made."""
        state = self._context.image.topics.partition(ref)
        is_ours = state is not None and state.leader == self._context.node_id
        return is_ours and ref not in self._replicas.partitions

    def shards(self) -> Iterator[GroupShard | ErrorCode]:
        """All that are here; an error in place of one that loads."""
        return self._shards.all()

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...]:
        """The last rebalances of a group as far as this broker coordinated them, oldest first."""
        shard = self.find(group_id)
        present = () if isinstance(shard, ErrorCode) else shard.rebalances(group_id)
        return (*self._former.of(group_id), *present)

    # --- what happens around it --------------------------------------------------------

    def end_transaction(
        self, index: PartitionIndex, producer_id: ProducerId, *, committed: bool
    ) -> None:
        """A marker is replicated in this partition. A shard that loads reads it by itself."""
        shard = self._shards.find(index)
        if not isinstance(shard, ErrorCode):
            shard.end_transaction(producer_id, committed=committed)

    def follow(self, delta: MetadataDelta) -> None:
        """Metadata changed, and the replicas have heard of it."""
        deleted = frozenset(
            delta.before.topics.by_id[topic_id].name for topic_id in delta.topics_deleted
        )
        if deleted:
            self._shards.tell(lambda shard: shard.forget_topics(deleted))
        if _topics_changed(delta):
            topics = ImageTopics(delta.after)
            self._shards.tell(lambda shard: shard.set_topics(topics))
        if any(kind == ResourceType.GROUP for kind, _ in delta.configs):
            self.update_settings(self._context.settings)

    def update_settings(self, settings: Settings) -> None:
        found = group_shard_settings(settings, self._context.image)
        self._shards.tell(lambda shard: shard.update_settings(found))

    async def sweep_for_ever(self) -> None:
        while True:
            interval_ms = self._context.settings.get_int("offsets.retention.check.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            for shard in list(self._shards.active()):
                for _ in shard.sweep():
                    await asyncio.sleep(0)

    def close(self) -> None:
        self._shards.close()

    # --- shards ------------------------------------------------------------------------

    def _role_changed(self, ref: PartitionRef) -> None:
        partition = self._replicas.partitions.get(ref)
        if partition is None or partition.leader is None:
            if self._led.get(ref.partition) == ref:
                del self._led[ref.partition]
                self._shards.resign(ref.partition)
        elif self._replicas.image.topics.by_name.get(CONSUMER_OFFSETS) == ref.topic_id:
            self._led[ref.partition] = ref
            led = LeaderPartition(partition, self._offload)
            self._shards.lead(ref.partition, led, partition.leader.leader_epoch)

    def _make_shard(self, writer: ShardLog, watch: Callable[[], None]) -> GroupShard:
        image = self._context.image
        settings = group_shard_settings(self._context.settings, image)
        return GroupShard(writer, watch, settings, ImageTopics(image), self._former)


def _topics_changed(delta: MetadataDelta) -> bool:
    """Whether topics came, went or grew: who leads them is no matter here."""
    if delta.topics_created or delta.topics_deleted:
        return True
    before = delta.before.topics
    return any(before.partition(ref) is None for ref in delta.partitions)
