"""What the coordinator does with one transactional id, rule by rule."""

from __future__ import annotations

from itertools import product

import pytest
from transaction_desk import TransactionDesk, place

from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.states import (
    TRANSITIONS,
    IllegalTransition,
    TransactionState,
    check_transition,
)
from tidelog.coordinator.transactions.transaction import TransactionSettings
from tidelog.coordinator.transactions.transaction_records import (
    TransactionRecord,
    TransactionValue,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId

S = TransactionState
E = ErrorCode
A, B = place("a"), place("b")
BUSY = E.CONCURRENT_TRANSACTIONS
NEW = 2
"""The client's transaction.version, where it is not an old one."""


def at(
    epoch: int, *, state: S = S.EMPTY, version: int = 0, is_prompt: bool = True
) -> TransactionDesk:
    """A coordinator that knows one id, in this state and epoch."""
    partitions = {S.EMPTY: None, S.ONGOING: (("a", (0,)),)}.get(state, ())
    if state.is_prepared:
        partitions = (("a", (0,)),)
    value = TransactionValue(
        ProducerId(7), ProducerEpoch(epoch), 60_000, state, partitions, 1_000,
        -1 if state is S.EMPTY else 1_000, ProducerId(7), client_version=version,
    )  # fmt: skip
    desk = TransactionDesk(is_prompt=is_prompt)
    desk.log.append(TransactionRecord("tx", value))
    desk.fail_over()
    return desk


# --- the table -------------------------------------------------------------------------


def test_every_state_has_its_row_and_what_is_not_in_it_is_refused() -> None:
    assert set(TRANSITIONS) == set(S)
    for old, new in product(S, S):
        if new in TRANSITIONS[old]:
            check_transition("tx", old, new)
        else:
            with pytest.raises(IllegalTransition, match="'tx' cannot go"):
                check_transition("tx", old, new)


def test_an_outcome_never_changes() -> None:
    """What is prepared is completed, and completed the same way."""
    assert TRANSITIONS[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert TRANSITIONS[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}


# --- InitProducerId --------------------------------------------------------------------


def test_a_new_id_begins_with_epoch_0() -> None:
    desk = TransactionDesk()
    assert desk.init() == e.InitResult(E.NONE, ProducerId(100), ProducerEpoch(0))
    assert desk.state() is S.EMPTY


def test_each_producer_of_the_id_gets_a_higher_epoch() -> None:
    desk = TransactionDesk()
    assert [desk.init().producer_epoch for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer_id", "epoch", "error"),
    [
        ("", 1, -1, -1, E.INVALID_REQUEST),
        ("tx", 0, -1, -1, E.INVALID_TRANSACTION_TIMEOUT),
        ("tx", -5, -1, -1, E.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_001, -1, -1, E.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_000, -1, -1, E.NONE),
        ("tx", 1, 5, -1, E.INVALID_REQUEST),
        ("tx", 1, -1, 5, E.INVALID_REQUEST),
    ],
)
def test_what_is_wrong_with_a_request_is_said_first(
    name: str, timeout_ms: int, producer_id: int, epoch: int, error: E
) -> None:
    desk = TransactionDesk()
    assert desk.init(name, timeout_ms, producer_id, epoch).error is error
    assert len(desk.shard) == (error is E.NONE)


def test_without_a_producer_id_the_client_comes_again() -> None:
    desk = TransactionDesk()
    desk.ids_are_there = False
    assert desk.init().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert len(desk.shard) == 0


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (7, 4, (E.NONE, 7, 5)),
        (7, 3, (E.PRODUCER_FENCED, -1, -1)),
        (7, 5, (E.PRODUCER_FENCED, -1, -1)),
        (8, 4, (E.PRODUCER_FENCED, -1, -1)),
    ],
)
def test_a_producer_that_names_itself_must_be_the_present_one(
    producer_id: int, epoch: int, expected: tuple[E, int, int]
) -> None:
    """KIP-360."""
    found = at(4).init(producer_id=producer_id, epoch=epoch)
    assert (found.error, found.producer_id, found.producer_epoch) == expected


def test_a_repeated_bump_bumps_once() -> None:
    desk = at(4)
    first = desk.init(producer_id=7, epoch=4)
    assert desk.init(producer_id=7, epoch=4) == first
    assert first.producer_epoch == 5


def test_a_producer_that_names_itself_does_not_abort_its_successors_transaction() -> None:
    desk = at(4, state=S.ONGOING)
    assert desk.init(producer_id=7, epoch=3).error is E.PRODUCER_FENCED
    assert desk.state() is S.ONGOING


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_a_producer_id_whose_epochs_are_used_up_is_exchanged(epoch: int) -> None:
    """Hazard 31: epoch 32767."""
    desk = at(epoch)
    assert desk.init() == e.InitResult(E.NONE, ProducerId(100), ProducerEpoch(0))
    assert desk.value().previous_producer_id == 7


def test_the_holder_of_an_exchanged_id_is_still_known() -> None:
    desk = at(32766)
    first = desk.init(producer_id=7, epoch=32766)
    assert (first.producer_id, first.producer_epoch) == (100, 0)
    assert desk.init(producer_id=7, epoch=32766) == first
    assert desk.init(producer_id=7, epoch=32765).error is E.PRODUCER_FENCED


def test_an_exchange_waits_for_a_new_id() -> None:
    desk = at(32766)
    desk.ids_are_there = False
    assert desk.init().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.state() is S.EMPTY


@pytest.mark.parametrize("version", [0, NEW])
def test_a_second_producer_fences_the_first_and_aborts_what_it_left(version: int) -> None:
    desk = TransactionDesk()
    desk.init()
    desk.add(100, 0, A, version=version)
    assert desk.init().error is E.CONCURRENT_TRANSACTIONS
    assert (desk.state(), desk.value().producer_epoch) == (S.COMPLETE_ABORT, 1)
    assert desk.init().producer_epoch == 2
    assert desk.add(100, 0, A) is E.PRODUCER_FENCED
    assert desk.end(100, 0, commit=True).error is E.PRODUCER_FENCED


# --- AddPartitionsToTxn ----------------------------------------------------------------


def test_partitions_are_added_once() -> None:
    desk = TransactionDesk()
    desk.init()
    assert desk.add(100, 0, A) is E.NONE
    written = len(desk.log)
    assert desk.add(100, 0, A) is E.NONE
    assert len(desk.log) == written
    assert desk.add(100, 0, A, B) is E.NONE
    assert desk.value().places() == {A, B}


def test_the_time_of_a_transaction_runs_from_its_first_partition() -> None:
    desk = TransactionDesk()
    desk.init()
    desk.add(100, 0, A)
    desk.pass_time(100)
    desk.add(100, 0, B)
    assert desk.value().start_ms == 1_000
    desk.end(100, 0, commit=True)
    desk.pass_time(100)
    desk.add(100, 0, A)
    assert desk.value().start_ms == 1_200


@pytest.mark.parametrize(
    ("name", "producer_id", "epoch", "error"),
    [
        ("", 7, 4, E.INVALID_REQUEST),
        ("who", 7, 4, E.INVALID_PRODUCER_ID_MAPPING),
        ("tx", 8, 4, E.INVALID_PRODUCER_ID_MAPPING),
        ("tx", -1, 4, E.INVALID_PRODUCER_ID_MAPPING),
        ("tx", 7, 3, E.PRODUCER_FENCED),
        ("tx", 7, 5, E.PRODUCER_FENCED),
        ("tx", 7, 4, E.NONE),
    ],
)
def test_only_the_present_producer_may_add_verify_and_end(
    name: str, producer_id: int, epoch: int, error: E
) -> None:
    def desk() -> TransactionDesk:
        return at(4, state=S.ONGOING)

    assert desk().add(producer_id, epoch, B, name=name) is error
    assert desk().verify(producer_id, epoch, A, name=name).error is error
    for version in (0, NEW):
        ended = desk().end(producer_id, epoch, commit=True, name=name, version=version)
        assert ended.error is error


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_nothing_joins_a_transaction_that_ends(state: S) -> None:
    desk = at(4, state=state, is_prompt=False)
    assert desk.add(7, 4, B) is E.CONCURRENT_TRANSACTIONS
    assert desk.verify(7, 4, A).error is E.CONCURRENT_TRANSACTIONS
    assert desk.init().error is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_verification_finds_no_partition_of_a_transaction_that_is_not_open(state: S) -> None:
    """Hazard 28: a late write must not open a transaction nobody will close."""
    assert at(4, state=state).verify(7, 4, A).errors == (E.TRANSACTION_ABORTABLE,)


def test_verification_tells_partitions_apart_and_writes_nothing() -> None:
    desk = at(4, state=S.ONGOING)
    assert desk.verify(7, 4, A, B).errors == (E.NONE, E.TRANSACTION_ABORTABLE)
    assert len(desk.log) == 1


# --- EndTxn ----------------------------------------------------------------------------

OLD_ENDS = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (E.NONE, E.NONE),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}
NEW_ENDS = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.NONE),
    S.ONGOING: (E.NONE, E.NONE),
    S.PREPARE_COMMIT: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.COMPLETE_COMMIT: (E.INVALID_TXN_STATE, E.NONE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}
NEW_RETRIES = {
    S.EMPTY: (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.ONGOING: (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}


def end_of(state: S, epoch: int, *, commit: bool, version: int) -> E:
    desk = at(4, state=state, version=version, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(epoch), commit, version))
    if desk.appends:
        desk.written()
    result = desk.results[desk.requests]
    assert isinstance(result, e.EndResult)
    return result.error


@pytest.mark.parametrize("state", OLD_ENDS)
def test_ends_in_every_state(state: S) -> None:
    def both(epoch: int, version: int) -> tuple[E, E]:
        return (
            end_of(state, epoch, commit=True, version=version),
            end_of(state, epoch, commit=False, version=version),
        )

    assert both(4, 0) == OLD_ENDS[state]
    assert both(4, NEW) == NEW_ENDS[state]
    assert both(3, NEW) == NEW_RETRIES[state]


def test_with_version_2_every_end_begins_an_epoch_that_the_markers_carry() -> None:
    """Hazard 29: a delayed EndTxn must not end the next transaction."""
    desk = TransactionDesk()
    desk.init()
    desk.add(100, 0, A, version=NEW)
    first = desk.end(100, 0, commit=True, version=NEW)
    assert (first.producer_id, first.producer_epoch) == (100, 1)
    assert desk.all_sent[-1].producer_epoch == 1
    desk.add(100, 1, A, version=NEW)
    late = desk.end(100, 0, commit=True, version=NEW)
    assert late.error is E.PRODUCER_FENCED
    assert desk.state() is S.ONGOING


def test_a_retry_is_not_called_fenced_while_completion_is_written() -> None:
    desk = at(4, state=S.ONGOING, version=NEW, is_prompt=False)
    retry = e.EndTxn(0, ProducerId(7), ProducerEpoch(4), committed=True, client_version=NEW)
    desk.ask("tx", retry)
    desk.written()
    desk.marked()
    assert desk.appends, "completion is under way"
    assert desk.ask("tx", retry) == e.EndResult(E.CONCURRENT_TRANSACTIONS)
    desk.written()
    assert desk.ask("tx", retry) == e.EndResult(E.NONE, ProducerId(7), ProducerEpoch(5))


def test_before_that_the_epoch_stays() -> None:
    desk = TransactionDesk()
    desk.init()
    desk.add(100, 0, A)
    ended = desk.end(100, 0, commit=True)
    assert (ended.producer_id, ended.producer_epoch) == (100, 0)
    assert desk.all_sent[-1].producer_epoch == 0


def test_the_end_that_uses_up_the_epochs_exchanges_the_id_and_may_be_repeated() -> None:
    desk = at(32766, state=S.ONGOING, version=NEW)
    ended = desk.end(7, 32766, commit=True, version=NEW)
    assert (ended.error, ended.producer_id, ended.producer_epoch) == (E.NONE, 100, 0)
    marker = desk.all_sent[-1]
    assert (marker.producer_id, marker.producer_epoch) == (7, 32767)
    assert desk.value().producer_id == 100
    assert desk.end(7, 32766, commit=True, version=NEW) == ended


def test_such_an_end_waits_for_an_id() -> None:
    desk = at(32766, state=S.ONGOING, version=NEW)
    desk.ids_are_there = False
    assert desk.end(7, 32766, commit=True, version=NEW).error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.state() is S.ONGOING


# --- writes ----------------------------------------------------------------------------


def test_nothing_is_answered_or_marked_before_the_record_is_replicated() -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    assert desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True)) is None
    assert desk.state() is S.ONGOING
    assert not desk.sent
    desk.written()
    assert desk.results[1] == e.EndResult(E.NONE, ProducerId(7), ProducerEpoch(4))
    assert [each.partitions for each in desk.sent] == [(A,)]
    assert desk.state() is S.PREPARE_COMMIT


def test_one_change_at_a_time() -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True))
    assert desk.add(7, 4, B) is E.CONCURRENT_TRANSACTIONS
    assert desk.init().error is E.CONCURRENT_TRANSACTIONS
    assert desk.end(7, 4, commit=True).error is E.CONCURRENT_TRANSACTIONS
    assert desk.end(7, 4, commit=False, version=NEW).error is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_write_changes_nothing(error: E, told: E) -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True, NEW))
    desk.written(error)
    assert desk.results[1] == e.EndResult(told)
    assert (desk.state(), desk.value().producer_epoch) == (S.ONGOING, 4)
    assert not desk.sent


def test_a_new_id_whose_record_was_not_written_is_not_remembered() -> None:
    desk = TransactionDesk(is_prompt=False)
    desk.ask("tx", e.InitProducerId(0, 1))
    desk.written(E.NOT_ENOUGH_REPLICAS)
    assert desk.results[1] == e.InitResult(E.COORDINATOR_NOT_AVAILABLE)
    assert len(desk.shard) == 0


def test_a_slow_write_is_answered_but_stays_under_way() -> None:
    """Its record may be replicated after all: nothing else is begun before that is known."""
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True))
    desk.carry_out(desk.shard.append_delayed(desk.now_ms, "tx", desk.appends[0].write_id))
    assert desk.results[1] == e.EndResult(E.COORDINATOR_NOT_AVAILABLE)
    assert desk.end(7, 4, commit=False).error is E.CONCURRENT_TRANSACTIONS
    desk.written()
    assert desk.state() is S.PREPARE_COMMIT
    assert desk.sent


# --- a coordinator that may have been replaced -------------------------------------------


@pytest.mark.parametrize("version", [0, NEW])
@pytest.mark.parametrize("is_pending", [True, False], ids=["being written", "prepared"])
def test_whoever_would_ask_again_and_again_is_sent_to_look_for_another(
    is_pending: bool, version: int
) -> None:
    desk = at(4, state=S.ONGOING, version=version, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True, version))
    if not is_pending:
        desk.written()
    epoch = desk.value().producer_epoch
    for may_be_replaced, told in ((True, E.COORDINATOR_NOT_AVAILABLE), (False, BUSY)):
        desk.shard.may_be_replaced = may_be_replaced
        assert desk.init().error is told
        assert desk.add(7, epoch, A, version=version) is told
        assert desk.end(7, 4, commit=True, version=version).error is told


@pytest.mark.parametrize("version", [0, NEW])
def test_no_producer_is_called_fenced_that_may_have_begun_elsewhere(version: int) -> None:
    desk = at(4, state=S.ONGOING, version=version)
    desk.shard.may_be_replaced = True
    assert desk.add(7, 5, B, version=version) is E.COORDINATOR_NOT_AVAILABLE
    assert desk.add(8, 4, B, version=version) is E.COORDINATOR_NOT_AVAILABLE
    assert desk.add(7, 4, A, name="unknown") is E.COORDINATOR_NOT_AVAILABLE
    assert desk.end(7, 5, commit=True, version=version).error is E.COORDINATOR_NOT_AVAILABLE
    assert desk.init(producer_id=7, epoch=5).error is E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("commit", [True, False])
def test_no_transaction_is_called_ended_that_may_be_another_one(commit: bool) -> None:
    """Before KIP-890 the next transaction has the same epoch: this may be its end, not a retry."""
    desk = at(4, state=S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert desk.end(7, 4, commit=commit).error is E.NONE
    desk.shard.may_be_replaced = True
    assert desk.end(7, 4, commit=commit).error is E.COORDINATOR_NOT_AVAILABLE
    assert desk.end(7, 4, commit=not commit).error is E.COORDINATOR_NOT_AVAILABLE


def test_what_it_says_of_partitions_may_be_old_but_not_that_they_belong_to_a_transaction() -> None:
    desk = at(4, state=S.ONGOING)
    desk.shard.may_be_replaced = True
    assert desk.verify(7, 4, A).errors == (E.NONE,)
    for places in ((B,), (A, B)):
        assert desk.verify(7, 4, *places) == e.PartitionsResult(E.COORDINATOR_NOT_AVAILABLE)
    assert desk.add(7, 4, A) is E.COORDINATOR_NOT_AVAILABLE, "it may be in the transaction before"


def test_what_is_replicated_counts_whoever_may_have_been_elected() -> None:
    """With the controllers gone, and the replicas not, transactions go on."""
    desk = TransactionDesk()
    desk.shard.may_be_replaced = True
    assert desk.init().error is E.NONE
    assert desk.add(100, 0, A) is E.NONE
    assert desk.end(100, 0, commit=True).error is E.NONE
    assert desk.state() is S.COMPLETE_COMMIT


def test_what_is_wrong_with_a_request_is_wrong_everywhere() -> None:
    desk = TransactionDesk()
    desk.shard.may_be_replaced = True
    assert desk.init(timeout_ms=0).error is E.INVALID_TRANSACTION_TIMEOUT
    assert desk.init("").error is E.INVALID_REQUEST


# --- markers ---------------------------------------------------------------------------


def ending() -> TransactionDesk:
    """A commit on two partitions, on record; its markers are on the way."""
    desk = TransactionDesk(is_prompt=False)
    desk.ask("tx", e.InitProducerId(0, 60_000))
    desk.written()
    desk.ask("tx", e.AddPartitions(0, ProducerId(100), ProducerEpoch(0), (A, B)))
    desk.written()
    desk.ask("tx", e.EndTxn(0, ProducerId(100), ProducerEpoch(0), True))
    desk.written()
    return desk


def test_complete_is_written_when_every_partition_has_its_marker() -> None:
    desk = ending()
    desk.marked(only=[A])
    assert not desk.appends
    desk.marked()
    assert [record.value.state for record in desk.appends[0].records if record.value] == [
        S.COMPLETE_COMMIT
    ]
    desk.written()
    assert (desk.state(), desk.value().partitions) == (S.COMPLETE_COMMIT, ())


RETRIED = [
    E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.REQUEST_TIMED_OUT, E.KAFKA_STORAGE_ERROR,
    E.NETWORK_EXCEPTION, E.LEADER_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS,
    E.UNKNOWN_SERVER_ERROR,
]  # fmt: skip


@pytest.mark.parametrize("error", RETRIED)
def test_a_marker_that_was_not_written_is_sent_again_alone(error: E) -> None:
    desk = ending()
    desk.marked(error, only=[A])
    desk.marked()
    assert not desk.sent
    desk.pass_time(TransactionSettings().marker_retry_ms)
    assert [each.partitions for each in desk.sent] == [(A,)]
    desk.marked()
    desk.written()
    assert desk.state() is S.COMPLETE_COMMIT


def test_a_partition_that_moved_on_to_a_later_epoch_needs_no_marker() -> None:
    """Hazard 30: the marker was there already."""
    desk = ending()
    desk.marked(E.INVALID_PRODUCER_EPOCH)
    desk.written()
    assert desk.state() is S.COMPLETE_COMMIT


def test_a_coordinator_that_was_replaced_stops() -> None:
    desk = ending()
    desk.marked(E.TRANSACTION_COORDINATOR_FENCED)
    desk.pass_time(10**9)
    assert not desk.sent and not desk.appends
    assert desk.state() is S.PREPARE_COMMIT


def test_answers_about_another_transaction_do_not_count() -> None:
    desk = ending()
    stale = e.MarkersAnswered(ProducerId(100), ProducerEpoch(9), ((A, E.NONE), (B, E.NONE)))
    desk.carry_out(desk.shard.markers_answered(desk.now_ms, "tx", stale))
    assert not desk.appends


def test_completion_that_could_not_be_written_is_tried_again() -> None:
    desk = ending()
    desk.marked()
    desk.written(E.NOT_ENOUGH_REPLICAS)
    assert desk.state() is S.PREPARE_COMMIT
    desk.pass_time(100)
    assert not desk.sent, "the partitions have their markers"
    desk.written()
    assert desk.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_coordinator_sends_the_markers_of_what_was_decided(committed: bool) -> None:
    desk = ending() if committed else at(4, state=S.PREPARE_ABORT, is_prompt=False)
    desk.fail_over()
    desk.pass_time(0)
    sent = desk.sent[0]
    assert sent.committed is committed
    assert sent.coordinator_epoch == desk.shard.coordinator_epoch
    desk.marked()
    desk.written()
    assert desk.state() is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)


def test_what_was_not_decided_is_still_open_there() -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True))
    desk.fail_over()
    assert desk.state() is S.ONGOING
    assert desk.verify(7, 4, A).errors == (E.NONE,)


# --- time ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, NEW])
def test_an_overdue_transaction_is_aborted_under_the_next_epoch(version: int) -> None:
    """Hazards 28 and 31: it ends by itself, and its producer is fenced."""
    desk = TransactionDesk()
    desk.init(timeout_ms=5_000)
    desk.add(100, 0, A, version=version)
    desk.pass_time(5_000)
    assert desk.state() is S.ONGOING
    desk.pass_time(1)
    assert (desk.state(), desk.value().producer_epoch) == (S.COMPLETE_ABORT, 1)
    assert not desk.all_sent[-1].committed
    assert desk.add(100, 0, A, version=version) is E.PRODUCER_FENCED
    assert desk.end(100, 0, commit=True, version=0).error is E.PRODUCER_FENCED


def test_a_commit_that_comes_before_the_sweep_wins() -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True))
    desk.pass_time(10**6)
    assert len(desk.appends) == 1
    desk.written()
    assert desk.state() is S.PREPARE_COMMIT


def test_an_abort_that_could_not_be_written_is_tried_again_with_the_same_epoch() -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.pass_time(60_001)
    desk.written(E.NOT_ENOUGH_REPLICAS)
    assert not desk.appends
    desk.pass_time(10_000)
    desk.written()
    assert (desk.state(), desk.value().producer_epoch) == (S.PREPARE_ABORT, 5)


def test_an_overdue_transaction_is_aborted_after_a_failover_too() -> None:
    desk = at(4, state=S.ONGOING)
    desk.fail_over()
    desk.pass_time(61_000)
    assert desk.state() is S.COMPLETE_ABORT


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_unused_id_is_forgotten_and_starts_over(state: S) -> None:
    desk = at(4, state=state)
    week_ms = TransactionSettings().id_expiration_ms
    desk.pass_time(week_ms - 1)
    assert len(desk.shard) == 1
    desk.pass_time(1)
    assert len(desk.shard) == 0
    assert desk.log[-1] == TransactionRecord("tx", None)
    assert desk.add(7, 4, A) is E.INVALID_PRODUCER_ID_MAPPING
    assert desk.init() == e.InitResult(E.NONE, ProducerId(100), ProducerEpoch(0))


def test_an_id_is_kept_when_its_tombstone_cannot_be_written() -> None:
    desk = at(4, is_prompt=False)
    desk.pass_time(TransactionSettings().id_expiration_ms)
    assert desk.init().error is E.CONCURRENT_TRANSACTIONS
    desk.written(E.NOT_ENOUGH_REPLICAS)
    assert desk.state() is S.EMPTY
    desk.pass_time(3_600_000)
    desk.written()
    assert len(desk.shard) == 0


# --- the shard -------------------------------------------------------------------------


def test_whoever_waits_when_leadership_is_lost_is_sent_away() -> None:
    desk = at(4, state=S.ONGOING, is_prompt=False)
    desk.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(4), True))
    desk.carry_out(desk.shard.unload(desk.now_ms))
    assert desk.results[1] == e.EndResult(E.NOT_COORDINATOR)
    assert len(desk.shard) == 0
    assert desk.shard.next_deadline_ms() is None


def test_deadlines_of_the_past_do_not_pile_up() -> None:
    desk = TransactionDesk()
    desk.init()
    for _ in range(200):
        desk.add(100, 0, A)
        desk.end(100, 0, commit=True)
    assert len(desk.shard._queue) < 100


def test_ids_are_described_and_listed() -> None:
    desk = TransactionDesk()
    desk.init("one")
    desk.init("two")
    desk.add(101, 0, A, name="two")
    desk.pass_time(500)
    assert desk.shard.describe("") is E.INVALID_REQUEST
    assert desk.shard.describe("three") is E.TRANSACTIONAL_ID_NOT_FOUND
    assert desk.value("two").places() == {A}

    def names(**filters: object) -> list[str]:
        found = desk.shard.select(desk.now_ms, **filters)  # type: ignore[arg-type]
        return [each.transactional_id for each in found]

    assert names() == ["one", "two"]
    assert names(states={S.ONGOING}) == ["two"]
    assert names(producer_ids={100}) == ["one"]
    assert names(states={S.ONGOING}, longer_than_ms=499) == ["two"]
    assert names(states={S.ONGOING}, longer_than_ms=500) == []


def test_old_clusters_get_old_records() -> None:
    desk = TransactionDesk()
    desk.shard.record_version = 0
    desk.init()
    assert desk.log[0].version == 0
