"""What must hold when all faults are over: the cluster agrees, and nothing acknowledged is lost.

- Convergence: every node serves; all controllers and brokers have the same metadata; every
  partition is in sync on all its replicas, which end where their leader ends.
- Replicas hold the same bytes wherever they hold the same offset; where logs are compacted they
  tell the same of every key.
- What was acknowledged is what is read: each batch of an idempotent producer once, at the offset
  it was told, each producer's in the order they were sent; and what a consumer was ever shown is
  still there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.history import History, Outcome, PartitionName, Send, Violation
from tidelog.simulation.partition_checks import newest_image
from tidelog.storage.names import LOG_SUFFIX
from tidelog.wire.batch import BatchHeader, check_batch
from tidelog.wire.control import read_marker
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import decode_records


@dataclass(frozen=True, slots=True)
class StoredBatch:
    header: BatchHeader
    data: bytes


# --- convergence -----------------------------------------------------------------------


def obstacle(cluster: SimCluster) -> str | None:
    """What keeps the cluster from being sound and in agreement; None if nothing does."""
    for number, node in cluster.nodes.items():
        if not node.is_serving:
            return f"node {number} does not serve ({node.last_words})"
    image = newest_image(cluster)
    if image is None or cluster.active_controller is None:
        return "no controller is active"
    return _controllers_differ(cluster) or _partitions_lag(cluster, image)


def _controllers_differ(cluster: SimCluster) -> str | None:
    ends = {
        number: int(raft.high_watermark)
        for number in cluster.plan.controllers
        if (quorum := cluster.quorum(number)) is not None and (raft := quorum.raft) is not None
    }
    if len(ends) < len(cluster.plan.controllers):
        return f"only {sorted(ends)} take part in the quorum"
    images = {n: c.committed.offset for n in ends if (c := cluster.controller(n)) is not None}
    behind = max(images.values()) - min(images.values())
    # The log of an idle quorum grows by a record now and then, so they are never quite equal.
    return f"controllers are at {images}" if behind > 5 else None


def _partitions_lag(cluster: SimCluster, image: MetadataImage) -> str | None:
    for broker, registration in sorted(image.brokers.items()):
        if registration.fenced and int(broker) in cluster.nodes:
            return f"broker {broker} is fenced"
    for topic in image.topics.by_id.values():
        for index, state in sorted(topic.partitions.items()):
            lag = _lag(cluster, PartitionRef(topic.topic_id, index), state)
            if lag is not None:
                return f"{topic.name}-{index}: {lag}"
    return None


def _lag(cluster: SimCluster, ref: PartitionRef, state: PartitionState) -> str | None:
    if set(state.isr) != set(state.replicas) or not state.has_leader:
        return f"leader {state.leader}, ISR {state.isr} of {state.replicas}, ELR {state.elr}"
    if state.is_reassigning:
        return f"is being moved: adding {state.adding}, removing {state.removing}"
    ends: dict[int, tuple[int, int, int]] = {}
    for broker in state.replicas:
        replicas = cluster.replicas(int(broker))
        partition = None if replicas is None else replicas.partitions.get(ref)
        if partition is None or partition.failure is not None:
            return f"node {broker} does not have it"
        log = partition.log
        ends[int(broker)] = (log.end_offset, log.flushed_end, log.high_watermark)
    if len({end for row in ends.values() for end in row}) > 1:
        return f"end, flushed end and high watermark are {ends}"
    return None


# --- replicas --------------------------------------------------------------------------


def check_replicas(cluster: SimCluster) -> None:
    """Equal offsets, equal bytes; every batch sound."""
    image = newest_image(cluster)
    assert image is not None
    for topic in image.topics.by_id.values():
        for index, state in sorted(topic.partitions.items()):
            ref = PartitionRef(topic.topic_id, index)
            held = {int(n): stored_batches(cluster, int(n), ref) for n in state.replicas}
            if _is_cleaned(cluster, int(state.leader), ref):
                _compare_keys(f"{topic.name}-{index}", held)
            else:
                _compare(f"{topic.name}-{index}", held)


def _is_cleaned(cluster: SimCluster, leader: int, ref: PartitionRef) -> bool:
    replicas = cluster.replicas(leader)
    partition = None if replicas is None else replicas.partitions.get(ref)
    is_compacted = partition is not None and partition.log.config.is_compacted
    return cluster.plan.cleans_logs and is_compacted


def _compare_keys(name: str, held: Mapping[int, list[StoredBatch]]) -> None:
    told = {node: last_values(batches) for node, batches in held.items()}
    first = min(told, default=0)
    for node, values in told.items():
        for key in {*values, *told[first]}:
            if values.get(key) != told[first].get(key):
                raise Violation(
                    f"{name}: of {key!r} node {first} tells {told[first].get(key)!r},"
                    f" node {node} {values.get(key)!r}"
                )


def last_values(batches: Iterable[StoredBatch]) -> dict[bytes, bytes]:
    """What a reader of committed records from the beginning knows of each key at the end."""
    found: dict[int, tuple[bytes, bytes | None]] = {}
    undecided: dict[int, dict[int, tuple[bytes, bytes | None]]] = {}
    for batch in batches:
        header = batch.header
        if header.is_control:
            marker = read_marker(batch.data, header) if header.records_count else None
            decided = undecided.pop(header.producer_id, {})
            if marker is not None and marker.is_commit:
                found.update(decided)
            continue
        records = {
            record.offset: (record.key or b"", record.value)
            for record in decode_records(batch.data, header)
        }
        if header.is_transactional:
            undecided.setdefault(header.producer_id, {}).update(records)
        else:
            found.update(records)
    told = {key: value for _, (key, value) in sorted(found.items())}
    return {key: value for key, value in told.items() if value is not None}


def _compare(name: str, held: Mapping[int, list[StoredBatch]]) -> None:
    seen: dict[int, tuple[int, bytes]] = {}
    for node, batches in held.items():
        position = None
        for one in batches:
            if position is not None and one.header.base_offset != position:
                raise Violation(f"{name} on node {node}: a gap before {one.header.base_offset}")
            position = one.header.next_offset
            other, data = seen.setdefault(one.header.base_offset, (node, one.data))
            if data != one.data:
                raise Violation(
                    f"{name}: nodes {other} and {node} differ at {one.header.base_offset}"
                )


def stored_batches(cluster: SimCluster, node: int, ref: PartitionRef) -> list[StoredBatch]:
    """All batches of a replica as they lie on its disk, each of them sound."""
    replicas = cluster.replicas(node)
    partition = None if replicas is None else replicas.partitions.get(ref)
    if partition is None:
        return []
    view, directory = cluster.disk_view(node), partition.log.directory
    found: list[StoredBatch] = []
    for name in view.names(directory):
        if name.endswith(LOG_SUFFIX):
            found.extend(_batches(view.read(f"{directory}/{name}"), f"node {node} {name}"))
    return [one for one in found if one.header.next_offset > partition.log.log_start]


def _batches(data: bytes, where: str) -> Iterator[StoredBatch]:
    position = 0
    while position < len(data):
        try:
            header = check_batch(data, position)
        except MalformedBatch as error:
            raise Violation(f"{where} at byte {position}: {error}") from error
        yield StoredBatch(header, data[position : position + header.size])
        position += header.size


# --- what clients were told ------------------------------------------------------------


def check_history(
    cluster: SimCluster, history: History, partitions: Collection[PartitionName]
) -> None:
    """Against the log of each partition's leader."""
    image = newest_image(cluster)
    assert image is not None
    for topic_name, index in partitions:
        topic = image.topics.named(topic_name)
        if topic is None:
            raise Violation(f"topic {topic_name} is gone")
        state = topic.partitions[next(i for i in topic.partitions if i == index)]
        ref = PartitionRef(topic.topic_id, next(i for i in topic.partitions if i == index))
        log: dict[int, bytes] = {}
        for one in stored_batches(cluster, int(state.leader), ref):
            for record in decode_records(one.data, one.header):
                log[record.offset] = record.value or b""
        _check_log((topic_name, index), log, history)


def _check_log(name: PartitionName, log: Mapping[int, bytes], history: History) -> None:
    where = f"{name[0]}-{name[1]}"
    offsets: dict[bytes, list[int]] = {}
    for offset, value in log.items():
        offsets.setdefault(value, []).append(offset)
    last_of: dict[str, int] = {}
    for send in history.sends.get(name, []):
        if send.is_counted:
            _check_send(where, send, offsets, last_of)
    for offset, value in history.reads.get(name, {}).items():
        if log.get(offset) != value:
            found = log.get(offset, b"nothing")[:40]
            raise Violation(f"{where}: {value[:40]!r} was read at {offset}, {found!r} is there")
    known = {value for send in history.sends.get(name, []) for value in send.values}
    strangers = [value for value in offsets if value not in known]
    if strangers:
        raise Violation(f"{where}: nobody wrote {strangers[0][:40]!r}")


def _check_send(
    where: str, send: Send, offsets: Mapping[bytes, list[int]], last_of: dict[str, int]
) -> None:
    for index, value in enumerate(send.values):
        found = offsets.get(value, [])
        if len(found) > 1:
            raise Violation(f"{where}: {send} is there {len(found)} times, at {found}")
        if send.outcome is not Outcome.OK:
            continue
        if not found:
            raise Violation(f"{where}: {send} was acknowledged and is lost")
        if found[0] != send.base_offset + index:
            raise Violation(f"{where}: {send} is at {found[0] - index}")
    if send.outcome is Outcome.OK:
        if send.base_offset <= last_of.get(send.producer, -1):
            raise Violation(f"{where}: {send} comes before an earlier batch of its producer")
        last_of[send.producer] = send.base_offset
