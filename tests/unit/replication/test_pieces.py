"""Small pure pieces: throttles, waiting producers, placement, chunks, the nearest replica."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replication_transcript import REF, broker, cluster

from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionState
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    Uuid,
)
from tidelog.kernel.settings import Settings
from tidelog.replication.fetch_answer import AnsweredPartition, FetchAnswer
from tidelog.replication.fetch_messages import (
    ChunkJoiner,
    MalformedMessage,
    in_chunks,
    partition_fetches,
    ref_of,
    whole_batches,
)
from tidelog.replication.leader import LeaderPartition, LeaderStart
from tidelog.replication.placement import DirectoryLoad, place
from tidelog.replication.produce_waits import ProduceWaits
from tidelog.replication.read_replica import nearest_replica
from tidelog.replication.remote_replica import FollowerFetch
from tidelog.replication.settings import MAX_CHUNK_BYTES, ReplicationSettings
from tidelog.replication.throttle import ReplicationQuota, is_throttled
from tidelog.v1.replication_pb2 import FetchedPartition, FetchRequest
from tidelog.wire.records import Record, build_batch


@pytest.mark.parametrize(
    ("entries", "partition", "node", "expected"),
    [
        ((), 0, 1, False),
        (("*",), 4, 9, True),
        (("0:1", "0:2"), 0, 2, True),
        (("0:1", "0:2"), 1, 2, False),
        (("10:1",), 0, 1, False),
    ],
)
def test_throttled_replicas(
    entries: tuple[str, ...], partition: int, node: int, expected: bool
) -> None:
    assert is_throttled(entries, PartitionIndex(partition), NodeId(node)) is expected


def test_a_quota_counts_eleven_seconds() -> None:
    quota = ReplicationQuota(1000)
    assert not quota.is_exceeded(0)
    quota.record(500, 10_001)
    assert quota.is_exceeded(500)
    assert quota.is_exceeded(9_999)
    assert not quota.is_exceeded(11_000)
    quota.rate = 5000
    assert not quota.is_exceeded(500)
    for second in range(40):
        quota.record(second * 1000, 1)
    assert len(quota._counts) <= 12
    assert quota.next_look_ms(1234) == 2000


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=30))
def test_waiting_producers_are_let_go_by_offset(steps: list[tuple[int, bool]]) -> None:
    waits: ProduceWaits[int] = ProduceWaits()
    model: list[tuple[int, int]] = []
    for number, (offset, lets_go) in enumerate(steps):
        if lets_go:
            gone = sorted(entry for entry in model if entry[0] <= offset)
            assert list(waits.reached(Offset(offset))) == [number for _, number in gone]
            model = [entry for entry in model if entry[0] > offset]
        else:
            waits.add(Offset(offset), number)
            model.append((offset, number))
        assert len(waits) == len(model)
    assert list(waits.all()) == [number for _, number in sorted(model)]


def test_placement() -> None:
    one, two, gone = (DirectoryId(Uuid(bytes(15) + bytes([i]))) for i in (101, 102, 103))
    loads = [DirectoryLoad(one, 5), DirectoryLoad(two, 3)]
    assert place(one, loads) == one
    assert place(UNASSIGNED, loads) == two
    assert place(gone, loads) == two
    assert place(one, []) is None


def batches(*sizes: int) -> bytes:
    made = [
        build_batch([Record(offset=0, timestamp=0, key=None, value=b"x" * size, headers=())])
        for size in sizes
    ]
    return b"".join(made)


def test_a_batch_cut_by_the_limit_is_left_out() -> None:
    one, two = batches(10), batches(20)
    assert whole_batches(one + two) == one + two
    assert whole_batches(one + two[:-1]) == one
    assert whole_batches(one + two[:5]) == one
    assert whole_batches(one[:-1]) == one[:-1]
    assert whole_batches(b"\0" * 40) == b"\0" * 40
    assert whole_batches(b"") == b""


@pytest.mark.parametrize("size", [0, 1, MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1, 3 * MAX_CHUNK_BYTES])
def test_chunks_join_again(size: int) -> None:
    records = bytes(range(251)) * (size // 251 + 1)
    whole = FetchedPartition(topic_id=REF.topic_id.raw, leader_epoch=4, high_watermark=7)
    response = FetchAnswer(9, 0, [AnsweredPartition(whole, records[:size])])
    joiner, joined = ChunkJoiner(), []
    messages = list(in_chunks(response))
    for message in messages:
        assert message.correlation_id == 9
        assert len(message.partitions[0].records) <= MAX_CHUNK_BYTES
        assert message.has_more is (message is not messages[-1])
        taken = joiner.take(message.partitions[0])
        if taken is not None:
            joined.append(taken)
    [one] = joined
    assert (one.head.leader_epoch, one.head.high_watermark) == (4, 7)
    assert bytes(one.records) == records[:size]


def test_mixed_chunks_are_refused() -> None:
    joiner = ChunkJoiner()
    first = AnsweredPartition(FetchedPartition(topic_id=b"1" * 16, records_remaining=5), b"x")
    second = AnsweredPartition(FetchedPartition(topic_id=b"2" * 16), b"x")
    assert joiner.take(first) is None
    with pytest.raises(MalformedMessage, match="mixed"):
        joiner.take(second)


@pytest.mark.parametrize(
    "field", ["fetch_offset", "flushed_end", "log_start_offset", "partition", "topic_id"]
)
def test_nonsense_in_a_request_is_refused(field: str) -> None:
    message = FetchRequest(broker_epoch=3)
    one = message.partitions.add(topic_id=bytes(16))
    [read] = partition_fetches(message, NodeId(2))
    assert (read.fetch.last_fetched_epoch, read.fetch.clean_point) == (None, 0)
    setattr(one, field, b"short" if field == "topic_id" else -1)
    with pytest.raises(MalformedMessage):
        partition_fetches(message, NodeId(2))


def test_a_partition_needs_a_whole_id() -> None:
    with pytest.raises(MalformedMessage, match="no partition"):
        ref_of(b"", 0)


def leader_in_racks(**racks: str) -> tuple[LeaderPartition, object]:
    view = cluster(4)
    for name, rack in racks.items():
        node = NodeId(int(name[1:]))
        view.brokers = view.brokers.set(node, broker(node, rack=rack))
    replicas = tuple(NodeId(i) for i in (1, 2, 3, 4))
    state = PartitionState(
        replicas, replicas[:3], NodeId(1), LeaderEpoch(1), PartitionEpoch(1), (UNASSIGNED,) * 4
    )
    start = LeaderStart(0.0, Offset(10), Offset(10), Offset(10))
    leader = LeaderPartition(NodeId(1), REF, state, view, ReplicationSettings(), 1, start)
    return leader, view


@pytest.mark.parametrize(
    ("racks", "ends", "rack", "offset", "expected"),
    [
        ({"n1": "a", "n2": "a"}, {2: 10}, "a", 5, 1),  # the leader, if it is near
        ({"n1": "b", "n2": "a", "n3": "a"}, {2: 9, 3: 10}, "a", 5, 3),  # most of the log
        ({"n1": "b", "n2": "a", "n3": "a"}, {2: 10, 3: 10}, "a", 5, 2),
        ({"n1": "b", "n2": "a"}, {2: 4}, "a", 5, 1),  # it has not got there yet
        ({"n1": "b", "n2": "a"}, {}, "a", 0, 1),  # nothing is known of it
        ({"n1": "b", "n4": "a"}, {4: 10}, "a", 5, 1),  # not in sync
        ({"n1": "b"}, {2: 10}, "a", 5, 1),
    ],
)
def test_the_nearest_replica(
    racks: dict[str, str], ends: dict[int, int], rack: str, offset: int, expected: int
) -> None:
    leader, view = leader_in_racks(**racks)
    for node, end in ends.items():
        remote = leader.remotes[NodeId(node)]
        fetch = FollowerFetch(
            NodeId(node), BrokerEpoch(1), 1, Offset(end), Offset(end), None, Offset(0)
        )
        remote.fetched(0.0, fetch, Offset(10))
    assert nearest_replica(leader, view, rack, Offset(offset)) == expected  # type: ignore[arg-type]


def test_settings_are_read_by_their_names() -> None:
    read = ReplicationSettings.of(
        Settings.of({"replica.lag.time.max.ms": "7", "broker.session.timeout.ms": "9"})
    )
    assert (read.lag_time_max_ms, read.session_timeout_ms, read.is_rack_aware) == (7, 9, False)
    defaults = ReplicationSettings.of(Settings())
    assert dataclasses.asdict(defaults) == dataclasses.asdict(ReplicationSettings())
    name = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert ReplicationSettings.of(Settings.of({"replica.selector.class": name})).is_rack_aware
