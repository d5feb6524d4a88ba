"""All partitions of this node: metadata is applied here, in order, and logs come and go with it.

Owner: the node's start-up code. `open_logs` recovers what lies in the log directories, `start`
begins the work, `apply` takes each metadata delta; none of the latter awaits. A replica that exists
changes its role on the spot, leaders first. One that has no log yet gets it beside the loop, and
assumes whatever role metadata gives it by then, so that a failover never waits for a new topic.

Data is removed only because a committed record says so (hazard 15): its topic was deleted, or the
partition is assigned to others. A log that metadata does not explain is moved out of the way and
kept. Nothing is judged before metadata has reached this broker's own registration: an older image
may simply not know yet what lies here.

A directory whose disk fails is offline for the life of the process (hazard 44); its replicas
answer KAFKA_STORAGE_ERROR and the controller is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.controller.decisions.alter_partition import PartitionReport
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import ResourceType
from tidelog.controller.raft.stall_clock import StallClock
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    NodeId,
    Offset,
    PartitionIndex,
    TopicPartition,
)
from tidelog.kernel.peers import Peers
from tidelog.kernel.ports import Clock, Disk, Offload
from tidelog.kernel.settings import Settings, TopicConfig
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.controller_calls import ControllerCalls
from tidelog.replication.controller_port import ControllerPort
from tidelog.replication.fetch_service import FetchService
from tidelog.replication.fetcher import Fetcher
from tidelog.replication.log_keeper import KeptLog, LogKeeper, RecoveredLog
from tidelog.replication.meters import TopicMeters
from tidelog.replication.partition import Partition
from tidelog.replication.partition_following import FollowingPartition
from tidelog.replication.settings import ISR_CHECK_INTERVAL_MS, ReplicationSettings
from tidelog.replication.throttle import ReplicationQuota
from tidelog.storage.log import Log, LogFailed
from tidelog.storage.log_dir import LogDirectory, OpenProgress

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaPorts:
    """The world as a node's replicas see it."""

    node_id: NodeId
    clock: Clock
    disk: Disk
    offload: Offload
    peers: Peers
    controller: ControllerPort
    broker_epoch: Callable[[], BrokerEpoch]
    """Of this node's registration, which is also the metadata offset it stands at."""


class ReplicaSet:
    """See the module."""

    def __init__(
        self,
        ports: ReplicaPorts,
        directories: Sequence[LogDirectory],
        settings: Settings,
        *,
        on_directory_failed: Callable[[DirectoryId, str], None] = lambda directory, reason: None,
    ) -> None:
        self.node_id = ports.node_id
        self.clock = ports.clock
        self.ports = ports
        self.cluster = ClusterView()
        self.image = MetadataImage()
        self.settings = ReplicationSettings.of(settings)
        self.partitions: dict[PartitionRef, Partition] = {}
        self.heard_ms: dict[NodeId, float] = {}
        self.meters = TopicMeters()
        self.leader_quota = ReplicationQuota(self.settings.leader_throttled_rate)
        self.follower_quota = ReplicationQuota(self.settings.follower_throttled_rate)
        self.broker_settings = settings
        self._configs: dict[str, TopicConfig] = {}
        self._on_directory_failed = on_directory_failed
        now_ms = ports.clock.monotonic_ms()
        self._stall_clock = StallClock(now_ms, ISR_CHECK_INTERVAL_MS)
        self.fetch_service = FetchService(self, ports.offload)
        self._fetcher = Fetcher(self, ports.peers)
        self._calls = ControllerCalls(ports.controller, lambda: self.partitions)
        self.keeper = LogKeeper(
            ports.disk,
            ports.offload,
            ports.clock,
            directories,
            stall_timeout_ms=self.settings.flush_stall_timeout_ms,
            on_flushed=self._flushed,
            on_failed=self._directory_failed,
        )
        self._by_log: dict[Log, Partition] = {}
        self._kept: dict[PartitionRef, KeptLog] = {}
        self._creating: dict[PartitionRef, asyncio.Task[None]] = {}
        self._restarted_empty: set[PartitionRef] = set()
        self.role_listeners: list[Callable[[PartitionRef], None]] = []
        """Told of every replica that leads, follows, goes offline or goes away."""

    # --- the host of partitions, streams and fetchers ----------------------------------

    def now_ms(self) -> float:
        self._stall_clock.observe(self.clock.monotonic_ms())
        return self._stall_clock.running_ms

    def broker_epoch(self) -> BrokerEpoch:
        return self.ports.broker_epoch()

    def request_flush(self, log: Log) -> None:
        partition = self._by_log.get(log)
        if partition is not None:
            self.keeper.request_flush(self._kept[partition.ref])

    def log_failed(self, log: Log, reason: str) -> None:
        """A write went wrong in a way that leaves the disk in doubt."""
        partition = self._by_log.get(log)
        if partition is not None:
            self.keeper.fail(self._kept[partition.ref].directory.directory_id, reason)

    def write_clean_point(self, ref: PartitionRef, offset: Offset) -> None:
        """Up to where a log is compacted now; ``OSError`` if it cannot be written."""
        kept = self._kept.get(ref)
        if kept is not None:
            kept.directory.clean_points.set(kept.log.tp, offset)

    def send_report(self, partition: FollowingPartition, report: PartitionReport) -> None:
        self._calls.report(report)

    def role_changed(self, partition: FollowingPartition) -> None:
        known = self.partitions.get(partition.ref)
        if known is not None and known.follower is not None:
            self._fetcher.follow(known)
        else:
            self._fetcher.unfollow(partition.ref)
        self.fetch_service.role_changed(partition.ref)
        self._tell_of_role(partition.ref)

    def _tell_of_role(self, ref: PartitionRef) -> None:
        for listener in self.role_listeners:
            listener(ref)

    def progressed(self, partition: FollowingPartition) -> None:
        known = self.partitions.get(partition.ref)
        if known is not None:
            self._fetcher.progressed(known)

    # --- starting ----------------------------------------------------------------------

    async def open_logs(
        self,
        *,
        concurrency: int = 4,
        on_progress: Callable[[OpenProgress], None] = lambda progress: None,
    ) -> list[RecoveredLog]:
        """Recover everything that lies in the directories; what was found, for registration."""
        return await self.keeper.open_logs(
            self._config_of, concurrency=concurrency, on_progress=on_progress
        )

    def start(self) -> None:
        self._calls.start()

    async def close(self) -> None:
        """Stop replicating; what is under way is let finish. The logs stay open."""
        for task in self._creating.values():
            task.cancel()
        await asyncio.gather(*self._creating.values(), return_exceptions=True)
        await self._fetcher.close()
        await self._calls.close()
        for stream in list(self.fetch_service.streams.values()):
            stream.end()
        for partition in self.partitions.values():
            partition.close()
        await self.keeper.close()

    def close_directories(self) -> bool:
        """After ``close``: every log is closed and the directories say so; True if all did."""
        epoch = self.broker_epoch()
        return all([d.close_cleanly(epoch) for d in self.keeper.directories.values()])

    def _flushed(self, log: Log) -> None:
        partition = self._by_log.get(log)
        if partition is not None:
            partition.flushed()

    # --- looking up --------------------------------------------------------------------

    def lookup(self, topic: str, index: int) -> Partition | ErrorCode:
        """The replica here, or why there is none."""
        topic_id = self.image.topics.by_name.get(topic)
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self.lookup_ref(PartitionRef(topic_id, PartitionIndex(index)))

    def lookup_ref(self, ref: PartitionRef) -> Partition | ErrorCode:
        partition = self.partitions.get(ref)
        if partition is not None:
            return partition
        topic = self.image.topics.by_id.get(ref.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        state = topic.partitions.get(ref.partition)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.node_id in state.replicas and self._is_offline(state):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _is_offline(self, state: PartitionState) -> bool:
        directory = self.keeper.directories.get(state.directory_of(self.node_id))
        return directory is not None and directory.failure is not None

    def lag_of_follower(self, partition: Partition) -> int:
        """How many records its leader has that are not here, as far as is known."""
        end = self._fetcher.leader_end(partition.ref)
        return 0 if end is None else max(0, end - partition.log.end_offset)

    # --- metadata ----------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """Deleted topics first, then leaders, then followers, then what is new here."""
        self.image = delta.after
        self.cluster.brokers = delta.after.brokers
        for topic_id in delta.topics_deleted:
            for ref in delta.before.topics.by_id[topic_id].refs():
                self._remove(ref)
            self.meters.forget(delta.before.topics.by_id[topic_id].name)
        self._apply_configs(delta)
        held: list[tuple[PartitionRef, PartitionState]] = []
        for ref in delta.partitions:
            state = delta.after.topics.partition(ref)
            if state is None or self.node_id not in state.replicas:
                self._remove(ref)
            else:
                held.append((ref, state))
        for ref, state in sorted(held, key=lambda item: item[1].leader != self.node_id):
            partition = self.partitions.get(ref)
            if partition is not None:
                self._assume(partition, state)
        for ref, state in held:
            if ref not in self.partitions:
                self._begin(ref, state)
        if delta.brokers:
            for partition in self.partitions.values():
                partition.brokers_changed()
        if self.keeper.found and 0 <= self.broker_epoch() <= self.image.offset:
            self._clear_unclaimed()

    def _assume(self, partition: Partition, state: PartitionState) -> None:
        ref = partition.ref
        if self.node_id not in state.restarts_empty:
            self._restarted_empty.discard(ref)
        elif ref not in self._restarted_empty and partition.failure is None:
            self._restart_empty(partition)
        partition.assume(state)

    def _restart_empty(self, partition: Partition) -> None:
        """The others no longer keep tombstones for this replica: nothing old may stay here."""
        _log.warning("%s was away for too long and starts over, empty", partition)
        try:
            partition.log.truncate_fully_and_start_at(Offset(0), self.clock.wall_ms())
        except (LogFailed, OSError) as error:
            self.log_failed(partition.log, str(error))
            return
        self._restarted_empty.add(partition.ref)
        self._calls.emptied(partition.ref)

    def _remove(self, ref: PartitionRef) -> None:
        """A committed record says that this replica is not wanted any more."""
        self._calls.forget(ref)
        self._restarted_empty.discard(ref)
        partition = self.partitions.pop(ref, None)
        if partition is None:
            return
        kept = self._kept.pop(ref)
        del self._by_log[partition.log]
        partition.close()
        self._fetcher.unfollow(ref)
        self.fetch_service.role_changed(ref)
        self._tell_of_role(ref)
        self.keeper.delete(kept, partition.log.config.file_delete_delay_ms)

    # --- settings ----------------------------------------------------------------------

    def update_settings(self, settings: Settings) -> None:
        """The broker's settings changed; topics inherit from them."""
        self.broker_settings = settings
        self.settings = ReplicationSettings.of(settings)
        self.leader_quota.rate = self.settings.leader_throttled_rate
        self.follower_quota.rate = self.settings.follower_throttled_rate
        self._configs.clear()
        for partition in self.partitions.values():
            partition.update_config(self._config_of(partition.log.tp.topic))

    def _apply_configs(self, delta: MetadataDelta) -> None:
        names = {name for kind, name in delta.configs if kind == ResourceType.TOPIC}
        for name in sorted(names):
            self._configs.pop(name, None)
            topic = delta.after.topics.named(name)
            for ref in topic.refs() if topic is not None else ():
                partition = self.partitions.get(ref)
                if partition is not None:
                    partition.update_config(self._config_of(name))

    def _config_of(self, topic: str) -> TopicConfig:
        config = self._configs.get(topic)
        if config is None:
            overrides = self.image.config(ResourceType.TOPIC, topic)
            config = TopicConfig.resolve(overrides, self.broker_settings)
            self._configs[topic] = config
        return config

    # --- logs that come ----------------------------------------------------------------

    def _begin(self, ref: PartitionRef, state: PartitionState) -> None:
        """Metadata places a partition here that this process does not serve yet."""
        tp = TopicPartition(self.image.topics.by_id[ref.topic_id].name, ref.partition)
        found = self.keeper.claim(tp, ref.topic_id)
        if found is not None:
            self._admit(ref, found, state)
        elif ref not in self._creating and not self._is_offline(state):
            self._creating[ref] = asyncio.get_running_loop().create_task(
                self._create(ref, tp, state), name=f"create {tp}"
            )

    async def _create(self, ref: PartitionRef, tp: TopicPartition, state: PartitionState) -> None:
        try:
            made = await self.keeper.create(
                ref, tp, state.directory_of(self.node_id), self._config_of(tp.topic)
            )
        finally:
            del self._creating[ref]
        latest = self.image.topics.partition(ref)
        if made is None:
            return
        if latest is not None and self.node_id in latest.replicas:
            self._admit(ref, made, latest)
        else:
            self.keeper.delete(made, made.log.config.file_delete_delay_ms)

    def _admit(self, ref: PartitionRef, kept: KeptLog, state: PartitionState) -> None:
        log, directory = kept.log, kept.directory
        partition = Partition(self, ref, log)
        partition.meter = self.meters.of(log.tp.topic)
        self.partitions[ref] = partition
        self._by_log[log] = partition
        self._kept[ref] = kept
        partition.read_clean_point = partial(directory.clean_points.get, log.tp)
        partition.update_config(self._config_of(log.tp.topic))
        if directory.failure is not None:
            partition.go_offline(directory.failure)
            return
        if state.directory_of(self.node_id) != directory.directory_id:
            self._calls.assign(ref, directory.directory_id)
        self._assume(partition, state)

    async def settled(self) -> None:
        """Wait until every log that metadata asked for has been made."""
        while self._creating:
            await asyncio.wait(list(self._creating.values()))

    def _clear_unclaimed(self) -> None:
        """Logs that nobody asked for: delete only what a committed assignment gives to others."""
        for tp, found in list(self.keeper.found.items()):
            topic = None if found.topic_id is None else self.image.topics.by_id.get(found.topic_id)
            state = None if topic is None else topic.partitions.get(tp.partition)
            if state is not None and self.node_id in state.replicas:
                continue  # ours; it is claimed with the delta that places it here
            if state is not None:
                self.keeper.delete_found(tp, self._config_of(tp.topic).file_delete_delay_ms)
            else:
                self.keeper.set_aside(tp)

    def _directory_failed(self, key: DirectoryId, reason: str) -> None:
        for ref, kept in list(self._kept.items()):
            if kept.directory.directory_id == key:
                self.partitions[ref].go_offline(reason)
        self._on_directory_failed(key, reason)

    # --- the ISR -----------------------------------------------------------------------

    def check_isr(self, due_ms: float) -> None:
        """Every ``ISR_CHECK_INTERVAL_MS``; ``due_ms`` is when it should have run."""
        self._stall_clock.observe(self.clock.monotonic_ms())
        self._stall_clock.tick(due_ms)
        now_ms = self._stall_clock.running_ms
        for partition in self.partitions.values():
            partition.check_isr(now_ms, self.heard_ms)
