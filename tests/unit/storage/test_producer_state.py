"""Producer state: Kafka's answers and snapshots reproduced, its rules as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from tidelog.storage.producer_snapshot import decode_snapshot, encode_snapshot
from tidelog.storage.producer_state import CompletedTxn, Duplicate, ProducerStates
from tidelog.wire.batch import (
    CONTROL_BIT,
    MAX_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    headers,
    read_header,
)
from tidelog.wire.control import ControlType, EndTxnMarker, read_marker

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
Applied = tuple[BatchHeader, EndTxnMarker | None]


def batch(
    offset: int,
    *,
    pid: int = 1,
    epoch: int = 0,
    seq: int = 0,
    count: int = 1,
    txn: bool = False,
    at: int = 100,
) -> BatchHeader:
    return BatchHeader(
        Offset(offset), 49, LeaderEpoch(0), 2, 0, TRANSACTIONAL_BIT if txn else 0, count - 1,
        TimestampMs(at), TimestampMs(at), ProducerId(pid), ProducerEpoch(epoch), Sequence(seq),
        count,
    )  # fmt: skip


def marker(
    offset: int,
    *,
    pid: int = 1,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 0,
    at: int = 100,
) -> Applied:
    header = batch(offset, pid=pid, epoch=epoch, seq=-1, at=at)
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return header._replace(attributes=TRANSACTIONAL_BIT | CONTROL_BIT), EndTxnMarker(
        kind, CoordinatorEpoch(coordinator_epoch)
    )


def states_after(*applied: BatchHeader | Applied) -> ProducerStates:
    states = ProducerStates()
    for each in applied:
        # A header is a tuple too.
        states.update(*(each, None) if isinstance(each, BatchHeader) else each)
    return states


# --- Golden logs ------------------------------------------------------------------------------


def batches_of(directory: Path) -> Iterator[Applied]:
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        for position, header in headers(data):
            stored = data[position : position + header.size]
            yield header, read_marker(stored, header) if header.is_control else None


def snapshot_dirs() -> list[Path]:
    return sorted({file.parent for file in GOLDEN.rglob("*.snapshot")})


def cleaned(directory: Path) -> bool:
    """Whether the cleaner has removed batches here, so that a replay is not the history."""
    return directory.parts[-2].startswith("compact") and directory.name != "before-1"


def test_replaying_golden_logs_gives_their_snapshots() -> None:
    compared = 0
    for directory in snapshot_dirs():
        applied = list(batches_of(directory))
        begins_at = min(int(log.stem) for log in directory.glob("*.log"))
        if cleaned(directory) or begins_at > 0:
            continue
        states, done = ProducerStates(), 0
        for file in sorted(directory.glob("*.snapshot")):
            while done < len(applied) and applied[done][0].base_offset < int(file.stem):
                states.update(*applied[done])
                done += 1
            assert encode_snapshot(states.snapshot_entries()) == file.read_bytes(), file
            compared += 1
    assert compared == 354


def test_replaying_from_one_golden_snapshot_gives_the_next() -> None:
    compared = 0
    for directory in snapshot_dirs():
        if cleaned(directory):
            continue
        applied = list(batches_of(directory))
        for older, newer in pairwise(sorted(directory.glob("*.snapshot"))):
            states = ProducerStates()
            states.load(decode_snapshot(older.read_bytes()))
            for header, end in applied:
                if int(older.stem) <= header.base_offset < int(newer.stem):
                    states.update(header, end)
            assert encode_snapshot(states.snapshot_entries()) == newer.read_bytes(), newer
            compared += 1
    assert compared == 260


@cache
def stored_batches(case: Path) -> dict[int, Applied]:
    """Every batch of a case by base offset, as first stored (before any cleaning)."""
    stored: dict[int, Applied] = {}
    for stage in sorted(case.iterdir(), key=lambda stage: stage.name.partition("-")[2]):
        if stage.is_dir() and not stage.name.startswith("after"):
            for header, end in batches_of(stage):
                stored.setdefault(header.base_offset, (header, end))
    return stored


def produce_cases() -> list[str]:
    cases = sorted(file.parent.name for file in GOLDEN.glob("segments/*/input.json"))
    return [case for case in cases if stored_batches(GOLDEN / "segments" / case)]


@pytest.mark.parametrize("case", produce_cases())
def test_kafkas_answers_to_producers(case: str) -> None:
    """Each produce step gets Kafka's error, its original offset, or is appended."""
    directory = GOLDEN / "segments" / case
    sent = (directory / "sent.bin").read_bytes()
    stored = stored_batches(directory)
    states, end = ProducerStates(), 0
    for step in json.loads((directory / "input.json").read_text())["steps"]:
        while end in stored and stored[end][0].is_control:
            states.update(*stored[end])
            end = stored[end][0].next_offset
        if step["op"] == "restart":
            entries = states.snapshot_entries()
            states.load(entries)
        if step["op"] != "produce" or step["response"]["errorCode"] == ErrorCode.MESSAGE_TOO_LARGE:
            continue
        answer = step["response"]
        outcome = states.check(read_header(sent, step["sentPosition"]))
        match outcome:
            case Duplicate():
                assert outcome.first_offset == answer["baseOffset"] < end
                assert outcome.timestamp == answer["logAppendTimeMs"]
            case ErrorCode():
                assert outcome == answer["errorCode"]
            case None:
                assert (answer["errorCode"], answer["baseOffset"]) == (0, end)
                states.update(*stored[end])
                end = stored[end][0].next_offset


# --- Sequences --------------------------------------------------------------------------------

TEN_BATCHES = [batch(2 * n, seq=2 * n, count=2, at=n) for n in range(10)]


@pytest.mark.parametrize("number", range(5, 10))
def test_a_resend_of_the_last_five_is_answered_with_its_offsets(number: int) -> None:
    states = states_after(*TEN_BATCHES)
    resent = batch(0, seq=2 * number, count=2, at=77)
    assert states.check(resent) == Duplicate(
        Offset(2 * number), Offset(2 * number + 1), TimestampMs(number)
    )


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (batch(0, seq=20), None),
        (batch(0, seq=8, count=2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=21), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=18, count=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=18, count=3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=0), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=20, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=18, count=2, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(0, seq=0, epoch=1), None),
        (batch(0, seq=0, epoch=7), None),
        (batch(0, seq=123, pid=2), None),
        (batch(0, seq=-1, pid=-1), None),
    ],
)
def test_what_may_follow(sent: BatchHeader, expected: ErrorCode | None) -> None:
    assert states_after(*TEN_BATCHES).check(sent) == expected


def test_the_first_batch_of_a_log_begins_a_sequence() -> None:
    """Else a batch that was refused just before, by a leader to be, is lost behind it."""
    states = ProducerStates()
    later, first = batch(0, seq=1), batch(0, seq=0)
    assert states.check(later, is_first=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(first, is_first=True) is None
    assert states.check(batch(0, seq=-1), is_sequenced=False, is_first=True) is None
    assert states.check(later) is None, "in an older log it may be of a producer long forgotten"


def test_an_old_epoch_is_fenced_before_its_sequence_is_looked_at() -> None:
    states = states_after(batch(0, epoch=3, seq=0), batch(1, epoch=3, seq=1))
    for seq in (0, 1, 2, 9):
        assert states.check(batch(0, epoch=2, seq=seq)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap() -> None:
    states = states_after(batch(0, seq=MAX_SEQUENCE - 1, count=2))
    assert states.check(batch(0, seq=0)) is None
    assert states.check(batch(0, seq=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wrapped = batch(2, seq=MAX_SEQUENCE, count=3)
    assert wrapped.last_sequence == 1
    states = states_after(wrapped)
    assert states.check(batch(0, seq=2)) is None
    states.load(states.snapshot_entries())
    assert states.check(batch(0, seq=MAX_SEQUENCE, count=3)) == Duplicate(
        Offset(2), Offset(4), TimestampMs(100)
    )


def test_a_new_epoch_clears_the_window() -> None:
    states = states_after(*TEN_BATCHES, batch(20, seq=0, epoch=1))
    entry = states.entry(1)
    assert entry is not None
    assert [(b.first_sequence, b.first_offset) for b in entry.batches] == [(0, 20)]
    assert states.check(batch(0, seq=18, count=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_keeps_the_window_unless_it_brings_a_new_epoch() -> None:
    states = states_after(batch(0, txn=True), marker(1))
    assert states.check(batch(0, txn=True)) == Duplicate(Offset(0), Offset(0), TimestampMs(100))
    assert states.check(batch(0, seq=1, txn=True)) is None
    states.update(batch(2, seq=1, txn=True), None)
    states.update(*marker(3, epoch=1))
    assert states.check(batch(0, seq=2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(0, seq=0, epoch=1)) is None
    assert states.last_data_offset(1) is None


def test_followers_take_whatever_the_leader_wrote() -> None:
    states = states_after(batch(0, seq=7, epoch=3))
    states.update(batch(1, seq=99, epoch=3), None)
    states.update(batch(2, seq=5, epoch=2), None)
    entry = states.entry(1)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence, entry.last_data_offset) == (2, 5, 2)


def test_non_transactional_data_in_an_open_transaction_is_refused() -> None:
    states = states_after(batch(0, txn=True))
    assert states.check(batch(0, seq=1)) is ErrorCode.INVALID_TXN_STATE
    assert states.check(batch(0, seq=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(0, seq=1, txn=True)) is None
    states.update(*marker(1))
    assert states.check(batch(0, seq=1)) is None


def test_after_a_snapshot_only_the_last_batch_is_known_until_the_window_is_refilled() -> None:
    states = states_after(*TEN_BATCHES)
    states.load(states.snapshot_entries())
    assert isinstance(states.check(batch(0, seq=18, count=2)), Duplicate)
    assert states.check(batch(0, seq=16, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    others = [batch(90, pid=2), batch(91, epoch=9), marker(92)[0]]
    states.refill([*others, *TEN_BATCHES])
    entry, expected = states.entry(1), states_after(*TEN_BATCHES).entry(1)
    assert entry is not None and expected is not None
    assert [b[:4] for b in entry.batches] == [b[:4] for b in expected.batches]
    states.refill(TEN_BATCHES)
    assert [b[:4] for b in entry.batches] == [b[:4] for b in expected.batches]


# --- Markers and transactions -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "expected"),
    [
        (2, 5, None),
        (3, 6, None),
        (1, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (3, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_check_marker(epoch: int, coordinator_epoch: int, expected: ErrorCode | None) -> None:
    states = states_after(batch(0, epoch=2, txn=True), marker(1, epoch=2, coordinator_epoch=5))
    assert states.check_marker(1, epoch, coordinator_epoch) == expected
    assert states.check_marker(2, epoch, coordinator_epoch) is None


def test_a_marker_without_data_completes_nothing() -> None:
    states = ProducerStates()
    assert states.update(*marker(0, epoch=4, commit=False, coordinator_epoch=2)) is None
    entry = states.entry(1)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.last_timestamp) == (4, 2, 100)
    assert states.first_unstable_offset(0) is None
    assert states.snapshot_entries()[0][2:5] == (-1, -1, 0)


def test_what_compaction_left_of_a_marker_says_nothing() -> None:
    states = states_after(batch(0, txn=True))
    assert states.update(marker(1)[0], None) is None
    assert states.first_undecided == 0


def test_interleaved_transactions() -> None:
    states = ProducerStates()
    assert states.first_unstable_offset(0) is None
    states.update(batch(0, pid=1, txn=True), None)
    states.update(batch(1, pid=2, txn=True), None)
    states.update(batch(2, pid=1, seq=1, txn=True), None)
    assert states.first_undecided == states.first_unstable_offset(3) == 0

    aborted = states.update(*marker(3, pid=1, commit=False))
    assert aborted == CompletedTxn(ProducerId(1), Offset(0), Offset(3), is_aborted=True)
    assert states.last_stable_offset_after(aborted) == 1
    assert states.first_undecided == 1
    # The marker at 3 is not replicated before the high watermark has passed it.
    assert states.first_unstable_offset(3) == 0
    assert states.first_unstable_offset(4) == 1

    committed = states.update(*marker(4, pid=2, commit=True))
    assert committed == CompletedTxn(ProducerId(2), Offset(1), Offset(4), is_aborted=False)
    assert states.last_stable_offset_after(committed) == 5
    assert states.first_undecided is None
    states.on_high_watermark(3)
    assert states.first_unstable_offset(3) == 0
    states.on_high_watermark(4)
    assert states.first_unstable_offset(4) == 1
    states.on_high_watermark(5)
    assert states.first_unstable_offset(5) is states.first_unstable_offset(0) is None


def test_open_transactions_come_back_from_a_snapshot_in_order() -> None:
    states = states_after(
        batch(3, pid=9, txn=True), batch(4, pid=1, txn=True), batch(5, pid=5, txn=True)
    )
    again = ProducerStates()
    again.load(reversed(states.snapshot_entries()))
    assert again.first_undecided == 3
    completed = again.update(*marker(6, pid=9, commit=False))
    assert completed is not None
    assert again.last_stable_offset_after(completed) == 4


def test_a_transaction_is_late_when_its_producer_has_been_silent_and_it_is_open() -> None:
    states = states_after(
        batch(0, pid=1, at=1000),
        batch(1, pid=2, at=1000, txn=True),
        batch(2, pid=2, at=1500, txn=True, seq=1),
    )
    assert not states.has_open_since_before(1500)
    assert states.has_open_since_before(1501)
    states.update(*marker(3, pid=2, at=1600))
    assert not states.has_open_since_before(9000)


# --- Life cycle -------------------------------------------------------------------------------


def test_expiry_spares_open_transactions_and_counts_markers_as_activity() -> None:
    states = states_after(
        batch(0, pid=1, at=1000),
        batch(1, pid=2, at=1000, txn=True),
        batch(2, pid=3, at=1000, txn=True),
        marker(3, pid=3, at=1500),
    )
    assert states.expire(1999, 1000) == []
    assert states.expire(2000, 1000) == [1]
    assert states.expire(9000, 1000) == [3]
    assert [entry.producer_id for entry in states.entries()] == [2]
    assert states.check(batch(0, pid=1, seq=55)) is None
    assert not states.is_empty
    states.clear()
    assert states.is_empty
    assert len(states) == 0


@pytest.mark.parametrize(
    ("producer_ids", "expected"),
    [
        # In one table of 16: 33 and 17 share a slot, 16 has the first one.
        ([33, 17, 16, 2], [16, 33, 17, 2]),
        # The thirteenth makes the table double, and 16 goes behind 15.
        ([16, *range(12)], [*range(12), 16]),
        ([16, *range(11)], [16, *range(11)]),
        # The high half of the id is folded into the low one, and so are its high 16 bits.
        ([1 << 32, 0], [0, 1 << 32]),
        ([1 << 16, 0], [0, 1 << 16]),
    ],
)
def test_snapshots_are_in_the_order_of_a_java_hash_map(
    producer_ids: list[int], expected: list[int]
) -> None:
    states = states_after(*(batch(n, pid=pid) for n, pid in enumerate(producer_ids)))
    assert [entry.producer_id for entry in states.snapshot_entries()] == expected


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    sends=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans(), st.booleans()), max_size=40
    )
)
def test_no_batch_is_lost_or_doubled(sends: list[tuple[int, int, bool, bool]]) -> None:
    """Producers resend at random, with a snapshot in between; the model is the list of sends."""
    states, end = ProducerStates(), 0
    history: dict[int, list[BatchHeader]] = {pid: [] for pid in range(3)}
    for pid, count, resend, restart in sends:
        if restart:
            states.load(decode_snapshot(encode_snapshot(states.snapshot_entries())))
            states.refill(sorted(chain.from_iterable(history.values())))
        mine = history[pid]
        if resend and mine:
            again = mine[-min(count, len(mine))]
            found = states.check(again)
            assert isinstance(found, Duplicate)
            assert (found.first_offset, found.last_offset) == (again.base_offset, again.last_offset)
            continue
        seq = mine[-1].last_sequence + 1 if mine else 0
        sent = batch(end, pid=pid, seq=seq, count=count)
        assert states.check(sent) is None
        assert not mine or states.check(batch(end, pid=pid, seq=seq + 1)) is not None
        states.update(sent, None)
        mine.append(sent)
        end += count
