"""What must hold for the partitions of a cluster at every moment (DESIGN 5), judged from outside.

- One leader per leader epoch, and only in one life of its broker.
- Epochs and high watermarks never go back while a broker lives.
- log start ≤ last stable offset ≤ high watermark ≤ log end, and what is flushed is not beyond it.
- The high watermark of a leader is really on the disks of all that count: of every member of its
  maximal ISR, all below it survives power loss whatever is drawn (hazards 5, 13, 38, 43).
- What was once below a high watermark stays as it is: every leader of a later epoch holds it
  (hazards 1, 2, 4, 7, 41).

Where logs are compacted, each replica drops what it may when it likes: the last two are then not
asked of them, but at the end, of what they tell of each key (``final_checks``).

A disk whose bits were flipped says nothing about what was written there; a disk whose fsyncs failed
says nothing about what is durable. Such nodes are left out where that matters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import NodeId
from tidelog.replication.leader import LeaderPartition
from tidelog.replication.partition import Partition
from tidelog.simulation.changes import Changes
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.history import Violation
from tidelog.simulation.log_scan import Batch, LogScan


@dataclass(slots=True)
class _Seen:
    """What was seen of one replica in one life of its broker."""

    life: str
    leader_epoch: int = -1
    partition_epoch: int = -1
    high_watermark: int = -1
    bounds: tuple[int, ...] = ()
    counting: frozenset[NodeId] = frozenset()
    led_epoch: int = -1


@dataclass(slots=True)
class _Truth:
    """What was committed of one partition, and in which leader epoch it was seen to be."""

    batches: list[Batch] = field(default_factory=list)
    committed_in: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def at(self, offset: int) -> int:
        """The index of the batch that begins at ``offset`` or behind it."""
        return bisect_left(self.batches, (offset,))


class PartitionChecks:
    """``look`` after every event, or often."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        flipped: Collection[int] = (),
        failing: Collection[int] = (),
    ) -> None:
        """``flipped``: nodes whose disks may be damaged; ``failing``: whose fsyncs may fail."""
        self._cluster = cluster
        self._brokers = Changes(cluster)
        self._flipped = frozenset(flipped)
        self._undurable = frozenset((*flipped, *failing))
        self._seen: dict[tuple[int, PartitionRef], _Seen] = {}
        self._leaders: dict[tuple[PartitionRef, int], str] = {}
        self._truth: dict[PartitionRef, _Truth] = {}
        self._scans: dict[tuple[int, str], LogScan] = {}
        self.commits_checked = 0

    def look(self) -> None:
        for number, process in self._brokers.among(self._cluster.plan.brokers):
            replicas = self._cluster.replicas(number)
            if replicas is None:
                continue
            for ref, partition in replicas.partitions.items():
                if partition.failure is None:
                    self._look_at(number, process.name, ref, partition)

    def committed(self, ref: PartitionRef) -> list[Batch]:
        """What was seen to be committed, in order."""
        return list(self._truth[ref].batches) if ref in self._truth else []

    # --- one replica -------------------------------------------------------------------

    def _look_at(self, node: int, life: str, ref: PartitionRef, partition: Partition) -> None:
        seen = self._seen.get((node, ref))
        if seen is None or seen.life != life:
            seen = self._seen[node, ref] = _Seen(life)
        log = partition.log
        high_watermark = log.high_watermark
        bounds = (log.log_start, log.last_stable_offset, high_watermark, log.end_offset)
        if bounds != seen.bounds:
            self._check_bounds(life, partition, bounds, log.recovery_point)
            seen.bounds = bounds
        state = partition.state
        if state is not None:
            if state.leader_epoch < seen.leader_epoch or (
                state.partition_epoch < seen.partition_epoch
            ):
                raise Violation(f"{life} {partition}: epochs went back to {state}")
            seen.leader_epoch, seen.partition_epoch = state.leader_epoch, state.partition_epoch
        if partition.leader is not None:
            self._look_at_leader(node, seen, partition, partition.leader)
        if high_watermark < seen.high_watermark and not self._may_start_over(partition):
            raise Violation(
                f"{life} {partition}: the high watermark fell from {seen.high_watermark}"
                f" to {high_watermark}"
            )
        seen.high_watermark = high_watermark

    def _check_bounds(
        self, life: str, partition: Partition, bounds: tuple[int, ...], flushed: int
    ) -> None:
        if list(bounds) != sorted(bounds) or flushed > bounds[-1]:
            raise Violation(
                f"{life} {partition}: log start, last stable offset, high watermark and end are"
                f" {bounds}, flushed is {flushed}"
            )

    def _may_start_over(self, partition: Partition) -> bool:
        """A replica that was told to discard its log, or whose leader's log begins behind it."""
        state, log = partition.state, partition.log
        return state is None or bool(state.restarts_empty) or log.log_start > 0

    # --- a leader ----------------------------------------------------------------------

    def _look_at_leader(
        self, node: int, seen: _Seen, partition: Partition, leader: LeaderPartition
    ) -> None:
        epoch, ref = leader.leader_epoch, partition.ref
        if epoch != seen.led_epoch:
            seen.led_epoch = epoch
            seen.counting = frozenset()
            known = self._leaders.setdefault((ref, epoch), seen.life)
            if known != seen.life:
                raise Violation(f"{partition}: {known} and {seen.life} both lead epoch {epoch}")
            self._check_completeness(node, seen.life, partition, epoch)
        high_watermark, counting = leader.high_watermark, leader.maximal_isr
        if high_watermark > seen.high_watermark or counting != seen.counting:
            self._check_commit(node, seen.life, partition, leader)
            seen.counting = counting

    def _check_completeness(self, node: int, life: str, partition: Partition, epoch: int) -> None:
        """Whoever leads holds all that was committed in earlier epochs."""
        truth = self._truth.get(partition.ref)
        if truth is None or node in self._flipped or self._is_cleaned(partition):
            return
        start = partition.log.log_start
        wanted = [
            batch
            for batch, committed_in in zip(truth.batches, truth.committed_in, strict=True)
            if committed_in < epoch and batch.base_offset >= start
        ]
        held = set(self._scan(node, partition).batches(self._cluster.disk_view(node), start))
        missing = [batch for batch in wanted if batch not in held]
        if missing:
            raise Violation(
                f"{life} leads {partition} in epoch {epoch} and ends at {partition.log.end_offset},"
                f" but lacks the committed {missing[0]} and {len(missing) - 1} more"
            )

    def _check_commit(
        self, node: int, life: str, partition: Partition, leader: LeaderPartition
    ) -> None:
        self.commits_checked += 1
        high_watermark = leader.high_watermark
        self._check_ends(life, partition, leader)
        if self._is_cleaned(partition):
            return
        if partition.log.config.flush_policy == "fsync" and not leader.is_under_min_isr:
            start = max(0, high_watermark - 1)
            for member in sorted({*leader.maximal_isr} & {*self._assigned(partition)}):
                if member in leader.state.isr or self._still_lives(member, leader):
                    self._check_durable(member, life, partition, start, high_watermark)
        if node not in self._flipped:
            self._check_truth(node, life, partition, leader)

    def _still_lives(self, member: NodeId, leader: LeaderPartition) -> bool:
        """Whether a member that is only proposed is the broker that the leader heard from: its
        disk may have been replaced since, and nothing was promised on its account yet."""
        replicas = self._cluster.replicas(member)
        heard_of = leader.remotes[member].broker_epoch
        return replicas is not None and replicas.broker_epoch() == heard_of

    def _check_ends(self, life: str, partition: Partition, leader: LeaderPartition) -> None:
        """What the leader believes: no member it counts has flushed less."""
        if leader.is_under_min_isr:
            return
        for broker, remote in leader.remotes.items():
            # An end that is not known (a new leader's) holds the high watermark where it was.
            if (
                broker in leader.maximal_isr
                and 0 <= remote.flushed_end < leader.high_watermark
                and remote.is_following
                and remote.broker_epoch is not None
            ):
                raise Violation(
                    f"{life} {partition}: the high watermark is {leader.high_watermark}, but node"
                    f" {broker} has flushed {remote.flushed_end} only"
                )

    def _check_durable(
        self, member: int, life: str, partition: Partition, start: int, high_watermark: int
    ) -> None:
        if member in self._undurable:
            return
        scan = self._scan(member, partition)
        end = scan.safe_end(self._cluster.disk_view(member), start)
        if end < high_watermark:
            raise Violation(
                f"{life} {partition}: the high watermark is {high_watermark}, but on the disk of"
                f" node {member}, which counts, only {end} is sure to survive"
            )

    def _check_truth(
        self, node: int, life: str, partition: Partition, leader: LeaderPartition
    ) -> None:
        """Compare what this leader has below its high watermark, and remember what is new."""
        truth = self._truth.setdefault(partition.ref, _Truth())
        start = max(partition.log.log_start, min(truth.end, leader.high_watermark) - 1, 0)
        view = self._cluster.disk_view(node)
        for batch in self._scan(node, partition).batches(view, start):
            if batch.next_offset > leader.high_watermark:
                break
            index = truth.at(batch.base_offset)
            if index < len(truth.batches):
                if truth.batches[index] != batch:
                    raise Violation(
                        f"{life} {partition}: {batch} is committed, where"
                        f" {truth.batches[index]} was before"
                    )
            else:
                truth.batches.append(batch)
                truth.committed_in.append(leader.leader_epoch)

    def _is_cleaned(self, partition: Partition) -> bool:
        return self._cluster.plan.cleans_logs and partition.log.config.is_compacted

    # --- where things are --------------------------------------------------------------

    def _assigned(self, partition: Partition) -> tuple[NodeId, ...]:
        """Who has the partition by the newest metadata anybody has; the others may forget it."""
        image = newest_image(self._cluster)
        state = None if image is None else image.topics.partition(partition.ref)
        if state is None:
            return ()
        return tuple(n for n in state.replicas if n not in state.restarts_empty)

    def _scan(self, node: int, partition: Partition) -> LogScan:
        directory = partition.log.directory
        return self._scans.setdefault((node, directory), LogScan(directory))


def newest_image(cluster: SimCluster) -> MetadataImage | None:
    """The newest that a controller has committed and still runs to tell of."""
    images = [c.committed for n in cluster.plan.controllers if (c := cluster.controller(n))]
    return max(images, key=lambda image: image.offset, default=None)
