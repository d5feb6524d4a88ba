"""The follower's end of a fetch stream: what the next request names."""

from __future__ import annotations

import pytest

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, Uuid
from tidelog.replication.fetch_requests import FetchRequests, Followed, RequestPlan
from tidelog.replication.follower import Fetched, FollowerPartition, LocalLog
from tidelog.replication.throttle import ReplicationQuota
from tidelog.storage.epoch_cache import UNDEFINED_END

TOPIC = TopicId(Uuid(bytes(16)))


def ref(index: int) -> PartitionRef:
    return PartitionRef(TOPIC, PartitionIndex(index))


def log(end: int, flushed: int | None = None, start: int = 0) -> LocalLog:
    flushed_end = Offset(end if flushed is None else flushed)
    return LocalLog(Offset(start), Offset(0), flushed_end, Offset(end), LeaderEpoch(1))


def followed(index: int, *, is_throttled: bool = False) -> Followed:
    machine = FollowerPartition(NodeId(1), LeaderEpoch(5), 1000)
    return Followed(ref(index), machine, log(10), is_throttled)


@pytest.fixture
def requests() -> FetchRequests:
    made = FetchRequests(ReplicationQuota(1000))
    for index in range(3):
        made.follow(followed(index))
    return made


def show(plan: RequestPlan | None) -> str:
    """``3 full: 0? 1? 2+10 -4``: partitions that ask, that report, that are forgotten."""
    if plan is None:
        return "-"
    parts = [
        f"{ask.ref.partition}" + ("?" if ask.wants_records else f"+{ask.log.flushed_end}")
        for ask in plan.asks
    ]
    parts += [f"-{gone.partition}" for gone in plan.forgotten]
    return f"{plan.correlation_id}{' full' if plan.is_full else ''}: {' '.join(parts)}".rstrip()


def answer(requests: FetchRequests, index: int, code: ErrorCode = ErrorCode.NONE) -> None:
    partition = requests.followed[ref(index)]
    at = partition.log.end
    fetched = Fetched(code, LeaderEpoch(5), at, Offset(0), Offset(0), Offset(at + 1), None, 1)
    partition.machine.answered(0.0, 99, fetched, partition.log, lambda epoch: UNDEFINED_END)
    requests.ask_again(ref(index))


def test_the_first_request_names_everything_and_later_ones_what_changed(
    requests: FetchRequests,
) -> None:
    assert show(requests.next_request(0)) == "1 full: 0? 1? 2?"
    assert show(requests.next_request(0)) == "-"
    answer(requests, 1)
    answer(requests, 0)
    assert show(requests.next_request(0)) == "2: 1? 0?"


def test_progress_is_reported_once_while_a_fetch_waits(requests: FetchRequests) -> None:
    assert requests.progressed(ref(0), log(10, 8))
    assert show(requests.next_request(0)) == "1 full: 0? 1? 2?"
    assert not requests.progressed(ref(0), log(10, 8))
    assert requests.progressed(ref(0), log(10, 9))
    assert requests.progressed(ref(1), log(10, 10, start=4))
    answer(requests, 1)
    assert show(requests.next_request(0)) == "2: 1? 0+9"
    assert show(requests.next_request(0)) == "-"
    assert not requests.progressed(ref(7), log(1))


def test_who_backs_off_asks_later_and_still_reports(requests: FetchRequests) -> None:
    requests.next_request(0)
    answer(requests, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert show(requests.next_request(0)) == "-"
    assert requests.next_due_ms(0) == 1000
    requests.progressed(ref(2), log(10, 9))
    assert show(requests.next_request(0)) == "2: 2+9"
    assert show(requests.next_request(999)) == "-"
    assert show(requests.next_request(1000)) == "3: 2?"
    assert requests.next_due_ms(1000) is None


def test_who_is_no_longer_followed_is_forgotten(requests: FetchRequests) -> None:
    requests.unfollow(ref(2))
    assert show(requests.next_request(0)) == "1 full: 0? 1?"
    requests.unfollow(ref(0))
    requests.unfollow(ref(0))
    assert show(requests.next_request(0)) == "2: -0"
    requests.follow(followed(0))
    assert show(requests.next_request(0)) == "3: 0?"


def test_a_new_stream_starts_over(requests: FetchRequests) -> None:
    requests.next_request(0)
    requests.unfollow(ref(2))
    requests.stream_opened()
    assert show(requests.next_request(0)) == "2 full: 0? 1?"


def test_a_sign_of_life_is_an_empty_request(requests: FetchRequests) -> None:
    requests.next_request(0)
    requests.owe_sign_of_life()
    assert show(requests.next_request(0)) == "2:"
    assert show(requests.next_request(0)) == "-"


def test_a_throttled_partition_that_lags_waits_for_its_rate() -> None:
    requests = FetchRequests(ReplicationQuota(1000))
    for index in (0, 1, 2):
        requests.follow(followed(index, is_throttled=index > 0))
    requests.followed[ref(1)].leader_end = Offset(50)
    requests.quota.record(100, 20_000)
    assert show(requests.next_request(100)) == "1 full: 0? 2?"  # 2 does not lag
    assert requests.next_due_ms(100) == 1000
    assert show(requests.next_request(5000)) == "-"
    assert show(requests.next_request(12_000)) == "2: 1?"
