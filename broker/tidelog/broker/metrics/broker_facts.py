"""A broker as the metrics and the JSON see it. A node that is only a controller does without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.broker.broker_role import BrokerRole
from tidelog.broker.metrics.compaction_facts import cleaning_facts, compaction_facts
from tidelog.broker.metrics.facts import (
    CleaningFacts,
    CommittedFacts,
    CompactionFacts,
    DirectoryFacts,
    FollowerFacts,
    GroupFacts,
    ReplicaFacts,
)
from tidelog.broker.metrics.requests import RequestMeters
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.groups import GroupKind, ListedGroup
from tidelog.coordinator.runtime.group_shard import GroupShard
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.meters import Spread
from tidelog.kernel.ports import Disk
from tidelog.replication.meters import TopicMeters
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import ReplicaSet

_LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60_000
"""What a coordinator may need beyond the longest time-out (KIP-664)."""


class BrokerFacts:
    """A ``BrokerView``."""

    def __init__(self, role: BrokerRole, disk: Disk) -> None:
        self._role = role
        self._disk = disk

    @property
    def state(self) -> int:
        return self._role.client.state.value

    @property
    def connections(self) -> int:
        return self._role.server.connections

    @property
    def requests(self) -> RequestMeters:
        return self._role.server.meters

    @property
    def topics(self) -> TopicMeters:
        return self._role.replicas.meters

    @property
    def flush_durations_ms(self) -> Spread:
        return self._role.replicas.keeper.flush_durations_ms

    @property
    def waiting_fetches(self) -> int:
        partitions = self._role.replicas.partitions.values()
        return len({waiter for one in partitions for waiter in one.waiting_fetches})

    @property
    def metadata_offset(self) -> int:
        return self._role.client.feed.image.offset

    def replicas(self) -> Iterator[ReplicaFacts]:
        replicas = self._role.replicas
        longest_ms = self._role.context.settings.get_int("transaction.max.timeout.ms")
        late_ms = replicas.clock.wall_ms() - longest_ms - _LATE_TRANSACTION_BUFFER_MS
        for partition in list(replicas.partitions.values()):
            yield replica_facts(replicas, partition, late_ms)

    def groups(self) -> Iterator[GroupFacts]:
        for shard in list(self._role.coordination.groups.shards()):
            if not isinstance(shard, ErrorCode):
                for listed in list(shard.groups()):
                    yield self._group(shard, listed)

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...] | None:
        shard = self._role.coordination.groups.find(group_id)
        return None if isinstance(shard, ErrorCode) else shard.rebalances(group_id)

    @property
    def cleaning(self) -> CleaningFacts:
        return cleaning_facts(self._role.cleaners, self._role.replicas)

    def compaction(self, topic: str) -> Iterator[CompactionFacts]:
        return compaction_facts(self._role.cleaners, self._role.replicas, topic)

    def _group(self, shard: GroupShard, listed: ListedGroup) -> GroupFacts:
        is_consumer = listed.kind is GroupKind.CONSUMER
        found = (shard.describe_consumer if is_consumer else shard.describe)(listed.group_id)
        fetched = shard.fetch(listed.group_id, None, require_stable=False)
        return GroupFacts(
            listed.group_id,
            listed.kind.value,
            listed.state,
            0 if isinstance(found, tuple) else len(found.members),
            ()
            if isinstance(fetched, ErrorCode)
            else tuple(
                CommittedFacts(
                    one.topic, one.partition, one.offset, self._end(one.topic, one.partition)
                )
                for one in fetched
                if one.error is ErrorCode.NONE and one.offset >= 0
            ),
        )

    def _end(self, topic: str, index: int) -> int | None:
        found = self._role.replicas.lookup(topic, index)
        return None if isinstance(found, ErrorCode) else found.log.high_watermark

    def directories(self) -> Sequence[DirectoryFacts]:
        return [
            DirectoryFacts(
                directory.path,
                directory.failure,
                0 if directory.failure else self._disk.free_bytes(directory.path),
                0 if directory.failure else self._disk.total_bytes(directory.path),
            )
            for directory in self._role.replicas.keeper.directories.values()
        ]


def replica_facts(replicas: ReplicaSet, partition: Partition, late_ms: int = 0) -> ReplicaFacts:
    """A transaction whose last record is older than ``late_ms`` is late."""
    log, state, leader = partition.log, partition.state, partition.leader
    follows = partition.follower is not None
    role = "leader" if leader is not None else "follower" if follows else "none"
    assigned = () if state is None else state.replicas
    return ReplicaFacts(
        topic=log.tp.topic,
        partition=log.tp.partition,
        role=role if partition.failure is None else "offline",
        leader=-1 if state is None else state.leader,
        leader_epoch=partition.leader_epoch,
        replicas=assigned,
        isr=() if state is None else state.isr,
        min_isr=min(log.config.min_insync_replicas, len(assigned)),
        is_reassigning=state is not None and state.is_reassigning,
        log_start=log.log_start,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_end=log.end_offset,
        flushed_end=log.flushed_end,
        size=log.size,
        segments=len(log.segments),
        lag=replicas.lag_of_follower(partition) if follows else 0,
        followers=()
        if leader is None
        else tuple(
            FollowerFacts(node, max(0, log.end_offset - one.flushed_end), node in leader.isr)
            for node, one in leader.remotes.items()
        ),
        waiting_produces=partition.waiting_produces,
        has_late_transaction=log.producers.states.has_open_since_before(late_ms),
    )
