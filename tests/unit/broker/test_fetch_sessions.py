"""Incremental fetch sessions: what is read, what is told, and what is refused (KIP-227)."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.broker.fetch_sessions import (
    FINAL_EPOCH,
    FetchPlan,
    FetchSessions,
    Result,
    TopicKey,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, Offset, PartitionIndex, TopicId
from tidelog.wire.protocol.hot_requests.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from tidelog.wire.protocol.hot_responses.fetch import FetchPartitionResponse

NO_ID = TopicId(ZERO_UUID)
TOPIC = TopicKey("t", NO_ID)


def request(
    session_id: int, epoch: int, *partitions: tuple[int, int], forgotten: tuple[int, ...] = ()
) -> FetchRequest:
    wanted = [FetchPartition(PartitionIndex(p), Offset(o), 1000) for p, o in partitions]
    topics = [FetchTopic("t", NO_ID, wanted)] if wanted else []
    gone = (
        [ForgottenTopic("t", NO_ID, tuple(PartitionIndex(p) for p in forgotten))]
        if forgotten
        else []
    )
    return FetchRequest(500, 1, 10_000, 0, topics, gone, session_id, epoch)


def begun(
    sessions: FetchSessions, asked: FetchRequest, now_ms: float = 0, ids: bool = False
) -> FetchPlan:
    plan = sessions.begin(now_ms, asked, uses_topic_ids=ids)
    assert isinstance(plan, FetchPlan)
    return plan


def answer(
    partition: int, hw: int, records: bytes = b"", code: ErrorCode = ErrorCode.NONE
) -> Result:
    return Result(
        (TOPIC, PartitionIndex(partition)),
        FetchPartitionResponse(
            PartitionIndex(partition), code, Offset(hw), Offset(hw), Offset(0), records=records
        ),
    )


def numbers(plan: FetchPlan) -> list[int]:
    return [key[1] for key, _ in plan.wanted]


def told(sessions: FetchSessions, plan: FetchPlan, *results: Result) -> list[int]:
    return [result.key[1] for result in sessions.tell(plan, results)]


def cache(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, Random(1))


def test_a_session_tells_everything_first_and_then_only_news() -> None:
    sessions = cache()
    first = begun(sessions, request(0, 0, (0, 0), (1, 0)))
    assert first.session_id != 0
    assert told(sessions, first, answer(0, 5), answer(1, 5)) == [0, 1]

    second = begun(sessions, request(first.session_id, 1))
    assert numbers(second) == [0, 1]
    assert told(sessions, second, answer(0, 5), answer(1, 5)) == []

    third = begun(sessions, request(first.session_id, 2, (0, 5)))
    assert dict(third.wanted)[TOPIC, PartitionIndex(0)].fetch_offset == 5
    assert told(sessions, third, answer(0, 5), answer(1, 6)) == [1]


def test_a_partition_that_gave_records_goes_to_the_end() -> None:
    sessions = cache()
    plan = begun(sessions, request(0, 0, (0, 0), (1, 0), (2, 0)))
    told(sessions, plan, answer(0, 5, b"x"), answer(1, 5), answer(2, 5))
    assert numbers(begun(sessions, request(plan.session_id, 1))) == [1, 2, 0]


def test_after_an_error_the_bounds_are_told_again() -> None:
    sessions = cache()
    plan = begun(sessions, request(0, 0, (0, 0)))
    told(sessions, plan, answer(0, 5))
    plan = begun(sessions, request(plan.session_id, 1))
    failed = answer(0, -1, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told(sessions, plan, failed) == [0]
    plan = begun(sessions, request(plan.session_id, 2))
    assert told(sessions, plan, answer(0, 5)) == [0]


def test_forgotten_partitions_leave_and_an_empty_session_ends() -> None:
    sessions = cache()
    plan = begun(sessions, request(0, 0, (0, 0), (1, 0)))
    assert numbers(begun(sessions, request(plan.session_id, 1, forgotten=(0,)))) == [1]
    last = begun(sessions, request(plan.session_id, 2, forgotten=(1,)))
    assert (last.wanted, last.session_id, len(sessions)) == ((), 0, 0)


@pytest.mark.parametrize(
    ("session_shift", "epoch", "ids", "code"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_what_does_not_fit_the_session_is_refused(
    session_shift: int, epoch: int, ids: bool, code: ErrorCode
) -> None:
    sessions = cache()
    plan = begun(sessions, request(0, 0, (0, 0)))
    asked = request(plan.session_id + session_shift, epoch)
    assert sessions.begin(0, asked, uses_topic_ids=ids) is code


def test_the_final_epoch_closes_and_a_sessionless_fetch_tells_all() -> None:
    sessions = cache()
    plan = begun(sessions, request(0, 0, (0, 0)))
    final = begun(sessions, request(plan.session_id, FINAL_EPOCH, (0, 3)))
    assert (final.session_id, len(sessions)) == (0, 0)
    assert told(sessions, final, answer(0, 5)) == [0]
    assert told(sessions, final, answer(0, 5)) == [0]


def test_epochs_wrap_to_one() -> None:
    sessions = cache()
    plan = begun(sessions, request(0, 0, (0, 0)))
    assert plan.session is not None
    plan.session.next_epoch = 2**31 - 1
    begun(sessions, request(plan.session_id, 2**31 - 1))
    begun(sessions, request(plan.session_id, 1))


def test_a_full_cache_evicts_the_stale_then_the_small_and_else_nobody() -> None:
    sessions = cache(slots=1)
    first = begun(sessions, request(0, 0, (0, 0)), now_ms=0)
    assert begun(sessions, request(0, 0, (0, 0), (1, 0)), now_ms=60_000).session_id == 0
    begun(sessions, request(first.session_id, 1), now_ms=100_000)
    # Used lately, but old enough to give way to a larger one.
    larger = begun(sessions, request(0, 0, (0, 0), (1, 0)), now_ms=130_000)
    assert larger.session_id not in (0, first.session_id)
    assert begun(sessions, request(0, 0, (0, 0)), now_ms=200_000).session_id == 0
    assert begun(sessions, request(0, 0, (0, 0)), now_ms=260_001).session_id != 0
