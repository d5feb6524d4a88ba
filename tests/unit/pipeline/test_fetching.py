"""A task's reader against brokers that lose their leadership, hang up, and forget records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pipeline_broker import HANG_UP, PretendedCluster

from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.errors import BrokerRefused, BrokerUnavailable, CorruptData, DataLoss
from tidelog.pipeline.fetching import RangeReader
from tidelog.pipeline.planner import OffsetRange
from tidelog.pipeline.source_options import STREAM, SourceOptions, parse_source_options
from tidelog.wire.control import ControlType, build_marker_batch
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.records import Record, build_batch


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batch(first: int, count: int = 10, producer: int | None = None) -> bytes:
    records = [Record(n, 1000 + n, None, b"v%d" % n, ()) for n in range(first, first + count)]
    if producer is None:
        return build_batch(records, base_offset=first)
    return build_batch(
        records, base_offset=first, producer_id=producer, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[PretendedCluster]:
    pretended = PretendedCluster(log=[batch(first) for first in range(0, 100, 10)], end=100)
    with pretended.running():
        yield pretended


def options(cluster: PretendedCluster, **given: str) -> SourceOptions:
    said = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "t",
        "kafka.request.timeout.ms": "1000",
    }
    renamed = {name.replace("__", "."): value for name, value in given.items()}
    return parse_source_options(said | renamed, STREAM)


def read(cluster: PretendedCluster, start: int = 0, end: int = 100, **given: str) -> list[int]:
    time = Time()
    reader = RangeReader(
        options(cluster, **given),
        OffsetRange("t", 0, start, end),
        monotonic=time.monotonic,
        sleep=time.sleep,
    )
    return [n for found in reader.read() for n in found.column("offset").to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 95), (10, 20), (13, 14)])
def test_exactly_the_range_is_read(cluster: PretendedCluster, start: int, end: int) -> None:
    assert read(cluster, start, end) == list(range(start, end))


def test_a_range_may_end_in_a_gap(cluster: PretendedCluster) -> None:
    """Compaction and markers leave offsets without records."""
    cluster.log = [batch(0), batch(50)]
    assert read(cluster, 5, 55) == [*range(5, 10), *range(50, 55)]


def test_the_new_leader_is_found(cluster: PretendedCluster) -> None:
    cluster.answers[ApiKey.FETCH] = [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]  # fmt: skip
    reader = RangeReader(options(cluster), OffsetRange("t", 0, 0, 100), sleep=lambda _: None)
    assert [n for found in reader.read() for n in found.column("offset").to_pylist()] == [
        *range(100)
    ]
    cluster.leader = 2
    assert read(cluster) == [*range(100)]
    assert (2, "Fetch") in cluster.asked


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.FETCH, ApiKey.API_VERSIONS])
def test_a_broker_that_hangs_up_is_asked_again(cluster: PretendedCluster, api: ApiKey) -> None:
    cluster.answers[api] = [HANG_UP, ErrorCode.NONE, HANG_UP]
    assert read(cluster) == [*range(100)]


def test_records_before_the_log_are_lost(cluster: PretendedCluster) -> None:
    cluster.log_start = 40
    with pytest.raises(DataLoss, match="t-0: offsets 5 to 39 are not in the log any more"):
        read(cluster, 5)
    assert read(cluster, 5, failOnDataLoss="false") == [*range(40, 100)]
    assert read(cluster, 5, 30, failOnDataLoss="false") == []


@pytest.mark.parametrize("start", [0, 60])
def test_a_log_that_became_shorter_has_lost_records(cluster: PretendedCluster, start: int) -> None:
    """The log ends at the position, or before it."""
    cluster.log, cluster.end = cluster.log[:5], 50
    with pytest.raises(DataLoss, match="were there when the query was planned"):
        read(cluster, start)
    assert read(cluster, start, failOnDataLoss="false") == [*range(start, 50)]


def test_nobody_answers(cluster: PretendedCluster) -> None:
    cluster.answers[ApiKey.FETCH] = [HANG_UP] * 1000
    nobody = options(cluster, kafka__request__timeout__ms="300")
    reader = RangeReader(nobody, OffsetRange("t", 0, 0, 100))
    with pytest.raises(BrokerUnavailable, match=r"t-0.*within 300 ms.*hung up"):
        list(reader.read())


def test_an_error_that_stays_is_told_at_once(cluster: PretendedCluster) -> None:
    cluster.answers[ApiKey.FETCH] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        read(cluster)


def test_damage_on_the_way_is_found(cluster: PretendedCluster) -> None:
    cluster.log[3] = cluster.log[3][:-1] + bytes([cluster.log[3][-1] ^ 1])
    with pytest.raises(CorruptData, match=r"t-0.*CRC"):
        read(cluster)


def test_aborted_transactions_are_hidden(cluster: PretendedCluster) -> None:
    marker = {"coordinator_epoch": 0, "producer_epoch": 0, "timestamp": 5}
    cluster.log = [
        batch(0, producer=7),
        batch(10, producer=8),
        build_marker_batch(ControlType.ABORT, producer_id=7, base_offset=20, **marker),
        batch(21, 9, producer=7),
        build_marker_batch(ControlType.COMMIT, producer_id=8, base_offset=30, **marker),
        build_marker_batch(ControlType.COMMIT, producer_id=7, base_offset=31, **marker),
        batch(32, 68),
    ]
    cluster.aborted, cluster.batches_per_fetch = [(7, 0)], 10
    committed = [*range(10, 20), *range(21, 30), *range(32, 100)]
    assert read(cluster, kafka__isolation__level="read_committed") == committed
    everything = [*range(20), *range(21, 30), *range(32, 100)]
    assert read(cluster) == everything, "markers are never shown"


def test_offsets_are_asked_of_the_leader_until_it_knows(cluster: PretendedCluster) -> None:
    cluster.answers[ApiKey.LIST_OFFSETS] = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE,
    ]  # fmt: skip
    asking = Cluster(options(cluster), sleep=lambda _: None)
    assert asking.offsets({("t", 0): -1}) == {("t", 0): 100}
    assert asking.offsets({}) == {}
    asking.close()


def test_a_topic_that_is_missing(cluster: PretendedCluster) -> None:
    cluster.answers[ApiKey.METADATA] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    asking = Cluster(options(cluster), sleep=lambda _: None)
    selection = options(cluster).selection
    assert asking.places(selection, must_exist=False) == frozenset()
    assert asking.places(selection, must_exist=True) == {("t", 0)}, "a moment later it is known"
    cluster.answers[ApiKey.METADATA] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000
    time = Time()
    patient = Cluster(options(cluster), monotonic=time.monotonic, sleep=time.sleep)
    with pytest.raises(BrokerRefused, match="topic 't' does not exist"):
        patient.places(selection, must_exist=True)
    asking.close()
    patient.close()


def test_a_pattern_never_means_internal_topics(cluster: PretendedCluster) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": ".*"}
    wanted = parse_source_options(given, STREAM)
    asking = Cluster(wanted)
    assert asking.places(wanted.selection, must_exist=True) == {("t", 0)}
    cluster.is_internal = True
    assert asking.places(wanted.selection, must_exist=True) == frozenset()
    assert asking.places(options(cluster).selection, must_exist=True) == {("t", 0)}
    asking.close()
