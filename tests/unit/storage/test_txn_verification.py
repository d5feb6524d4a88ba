"""Who may open a transaction on a partition, and what markers do that come twice."""

from __future__ import annotations

import pytest
from log_lab import NOW, append, batch_of, open_at, small_config

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tidelog.simulation import SimDisk
from tidelog.storage.log import Appended
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.txn_verification import Verification, Verifications
from tidelog.wire.batch import BatchHeader, read_header
from tidelog.wire.control import ControlType, EndTxnMarker, build_marker_batch
from tidelog.wire.records import Record, build_batch

E = ErrorCode


def batch(offset: int = 0, *, seq: int = 0, epoch: int = 0, pid: int = 1) -> BatchHeader:
    data = build_batch(
        [Record(offset, 100, b"k", b"v")],
        base_offset=offset,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=seq,
        is_transactional=True,
    )
    return read_header(data)


def marker(offset: int, *, epoch: int = 0, pid: int = 1) -> BatchHeader:
    return read_header(
        build_marker_batch(
            ControlType.ABORT,
            coordinator_epoch=0,
            producer_id=pid,
            producer_epoch=epoch,
            timestamp=100,
            base_offset=offset,
        )
    )


def end(states: ProducerStates, header: BatchHeader) -> None:
    states.update(header, EndTxnMarker(ControlType.ABORT, CoordinatorEpoch(0)))


def begin(
    verifications: Verifications, header: BatchHeader, begins_epoch: bool, now_ms: int
) -> Verification:
    return verifications.begin(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        now_ms,
        begins_epoch=begins_epoch,
    )


def test_a_first_write_needs_a_verification() -> None:
    states = ProducerStates()
    assert states.refusal_of_first_write(batch(), None) is E.INVALID_TXN_STATE
    held = begin(states.verifications, batch(), False, 0)
    assert states.refusal_of_first_write(batch(), held) is None


def test_what_goes_on_with_an_open_transaction_needs_none() -> None:
    states = ProducerStates()
    states.update(batch(), None)
    assert states.refusal_of_first_write(batch(seq=1), None) is None
    assert states.refusal_of_first_write(batch(seq=0, epoch=1), None) is E.INVALID_TXN_STATE


def test_a_marker_takes_the_permission_back() -> None:
    """Hazard 28: the answer of the coordinator was overtaken by the end of the transaction."""
    states = ProducerStates()
    held = begin(states.verifications, batch(), False, 0)
    end(states, marker(0))
    assert states.refusal_of_first_write(batch(), held) is E.INVALID_TXN_STATE


def test_the_marker_that_begins_an_epoch_leaves_who_asked_in_it_alone() -> None:
    """The client goes on when the outcome is on record, and may be faster than the marker."""
    states = ProducerStates()
    states.update(batch(0, epoch=4), None)
    held = begin(states.verifications, batch(epoch=5), True, 0)
    end(states, marker(1, epoch=5))
    assert states.refusal_of_first_write(batch(epoch=5), held) is None
    end(states, marker(2, epoch=6))
    assert states.refusal_of_first_write(batch(epoch=5), held) is E.INVALID_TXN_STATE


def test_a_permission_is_for_one_transaction() -> None:
    states = ProducerStates()
    held = begin(states.verifications, batch(), False, 0)
    states.update(batch(0), None)
    end(states, marker(1))
    assert states.refusal_of_first_write(batch(seq=1), held) is E.INVALID_TXN_STATE
    again = begin(states.verifications, batch(seq=1), False, 0)
    assert again is not held


def test_a_resent_batch_of_a_transaction_that_ended_is_a_duplicate_and_opens_none() -> None:
    states = ProducerStates()
    states.update(batch(0), None)
    end(states, marker(1))
    assert states.refusal_of_first_write(batch(), None) is None


def test_batches_of_one_transaction_share_a_verification() -> None:
    verifications = ProducerStates().verifications
    first = begin(verifications, batch(seq=3), False, 0)
    assert begin(verifications, batch(seq=1), False, 0) is first
    assert first.lowest_sequence == 1


def test_a_batch_does_not_overtake_an_earlier_one_that_asked() -> None:
    states = ProducerStates()
    begin(states.verifications, batch(seq=0), False, 0)
    held = begin(states.verifications, batch(seq=3), False, 0)
    assert states.refusal_of_first_write(batch(seq=3), held) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.refusal_of_first_write(batch(seq=0), held) is None


@pytest.mark.parametrize(
    ("begins_epoch", "seq", "expected"),
    [
        (False, 5, None),
        (True, 5, E.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (True, 0, None),
        (True, -1, None),
    ],
)
def test_where_every_transaction_has_its_epoch_the_first_sequence_is_0(
    begins_epoch: bool, seq: int, expected: ErrorCode | None
) -> None:
    states = ProducerStates()
    held = begin(states.verifications, batch(seq=seq), begins_epoch, 0)
    assert states.refusal_of_first_write(batch(seq=seq), held) is expected


def test_a_higher_epoch_replaces_a_verification_and_a_lower_one_does_not() -> None:
    states = ProducerStates()
    old = begin(states.verifications, batch(epoch=1), False, 0)
    new = begin(states.verifications, batch(epoch=2), False, 0)
    assert states.refusal_of_first_write(batch(epoch=1), old) is E.INVALID_TXN_STATE
    late = begin(states.verifications, batch(epoch=1), False, 0)
    assert states.refusal_of_first_write(batch(epoch=1), late) is E.INVALID_TXN_STATE
    assert states.refusal_of_first_write(batch(epoch=2), new) is None


def test_verifications_that_were_never_used_are_forgotten() -> None:
    states = ProducerStates()
    begin(states.verifications, batch(pid=1), False, 0)
    begin(states.verifications, batch(pid=2), False, 50)
    states.expire(100, 100)
    assert len(states.verifications) == 1


# --- what coordinators write -----------------------------------------------------------


def test_what_a_coordinator_writes_for_a_producer_has_no_sequence() -> None:
    states = ProducerStates()
    states.update(batch(0, seq=-1), None)
    states.update(batch(1, seq=-1), None)
    assert states.check(batch(2, seq=-1), is_sequenced=False) is None
    assert states.check(batch(2, seq=-1, epoch=2), is_sequenced=False) is None
    end(states, marker(2, epoch=3))
    fenced = states.check(batch(3, seq=-1), is_sequenced=False)
    assert fenced is E.INVALID_PRODUCER_EPOCH


def test_a_marker_that_begins_an_epoch_is_known_when_it_comes_again() -> None:
    states = ProducerStates()
    states.update(batch(0, epoch=4), None)
    assert not states.has_marker(1, 5)
    end(states, marker(1, epoch=5))
    assert states.has_marker(1, 5)
    states.update(batch(2, epoch=5), None)
    assert states.has_marker(1, 5), "it must not end what was begun after it"
    assert not states.has_marker(1, 6)
    assert not states.has_marker(2, 5)


# --- after a cut -----------------------------------------------------------------------


def test_windows_survive_a_cut() -> None:
    """Hazard 24: a resend of any of the last five gets its offset, also after a truncation."""
    before = ProducerStates()
    for number in range(7):
        before.update(batch(number, seq=number), None)
    rebuilt = ProducerStates()
    rebuilt.update(batch(4, seq=4), None)  # what a snapshot had
    rebuilt.recall(before, batch(5).base_offset)
    entry = rebuilt.entry(1)
    assert entry is not None
    assert [each.first_sequence for each in entry.batches] == [2, 3, 4]


def test_nothing_that_was_cut_is_remembered() -> None:
    before = ProducerStates()
    for number in range(3):
        before.update(batch(number, seq=number, epoch=1), None)
    rebuilt = ProducerStates()
    rebuilt.update(batch(0, seq=0, epoch=0), None)
    rebuilt.recall(before, batch(1).base_offset)
    entry = rebuilt.entry(1)
    assert entry is not None
    assert (entry.epoch, len(entry.batches)) == (0, 1)


def test_a_log_that_was_cut_still_knows_what_a_client_may_resend() -> None:
    log, _ = open_at(SimDisk(), small_config())
    for number in range(7):
        if number == 4:
            log.roll(log.end_offset, NOW)  # the snapshot knows only batch 3
        append(log, b"x", producer_id=7, producer_epoch=0, base_sequence=number)
    log.truncate_to(Offset(5), NOW)
    for number in (2, 3, 4):
        resent = batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=number)
        answer = log.append_as_leader(resent, leader_epoch=LeaderEpoch(1), now_ms=NOW)
        assert isinstance(answer, Appended) and answer.is_duplicate
        assert answer.base_offset == number
    next_one = batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=5)
    answer = log.append_as_leader(next_one, leader_epoch=LeaderEpoch(1), now_ms=NOW)
    assert isinstance(answer, Appended) and not answer.is_duplicate


def test_a_marker_that_is_here_already_is_not_written_again() -> None:
    log, _ = open_at(SimDisk(), small_config())
    marker = EndTxnMarker(ControlType.COMMIT, CoordinatorEpoch(0))
    outcomes = []
    for _ in range(2):
        answer = log.append_marker(
            ProducerId(7),
            ProducerEpoch(1),
            marker,
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
            begins_epoch=True,
        )
        assert isinstance(answer, Appended)
        outcomes.append((answer.is_duplicate, answer.last_offset, log.end_offset))
    assert outcomes == [(False, 0, 1), (True, 0, 1)]


def test_a_permission_may_be_used_by_somebody_else_once_it_is_approved() -> None:
    states = ProducerStates()
    held = begin(states.verifications, batch(seq=-1), False, 0)
    assert states.verifications.approved(held.producer_id) is None
    held.is_approved = True
    assert states.verifications.approved(held.producer_id) is held
    end(states, marker(0))
    assert states.verifications.approved(held.producer_id) is None
