"""How compaction stands on a broker, read from its cleaner and its replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidelog.broker.metrics.facts import CleaningFacts, CompactionFacts
from tidelog.replication.cleaners import LogCleaners
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import ReplicaSet


def cleaning_facts(cleaners: LogCleaners, replicas: ReplicaSet) -> CleaningFacts:
    totals = cleaners.totals
    waits: Counter[int] = Counter()
    for partition in replicas.partitions.values():
        waits.update(_waited_for(partition))
    return CleaningFacts(
        passes=totals.passes,
        bytes_read=totals.bytes_read,
        bytes_written=totals.bytes_written,
        records_dropped=totals.records_dropped,
        uncleanable=len(cleaners.states.uncleanable_logs),
        idle_ms=replicas.clock.wall_ms() - totals.last_run_ms if totals.passes else None,
        waits_for=dict(waits),
    )


def compaction_facts(
    cleaners: LogCleaners, replicas: ReplicaSet, topic: str
) -> Iterator[CompactionFacts]:
    for partition in list(replicas.partitions.values()):
        if partition.log.tp.topic == topic and partition.failure is None:
            yield _compaction_of(cleaners, partition)


def _waited_for(partition: Partition) -> tuple[int, ...]:
    """The replicas that have to clean before what has outlived its time may go."""
    leader = partition.leader
    if leader is None:
        return ()
    wanted = leader.wanted_clean_point(partition.held_back_to)
    points = {leader.me: partition.clean_point, **leader.clean_points}
    return tuple(sorted(node for node, point in points.items() if point < wanted))


def _compaction_of(cleaners: LogCleaners, partition: Partition) -> CompactionFacts:
    view = cleaners.view(partition)
    plan, last = view.plan, view.last
    behind = None if last is None else last.held_back_reason
    leader = partition.leader
    return CompactionFacts(
        partition=plan.tp.partition,
        role="leader" if leader is not None else "follower",
        log_start=partition.log.log_start,
        log_end=partition.log.end_offset,
        clean_point=plan.first_dirty,
        first_uncleanable=plan.first_uncleanable,
        clean_bytes=plan.clean_bytes,
        cleanable_bytes=plan.cleanable_bytes,
        dirty_ratio=plan.dirty_ratio,
        is_due=plan.is_due,
        is_in_progress=view.is_in_progress,
        clean_floor=view.clean_floor,
        reasons=plan.reasons if behind is None else (*plan.reasons, behind),
        waits_for=_waited_for(partition),
        last_outcome=None if last is None or last.outcome is None else last.outcome.value,
        next_horizon_ms=None if last is None else last.next_horizon_ms,
    )
