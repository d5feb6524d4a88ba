"""Each anomaly of transactions, consumers and groups is found where it was planted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from chaos_scripts import COMPACTED, FAILED, OK, UNKNOWN, Script

from tidelog.chaos.checkers import Anomaly, Kind, check_history
from tidelog.chaos.faults.table import FAULTS, Family
from tidelog.chaos.history import FaultBand, Outcome, Verb


def found(script: Script, faults: Sequence[FaultBand] = ()) -> list[Kind]:
    return [anomaly.kind for anomaly in check_history(script.history(faults=faults))]


def only(script: Script) -> Anomaly:
    (anomaly,) = check_history(script.history())
    return anomaly


# --- transactions ----------------------------------------------------------------------


def test_transactions_of_every_ending_are_clean() -> None:
    script = Script()
    for name in ("committed", "aborted", "neither", "both"):
        offset = len(script.operations)
        script.append(f"{name}-1", 0, offset, transaction=name)
        script.append(f"{name}-2", 0, offset, partition=1, transaction=name)
    script.end("committed", commit=True)
    script.end("aborted", commit=False)
    script.end("neither", commit=True, outcome=UNKNOWN)
    script.end("both", commit=True, outcome=UNKNOWN)
    script.read_all((0, "committed-1", 0), (6, "both-1", 0), end=8)
    script.read_all((0, "committed-2", 0), (6, "both-2", 0), end=8, partition=1)
    assert found(script) == []


def test_what_is_copied_again_after_an_abort_is_there_once() -> None:
    script = Script()
    script.append("a", 0, 0, transaction="t1")
    script.append("a", 1, 1, transaction="t1")
    script.end("t1", commit=False)
    script.append("a", 0, 3, transaction="t2")
    script.end("t2", commit=True, outcome=UNKNOWN)
    script.append("a", 0, 5, transaction="t3")
    script.append("a", 1, 6, transaction="t3")
    script.end("t3", commit=True)
    script.read_all((5, "a", 0), (6, "a", 1), end=8)
    assert found(script) == []


@pytest.mark.parametrize(("commit", "outcome"), [(False, OK), (False, UNKNOWN), (True, FAILED)])
def test_a_record_of_an_aborted_transaction_must_not_be_read(
    commit: bool, outcome: Outcome
) -> None:
    script = Script()
    write = script.append("a", 0, 0, transaction="t")
    end = script.end("t", commit=commit, outcome=outcome)
    poll = script.poll("reader", (0, "a", 0))
    anomaly = only(script)
    assert anomaly.kind is Kind.ABORTED_READ
    assert anomaly.operations == (write, end, poll)


def test_the_aborted_copy_is_told_from_the_committed_one_by_its_offset() -> None:
    script = Script()
    script.append("a", 0, 0, transaction="t1")
    script.end("t1", commit=False)
    script.append("a", 0, 2, transaction="t2")
    script.end("t2", commit=True)
    script.read_all((0, "a", 0), (2, "a", 0), end=4)
    assert sorted(found(script), key=str) == [Kind.ABORTED_READ, Kind.DUPLICATE]


def test_an_aborted_write_without_an_answer_is_known_by_its_number() -> None:
    script = Script()
    script.append("a", 0, transaction="t")
    script.end("t", commit=False)
    script.poll("reader", (0, "a", 0))
    assert found(script) == [Kind.ABORTED_READ]


def test_an_aborted_transaction_that_shows_in_part_is_not_called_torn() -> None:
    script = Script()
    script.append("a", 0, 0, transaction="t")
    script.append("b", 0, 1, transaction="t")
    script.end("t", commit=False)
    script.read_all((0, "a", 0), end=3)
    assert found(script) == [Kind.ABORTED_READ]


def test_a_write_of_a_committed_transaction_that_is_not_there_is_lost_and_tears_it() -> None:
    script = Script()
    missing = script.append("a", 0, 0, transaction="t")
    present = script.append("b", 0, 1, transaction="t")
    script.end("t", commit=True)
    script.read_all((1, "b", 0), end=3)
    lost, torn = check_history(script.history())
    assert lost.kind is Kind.LOST_WRITE
    assert torn.kind is Kind.TORN_TRANSACTION
    assert torn.operations[:2] == (missing, present)


def test_a_transaction_of_unknown_end_is_all_or_nothing_across_partitions() -> None:
    script = Script()
    script.append("a", 0, 0, transaction="t")
    script.append("b", 0, 0, partition=1, transaction="t")
    script.end("t", commit=True, outcome=UNKNOWN)
    script.read_all((0, "a", 0), end=2)
    script.read_all(end=2, partition=1)
    assert found(script) == [Kind.TORN_TRANSACTION]
    assert only(script).text == (
        "Of transaction t (unknown) a#0 in events-0 can be read and b#0 in events-1 cannot."
    )


def test_what_a_read_did_not_pass_is_not_decided_yet() -> None:
    script = Script()
    script.append("a", 0, 0, transaction="t")
    script.append("b", 0, 0, partition=1, transaction="t")
    script.end("t", commit=True, outcome=UNKNOWN)
    script.read_all((0, "a", 0), end=2)
    script.read_all(end=0, partition=1)
    assert found(script) == []


# --- consumers -------------------------------------------------------------------------


@pytest.mark.parametrize("again", [1, 0])
def test_a_consumer_does_not_go_back_or_stand_still(again: int) -> None:
    script = Script()
    keys = ["a", "b"]
    script.append("a", 0, 0)
    script.append("b", 0, 1)
    before = script.poll("reader", (0, "a", 0), (1, "b", 0))
    after = script.poll("reader", (again, keys[again], 0))
    anomaly = only(script)
    assert anomaly.kind is Kind.NON_MONOTONIC_POLL
    assert anomaly.operations == (before, after)


def test_offsets_within_a_poll_rise_too() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("b", 0, 1)
    script.poll("reader", (1, "b", 0), (0, "a", 0))
    assert found(script) == [Kind.NON_MONOTONIC_POLL]


def test_partitions_and_clients_have_positions_of_their_own() -> None:
    script = Script()
    for partition in (0, 1):
        for offset in range(3):
            script.append(f"k{partition}", offset, offset, partition=partition)
    script.poll("reader", (1, "k0", 1), (2, "k0", 2))
    script.poll("reader", (0, "k1", 0), partition=1)
    script.poll("reader.2", (0, "k0", 0), (1, "k0", 1))
    assert found(script) == []


def test_a_record_that_a_consumer_read_past_is_unseen() -> None:
    script = Script()
    script.append("a", 0, 0)
    skipped = script.append("b", 0, 1)
    script.append("a", 1, 2)
    script.poll("reader", (0, "a", 0), (2, "a", 1))
    script.read_all((0, "a", 0), (1, "b", 0), (2, "a", 1), end=3)
    anomaly = only(script)
    assert anomaly.kind is Kind.UNSEEN
    assert anomaly.operations == (skipped,)


def test_a_group_has_seen_what_one_of_its_members_has() -> None:
    script = Script()
    for offset in range(4):
        script.append("a", offset, offset)
    script.poll("member-1", (0, "a", 0), group="g")
    script.poll("member-2", (1, "a", 1), (2, "a", 2), group="g")
    script.poll("member-1.2", (2, "a", 2), (3, "a", 3), group="g")
    assert found(script) == []


def test_a_record_that_no_member_got_is_unseen_by_the_group() -> None:
    script = Script()
    for offset in range(3):
        script.append("a", offset, offset)
    script.poll("member-1", (0, "a", 0), group="g")
    script.poll("member-2", (2, "a", 2), group="g")
    assert found(script) == [Kind.UNSEEN]
    assert "group g has read events-0 up to 2 and never got a#1" in only(script).text


def test_what_need_not_be_there_need_not_be_seen() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("b", 0)
    script.append("c", 0, 2, transaction="t")
    script.end("t", commit=False)
    script.append("d", 0, 5)
    script.poll("reader", (0, "a", 0), (5, "d", 0))
    assert found(script) == []


def test_what_was_compacted_away_need_not_be_seen() -> None:
    script = Script()
    for offset in range(3):
        script.append("a", offset, offset, topic=COMPACTED)
    script.poll("reader", (0, "a", 0), (2, "a", 2), topic=COMPACTED)
    assert found(script) == []


# --- groups ----------------------------------------------------------------------------


def test_a_groups_offset_that_goes_forward_is_clean() -> None:
    script = Script()
    script.fetch(None)
    script.commit(5)
    script.fetch(5)
    script.commit(9, outcome=UNKNOWN)
    script.fetch(5)
    script.fetch(9)
    script.commit(7, outcome=FAILED)
    script.commit(12, client="member-2")
    script.fetch(12)
    assert found(script) == []


@pytest.mark.parametrize("offset", [4, None])
def test_a_fetched_offset_behind_an_acknowledged_commit_is_stale(offset: int | None) -> None:
    script = Script()
    commit = script.commit(5)
    fetch = script.fetch(offset)
    script.fetch(offset)
    anomaly = only(script)
    assert anomaly.kind is Kind.STALE_GROUP_OFFSET
    assert anomaly.operations == (commit, fetch)


def test_a_commit_behind_an_acknowledged_one_is_stale() -> None:
    script = Script()
    script.commit(5)
    script.commit(3, client="zombie")
    assert found(script) == [Kind.STALE_GROUP_OFFSET]


def late_commit(rival: str = "member-1", fetched: int = 5) -> Script:
    """A member does not know of its commit of 5, and somebody commits 9."""
    script = Script()
    script.commit(5, outcome=UNKNOWN, client="member-1")
    script.commit(9, client=rival)
    script.fetch(fetched)
    return script


def test_a_commit_without_an_answer_may_be_served_behind_the_next_of_its_member() -> None:
    script = late_commit()
    script.commit(7, client="member-2")  # who went on from there
    script.fetch(7)
    assert found(script) == []
    script.fetch(5)
    assert found(script) == [Kind.STALE_GROUP_OFFSET]


@pytest.mark.parametrize(
    "script",
    [
        late_commit(rival="member-2"),  # it was fenced
        late_commit(rival="member-1.2"),  # so is what it did before it joined again
        late_commit(fetched=4),
    ],
)
def test_no_other_commit_may_be_late(script: Script) -> None:
    assert found(script) == [Kind.STALE_GROUP_OFFSET]


def test_a_commit_in_a_transaction_is_not_late() -> None:
    script = Script()
    script.commit(5, transaction="t1", outcome=UNKNOWN)
    script.commit(9)
    script.fetch(5)
    assert found(script) == [Kind.STALE_GROUP_OFFSET]


def test_a_fetch_that_began_before_the_commit_ended_may_miss_it() -> None:
    script = Script()
    script.commit(5)
    fetch = script.fetch(None)
    assert found(script) == [Kind.STALE_GROUP_OFFSET]
    script.operations[-1] = replace(fetch, invoked_ms=script.operations[0].invoked_ms)
    assert found(script) == []


def test_a_transactional_commit_counts_when_its_transaction_has_committed() -> None:
    script = Script()
    script.commit(5, transaction="t1")
    script.fetch(None)
    script.end("t1", commit=True)
    script.commit(9, transaction="t2")
    script.end("t2", commit=False)
    script.fetch(5)
    assert found(script) == []
    script.fetch(None)
    assert found(script) == [Kind.STALE_GROUP_OFFSET]


@pytest.mark.parametrize(
    ("fault", "invoked_ms", "is_stale"),
    [
        ("cut", 4_000.0, False),  # it may not know that it was replaced
        ("pause-leader", 4_000.0, False),
        ("some-day", 4_000.0, False),
        ("cut", 7_900.0, False),  # it may not have heard yet
        ("cut", 8_100.0, True),
        ("kill-leader", 4_000.0, True),  # whoever was replaced is dead
        ("power-loss", 4_000.0, True),
    ],
)
def test_a_coordinator_that_is_cut_off_may_not_know_the_commits_since(
    fault: str, invoked_ms: float, is_stale: bool
) -> None:
    script = Script()
    script.commit(5)
    script.at_ms = 3_000.0
    script.commit(9)
    script.at_ms = invoked_ms - 1.0
    script.fetch(5)
    bands = [FaultBand(1, fault, "", (1,), 1_000.0, 5_000.0)]
    assert found(script, bands) == ([Kind.STALE_GROUP_OFFSET] if is_stale else [])


def test_a_coordinator_that_is_cut_off_knows_the_commits_before() -> None:
    script = Script()
    commit = script.commit(5)
    script.at_ms = 3_000.0
    script.commit(9)
    fetch = script.fetch(4)
    bands = [FaultBand(1, "cut", "", (1,), 1_000.0, None)]
    (anomaly,) = check_history(script.history(faults=bands))
    assert anomaly.kind is Kind.STALE_GROUP_OFFSET
    assert anomaly.operations == (commit, fetch)


def test_an_answer_that_came_while_a_node_was_cut_off_may_be_old() -> None:
    script = Script()
    script.at_ms = 100.0
    script.commit(9)
    script.at_ms = 900.0
    script.note("watch", Verb.FETCH_OFFSET, offset=5, group="g", lasts_ms=500.0)
    assert found(script, [FaultBand(1, "cut", "", (1,), 50.0, 60.0)]) == []
    assert found(script, [FaultBand(1, "cut", "", (1,), 1_000.0, 1_100.0)]) == [
        Kind.STALE_GROUP_OFFSET
    ]


def test_the_victims_of_most_faults_may_not_know_that_they_were_replaced() -> None:
    script = Script()
    script.at_ms = 3_000.0
    script.commit(9)
    script.fetch(5)
    harmless = {
        name for name in FAULTS if not found(script, [FaultBand(1, name, "", (1,), 1_000.0, None)])
    }
    families = {FAULTS[name].family for name in harmless}
    assert families == {Family.PAUSE, Family.CUT, Family.LINK, Family.DISK, Family.CLOCK}
    assert harmless == {name for name, fault in FAULTS.items() if fault.family in families}
