"""The leader's end of a fetch stream: what is open, whose turn it is, and how much may be sent."""

from __future__ import annotations

import pytest

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import (
    NO_OFFSET,
    BrokerEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.replication.fetch_session import FetchSession, PartitionFetch
from tidelog.replication.remote_replica import FollowerFetch

TOPIC = TopicId(Uuid(bytes(16)))


def ref(index: int) -> PartitionRef:
    return PartitionRef(TOPIC, PartitionIndex(index))


def asked(
    index: int, *, at: int = 0, max_bytes: int = 100, leader_epoch: int = 5
) -> PartitionFetch:
    where = (Offset(at), Offset(at), None, Offset(0))
    fetch = FollowerFetch(NodeId(2), BrokerEpoch(7), leader_epoch, *where)
    return PartitionFetch(ref(index), fetch, max_bytes)


@pytest.fixture
def session() -> FetchSession:
    made = FetchSession(NodeId(2))
    assert made.requested(1, BrokerEpoch(7), 500, 1000)
    for index in range(3):
        made.take(asked(index))
    return made


def test_requests_come_in_order(session: FetchSession) -> None:
    assert not session.requested(1, BrokerEpoch(7), 500, 1000)
    assert not session.requested(2, BrokerEpoch(6), 500, 1000)
    assert session.requested(2, BrokerEpoch(7), 500, 1000)
    assert session.correlation_id == 2


def test_partitions_are_served_in_turn(session: FetchSession) -> None:
    for index in (1, 0, 2, 1):
        session.mark_ready(ref(index))
    served = [session.next_ready() for _ in range(4)]
    assert [entry and entry.ref.partition for entry in served] == [1, 0, 2, None]


def test_who_was_answered_is_closed_until_it_asks_again(session: FetchSession) -> None:
    session.mark_ready(ref(0))
    entry = session.next_ready()
    assert entry is not None
    session.sent(entry, 40)
    assert not session.mark_ready(ref(0))
    assert session.budget_bytes == 960
    session.take(asked(0, at=5))
    assert session.mark_ready(ref(0))
    assert not session.mark_ready(ref(0))  # once is enough


def test_a_report_of_progress_neither_opens_nor_closes(session: FetchSession) -> None:
    session.take(asked(0, at=3, max_bytes=0))
    entry = session.partitions[ref(0)]
    assert (entry.is_open, entry.max_bytes, entry.fetch.fetch_offset) == (True, 100, 3)
    session.take(asked(9, max_bytes=0))
    assert not session.partitions[ref(9)].is_open
    assert not session.mark_ready(ref(9))


def test_nothing_is_sent_beyond_the_budget(session: FetchSession) -> None:
    session.mark_ready(ref(0))
    session.mark_ready(ref(1))
    entry = session.next_ready()
    assert entry is not None
    session.sent(entry, 5000)
    assert not session.has_ready and session.next_ready() is None
    session.requested(2, BrokerEpoch(7), 500, 1000)
    assert session.has_ready


def test_news_ride_along_unless_there_is_more_to_say(session: FetchSession) -> None:
    assert session.mark_news(ref(0))
    assert not session.mark_news(ref(0))
    session.mark_news(ref(1))
    session.mark_ready(ref(1))
    assert [entry.ref.partition for entry in session.take_news()] == [0]
    assert not session.has_news


def test_a_full_request_forgets_the_rest(session: FetchSession) -> None:
    session.mark_ready(ref(1))
    assert session.replace([ref(0)]) == [ref(1), ref(2)]
    assert session.next_ready() is None
    assert list(session.partitions) == [ref(0)]
    session.forget(ref(0))
    assert session.open_partitions() == []


def test_an_unsettled_partition_waits_for_metadata(session: FetchSession) -> None:
    session.partitions[ref(0)].is_unsettled = True
    assert not session.mark_ready(ref(0))
    session.take(asked(0))
    assert session.mark_ready(ref(0))


def test_what_was_told_in_another_epoch_is_told_again(session: FetchSession) -> None:
    """Cluster seed 610161: a follower kept an old high watermark until the next record."""
    entry = session.partitions[ref(0)]
    entry.told_high_watermark = Offset(9)
    assert session.take(asked(0, at=4)).told_high_watermark == 9
    assert session.take(asked(0, at=4, leader_epoch=6)).told_high_watermark == NO_OFFSET
