"""The group coordinator of this broker: a shard per partition of ``__consumer_offsets`` it leads.

Handlers find the shard of a group here. Shards follow the roles of the replicas; deleted topics
take their offsets with them; and now and then everything that nobody uses any more is swept out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS
from tidelog.broker.shard_partition import LeaderPartition
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.offsets import OffsetSettings
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.group_shard import GroupShard
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet, ShardSettings
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, ProducerId
from tidelog.kernel.ports import Clock, Offload
from tidelog.kernel.settings import Settings
from tidelog.replication.replicas import ReplicaSet

_MINUTE_MS: Final = 60_000


class Groups:
    """Owner: the broker role, which runs ``sweep_for_ever`` and calls ``close``."""

    def __init__(
        self, context: BrokerContext, replicas: ReplicaSet, clock: Clock, offload: Offload
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._offload = offload
        self._led: dict[PartitionIndex, PartitionRef] = {}
        self._shards: ShardSet[GroupShard] = ShardSet(
            CONSUMER_OFFSETS,
            self._make_shard,
            CoordinatorClock(clock),
            ShardSettings(
                lambda: context.settings.get_int("offsets.commit.timeout.ms"),
                lambda: context.settings.get_int("offsets.load.buffer.size"),
            ),
        )
        replicas.role_listeners.append(self._role_changed)

    # --- looking up --------------------------------------------------------------------

    def find(self, group_id: str) -> GroupShard | ErrorCode:
        """The shard of a group, or why it is not served here and now."""
        topic = self._context.image.topics.named(CONSUMER_OFFSETS)
        if topic is None or not topic.partitions:
            return ErrorCode.NOT_COORDINATOR
        return self._shards.find(coordinator_partition(group_id, len(topic.partitions)))

    def shards(self) -> Iterator[GroupShard | ErrorCode]:
        """All that are here; an error in place of one that loads."""
        return self._shards.all()

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...]:
        """The last rebalances of a group that is coordinated here, oldest first."""
        shard = self.find(group_id)
        return () if isinstance(shard, ErrorCode) else shard.rebalances(group_id)

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

    def update_settings(self, settings: Settings) -> None:
        for shard in self._shards.active():
            shard.update_settings()

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
        context = self._context
        return GroupShard(
            writer,
            watch,
            lambda: _group_settings(context.settings),
            lambda: _offset_settings(context.settings),
            self._exists,
        )

    def _exists(self, topic: str, partition: int) -> bool:
        found = self._context.image.topics.named(topic)
        return found is not None and PartitionIndex(partition) in found.partitions


def _group_settings(settings: Settings) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=settings.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=settings.get_int("group.initial.rebalance.delay.ms"),
        max_size=settings.get_int("group.max.size"),
    )


def _offset_settings(settings: Settings) -> OffsetSettings:
    return OffsetSettings(
        metadata_max_bytes=settings.get_int("offset.metadata.max.bytes"),
        retention_ms=settings.get_int("offsets.retention.minutes") * _MINUTE_MS,
    )
