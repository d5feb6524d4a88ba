"""Each anomaly is planted once in a good history, and found; the good history has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.testing.checkers import (
    AbortedRead,
    Anomaly,
    Duplicate,
    End,
    InventedRecord,
    LostWrite,
    NonMonotonicPoll,
    Outcome,
    Poll,
    Reordered,
    Seen,
    TornTransaction,
    TransactionalHistory,
    Write,
    check_transactional_log,
)

P0, P1 = ("t", 0), ("t", 1)
ABORTED = Write("p", P0, "b", "two")

GOOD = TransactionalHistory(
    writes=[
        Write("p", P0, "a0", "one"),
        Write("p", P1, "a1", "one"),
        ABORTED,
        Write("p", P0, "c0", "three"),
        Write("p", P0, "c1", "three"),
        Write("q", P1, "d", "four"),
        Write("r", P1, "e", is_acknowledged=True),
        Write("r", P1, "f"),
    ],
    ends=[
        End("one", Outcome.COMMITTED),
        End("two", Outcome.ABORTED),
        End("three", Outcome.UNKNOWN),
    ],
    polls=[
        Poll("x", (Seen(P0, 0, "a0"), Seen(P1, 0, "a1"))),
        Poll("x", (Seen(P0, 3, "c0"),)),
        Poll("y", (Seen(P0, 0, "a0"),)),
    ],
    final={P0: [(0, "a0"), (3, "c0"), (4, "c1")], P1: [(0, "a1"), (2, "e")]},
)


def final(partition: tuple[str, int], *records: tuple[int, str]) -> TransactionalHistory:
    return replace(GOOD, final={**GOOD.final, partition: list(records)})


def polled(*polls: Poll) -> TransactionalHistory:
    return replace(GOOD, polls=[*GOOD.polls, *polls])


Plant = tuple[TransactionalHistory, list[Anomaly]]
PLANTED: dict[str, Callable[[], Plant]] = {
    "an aborted record is there": lambda: (
        final(P0, (0, "a0"), (1, "b"), (3, "c0"), (4, "c1")),
        [AbortedRead(Seen(P0, 1, "b"), "two")],
    ),
    "an aborted record was polled": lambda: (
        polled(Poll("z", (Seen(P0, 1, "b"),))),
        [AbortedRead(Seen(P0, 1, "b"), "two"), InventedRecord(Seen(P0, 1, "b"))],
    ),
    "a committed transaction is gone": lambda: (
        replace(GOOD, polls=[], final={P0: [(3, "c0"), (4, "c1")], P1: [(2, "e")]}),
        [LostWrite(GOOD.writes[0]), LostWrite(GOOD.writes[1])],
    ),
    "an acknowledged write is gone": lambda: (
        final(P1, (0, "a1")),
        [LostWrite(GOOD.writes[6])],
    ),
    "a record is there twice": lambda: (
        final(P0, (0, "a0"), (3, "c0"), (4, "c1"), (7, "c1")),
        [Duplicate("c1", P0, (4, 7))],
    ),
    "half of a transaction whose outcome nobody knows": lambda: (
        final(P0, (0, "a0"), (3, "c0")),
        [TornTransaction("three", ("c0",), ("c1",))],
    ),
    "half of a committed one": lambda: (
        final(P1, (2, "e")),
        [
            LostWrite(GOOD.writes[1]),
            TornTransaction("one", ("a0",), ("a1",)),
            InventedRecord(Seen(P1, 0, "a1")),
        ],
    ),
    "a position that goes back": lambda: (
        polled(Poll("x", (Seen(P0, 0, "a0"),))),
        [NonMonotonicPoll("x", P0, 3, 0)],
    ),
    "a position that stands still": lambda: (
        polled(Poll("y", (Seen(P0, 0, "a0"),))),
        [NonMonotonicPoll("y", P0, 0, 0)],
    ),
    "another order than was written": lambda: (
        replace(GOOD, polls=[], final={**GOOD.final, P0: [(0, "a0"), (3, "c1"), (4, "c0")]}),
        [Reordered(P0, earlier="c0", later="c1")],
    ),
    "a record that nobody wrote": lambda: (
        final(P1, (0, "a1"), (2, "e"), (3, "ghost")),
        [InventedRecord(Seen(P1, 3, "ghost"))],
    ),
    "a record in a partition it was not written to": lambda: (
        final(P0, (0, "a0"), (3, "c0"), (4, "c1"), (6, "d")),
        [InventedRecord(Seen(P0, 6, "d"))],
    ),
    "a record polled and then gone": lambda: (
        polled(Poll("z", (Seen(P1, 1, "d"),))),
        [InventedRecord(Seen(P1, 1, "d"))],
    ),
}


def test_a_good_history_has_no_anomaly() -> None:
    assert check_transactional_log(GOOD) == []


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_what_was_planted_is_found_and_nothing_else(plant: Callable[[], Plant]) -> None:
    history, expected = plant()
    assert check_transactional_log(history) == expected


def test_a_transaction_that_nobody_ended_may_be_there_or_not() -> None:
    assert check_transactional_log(final(P1, (0, "a1"), (1, "d"), (2, "e"))) == []
    assert check_transactional_log(replace(GOOD, ends=GOOD.ends[:2])) == []


def test_values_must_tell_writes_apart() -> None:
    with pytest.raises(ValueError, match="'b'"):
        check_transactional_log(replace(GOOD, writes=[*GOOD.writes, ABORTED]))


def test_a_transaction_ends_once() -> None:
    ends = [*GOOD.ends, End("one", Outcome.ABORTED)]
    with pytest.raises(ValueError, match="'one'"):
        check_transactional_log(replace(GOOD, ends=ends))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(Outcome), st.integers(1, 4), st.booleans()), max_size=12))
def test_a_log_that_keeps_its_promises_is_never_blamed(
    transactions: list[tuple[Outcome, int, bool]],
) -> None:
    """A dumb log: what is to be there is appended whole, with gaps for markers."""
    writes, ends = [], []
    kept: dict[tuple[str, int], list[tuple[int, str]]] = {P0: [], P1: []}
    ends_at = {P0: 0, P1: 0}
    for number, (outcome, size, unknown_stays) in enumerate(transactions):
        name = f"t{number}"
        ends.append(End(name, outcome))
        stays = outcome is Outcome.COMMITTED or (outcome is Outcome.UNKNOWN and unknown_stays)
        for index in range(size):
            partition = (P0, P1)[index % 2]
            writes.append(Write("p", partition, f"{name}-{index}", name))
            if stays:
                kept[partition].append((ends_at[partition], f"{name}-{index}"))
            ends_at[partition] += 1
        ends_at = {partition: end + 1 for partition, end in ends_at.items()}
    polls = [
        Poll("c", tuple(Seen(partition, offset, value) for offset, value in records))
        for partition, records in kept.items()
    ]
    assert check_transactional_log(TransactionalHistory(writes, ends, polls, kept)) == []
