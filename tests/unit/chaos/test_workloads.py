"""What workloads write, how fast, and what they make of the answers."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.chaos.history import Event, Note, Operation, Outcome, Record, Verb
from tidelog.chaos.recorder import Recorder, Totals
from tidelog.chaos.workloads.all_workloads import WORKLOADS
from tidelog.chaos.workloads.copier import Attempt, Copier
from tidelog.chaos.workloads.groups import Churn, Member
from tidelog.chaos.workloads.outcomes import outcome_of_append, outcome_of_commit
from tidelog.chaos.workloads.pace import Pace
from tidelog.chaos.workloads.patience import Patience, within
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, client_settings
from tidelog.chaos.workloads.values import ForeignRecord, decode_value, encode_value

KEYS = st.text(
    st.characters(exclude_characters=":.", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@settings(derandomize=True, max_examples=200)
@given(KEYS, st.integers(0, 10**9), st.integers(0, 200))
def test_a_value_says_which_record_it_is(key: str, sequence: int, size: int) -> None:
    value = encode_value(key, sequence, size)
    assert len(value) >= size
    assert decode_value(key.encode(), value) == (key, sequence)


def test_a_tombstone_has_no_number() -> None:
    assert decode_value(b"k", None) == ("k", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"k:1:"),
        (b"k", b""),
        (b"k", b"other:1:"),
        (b"k", b"k:one:"),
        (b"k", b"k:1:..\x00."),
    ],
)
def test_what_nobody_wrote_is_told_apart(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ForeignRecord):
        decode_value(key, value)


def test_a_pace_gives_what_is_due_and_forgets_what_was_missed() -> None:
    pace = Pace(128.0, 10.0)
    assert [pace.due(at_s) for at_s in (10.0, 10.0625, 10.063, 10.125)] == [0, 8, 0, 8]
    assert pace.due(60.0) == 128
    assert pace.due(60.03125) == 4


@settings(derandomize=True, max_examples=100)
@given(st.floats(1.0, 5_000.0), st.lists(st.floats(0.001, 0.5), min_size=1, max_size=50))
def test_a_pace_is_kept_over_time(per_s: float, steps_s: list[float]) -> None:
    pace, now_s, done = Pace(per_s, 0.0), 0.0, 0
    for step_s in steps_s:
        now_s += step_s
        done += pace.due(now_s)
    assert now_s * per_s - 2 <= done <= now_s * per_s + 1e-6


@pytest.mark.parametrize(
    ("code", "append", "commit"),
    [
        (None, Outcome.OK, Outcome.OK),
        (KafkaError._MSG_TIMED_OUT, Outcome.UNKNOWN, Outcome.UNKNOWN),
        (KafkaError._PURGE_QUEUE, Outcome.UNKNOWN, Outcome.UNKNOWN),
        (KafkaError._PURGE_INFLIGHT, Outcome.UNKNOWN, Outcome.UNKNOWN),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Outcome.UNKNOWN, Outcome.UNKNOWN),
        (KafkaError.MSG_SIZE_TOO_LARGE, Outcome.FAILED, Outcome.UNKNOWN),
        (KafkaError.INVALID_RECORD, Outcome.FAILED, Outcome.UNKNOWN),
        (KafkaError.ILLEGAL_GENERATION, Outcome.UNKNOWN, Outcome.UNKNOWN),
        (KafkaError._NO_OFFSET, Outcome.UNKNOWN, Outcome.FAILED),
    ],
)
def test_only_what_cannot_have_happened_has_failed(
    code: int | None, append: Outcome, commit: Outcome
) -> None:
    error = None if code is None else KafkaError(code)
    assert outcome_of_append(error) is append
    assert outcome_of_commit(error) is commit


def test_the_recorder_numbers_operations_and_counts_records() -> None:
    events: list[Event] = []
    times_s = iter([100.0, 100.5, 101.0, 101.5, 102.0])
    recorder = Recorder(events.append, lambda: next(times_s))
    recorder.operation("w", Verb.APPEND, 0.0, Outcome.OK, topic="t", partition=1, offset=7)
    recorder.note("something")
    seen = [Record("t", 1, 7, "k", 0)]
    recorder.operation("r", Verb.POLL, 900.0, Outcome.OK, seen=seen)
    recorder.operation("w", Verb.APPEND, 1.0, Outcome.UNKNOWN, has_ended=False)

    first, note, poll, given_up = events
    assert isinstance(first, Operation) and (first.number, first.ended_ms) == (1, 500.0)
    assert note == Note(1000.0, "something")
    assert isinstance(poll, Operation) and (poll.number, poll.seen) == (2, tuple(seen))
    assert isinstance(given_up, Operation) and given_up.ended_ms is None
    assert recorder.totals == Totals(acknowledged=1, unknown=1, read=1)


def test_the_recorder_knows_which_partitions_go_on() -> None:
    events: list[Event] = []
    times_s = iter([0.0, 0.5, 1.0, 2.0, 3.0])
    recorder = Recorder(events.append, lambda: next(times_s))
    recorder.operation("c", Verb.APPEND, 0.0, Outcome.OK, topic="out", transaction="c-1")
    recorder.operation("w", Verb.APPEND, 0.0, Outcome.OK, topic="t", partition=0)
    recorder.operation("w", Verb.APPEND, 0.0, Outcome.OK, topic="t", partition=1)
    assert recorder.is_acknowledging(900.0) and not recorder.is_acknowledging(1500.0)
    recorder.operation("w", Verb.APPEND, 0.0, Outcome.OK, topic="t", partition=0)
    assert recorder.is_acknowledging(1500.0) and not recorder.is_acknowledging(2500.0)


def test_the_recorder_knows_which_partitions_nobody_has_written_to() -> None:
    events: list[Event] = []
    recorder = Recorder(events.append)
    places = [("t", 0), ("t", 1), ("out", 0)]
    recorder.operation("w", Verb.APPEND, 0.0, Outcome.UNKNOWN, topic="t", partition=0)
    recorder.operation("r", Verb.READ_TO_END, 0.0, Outcome.OK, topic="t", partition=1)
    assert recorder.unwritten(places) == places
    recorder.operation("w", Verb.APPEND, 0.0, Outcome.OK, topic="t", partition=1)
    more = {"topic": "out", "partition": 0, "transaction": "c-1"}
    recorder.operation("c", Verb.APPEND, 0.0, Outcome.OK, **more)  # type: ignore[arg-type]
    assert recorder.unwritten(places) == [("t", 0)]


def test_a_workload_is_idle_until_each_of_its_clients_was_served() -> None:
    events: list[Event] = []
    stage = Stage("127.0.0.1:1", Recorder(events.append))
    workload = WORKLOADS["mixed"].make(stage)
    assert list(workload.idle()) == [
        "writer-1", "writer-2", "live-reader",
        "feeder", "copier-1", "copier-2", "output-reader", "copiers-watch",
    ]  # fmt: skip
    for worker in workload.workers[:5]:
        worker.note_success()
    assert list(workload.idle()) == ["copier-2", "output-reader", "copiers-watch"]


def test_a_group_is_at_work_when_two_of_its_members_are() -> None:
    events: list[Event] = []
    stage = Stage("127.0.0.1:1", Recorder(events.append))
    churn = Churn(stage, TopicPlan("t", 6), "g", "classic")
    members = [Member(stage, TopicPlan("t", 6), "g", "classic", f"m-{n}") for n in range(3)]
    churn._members.update(dict.fromkeys(members, 0.0))
    members[0].note_success()
    assert not churn.has_succeeded
    members[2].note_success()
    assert churn.has_succeeded


def test_every_workload_has_topics_of_its_own_with_the_prefix() -> None:
    events: list[Event] = []
    stage = Stage("127.0.0.1:1", Recorder(events.append), topic_prefix="mine-")
    for name, row in WORKLOADS.items():
        workload = row.make(stage)
        assert workload.name == name
        names = [topic.name for topic in workload.topics]
        assert names and len(set(names)) == len(names)
        assert all(text.startswith("mine-") for text in (*names, *workload.groups))


def test_an_old_cluster_is_asked_for_classic_groups_only() -> None:
    events: list[Event] = []
    stage = Stage("127.0.0.1:1", Recorder(events.append), has_new_groups=False)
    assert list(WORKLOADS["groups"].make(stage).groups) == ["classic-group"]


def test_names_of_settings_are_written_with_dots() -> None:
    found = client_settings("a:1", "me", group_id="g", error_cb=print)
    assert (found["group.id"], found["error_cb"], found["client.id"]) == ("g", print, "me")


class _Falling(Worker):
    def work(self) -> None:
        raise ValueError("over")


def test_a_thread_that_falls_says_why() -> None:
    worker = _Falling("w")
    worker.start()
    worker.finish(5.0)
    assert worker.failure == "w: ValueError: over"


def test_a_client_that_does_not_return_is_given_up() -> None:
    returned = threading.Event()
    with pytest.raises(KafkaException) as raised:
        within(0.01, returned.wait)
    error = raised.value.args[0]
    assert error.fatal() and not error.retriable() and not error.txn_requires_abort()
    returned.set()


def test_what_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        within(5, fail)


def test_patience_is_for_several_steps_together() -> None:
    now_s = 100.0
    patience = Patience(60.0, lambda: now_s)
    assert patience.left_s == 60.0
    now_s = 140.0
    assert patience.left_s == 20.0
    now_s = 170.0
    assert patience.left_s == 10.0, "the last step gets a moment, too"


class Answering:
    """A producer whose cluster answers while more is being written."""

    def __init__(self) -> None:
        self._unanswered: list[tuple[str, Any]] = []

    def produce(self, topic: str, value: bytes, key: str, **more: Any) -> None:
        self._unanswered.append((key, more["on_delivery"]))

    def poll(self, timeout_s: float) -> None:
        if len(self._unanswered) > 2:
            key, answer = self._unanswered.pop(0)
            answer(None, At(int(key)))


class At:
    """A message that was delivered."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


def test_an_answer_is_noted_for_the_record_it_is_about() -> None:
    events: list[Event] = []
    stage = Stage("nowhere:1", Recorder(events.append))
    copier = Copier(stage, TopicPlan("in", 1), TopicPlan("out", 1), "copiers", "copier-1")
    attempt = Attempt("copier-1-1", 0.0)
    producer: Any = Answering()
    for number in range(20):
        copier._write(producer, Record("in", 0, number, str(number), number), attempt)
    noted = [one for one in events if isinstance(one, Operation)]
    assert [(one.sequence, one.offset) for one in noted] == [(n, n) for n in range(18)]
    assert [record.sequence for record, _ in attempt.writes.values()] == [18, 19]
