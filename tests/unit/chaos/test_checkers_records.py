"""Each anomaly of single records is found where it was planted, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chaos_scripts import COMPACTED, FAILED, Script

from tidelog.chaos.checkers import Anomaly, Kind, check_history
from tidelog.chaos.history import Verb


def found(script: Script, *, is_whole: bool = True) -> list[Kind]:
    return [anomaly.kind for anomaly in check_history(script.history(is_whole=is_whole))]


def only(script: Script) -> Anomaly:
    (anomaly,) = check_history(script.history())
    return anomaly


def test_a_run_in_which_all_went_well_is_clean() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("b", 0, 1)
    script.poll("reader", (0, "a", 0), (1, "b", 0))
    script.append("a", 1, 2)
    script.poll("reader", (2, "a", 1))
    script.read_all((0, "a", 0), (1, "b", 0), (2, "a", 1), end=3)
    assert found(script) == []


def test_what_has_no_answer_may_be_there_or_not() -> None:
    script = Script()
    script.append("a", 0)
    script.append("a", 1)
    script.append("a", 2, 1)
    script.append("a", 3, outcome=FAILED)
    script.read_all((0, "a", 1), (1, "a", 2), end=2)
    assert found(script) == []


# --- lost ------------------------------------------------------------------------------


def test_an_acknowledged_write_that_is_not_there_is_lost() -> None:
    script = Script()
    script.append("a", 0, 0)
    lost = script.append("a", 1, 1)
    script.append("a", 2, 2)
    read = script.read_all((0, "a", 0), (2, "a", 2), end=3)
    anomaly = only(script)
    assert anomaly.kind is Kind.LOST_WRITE
    assert anomaly.operations == (lost, read)
    assert "a#1 of events-0 was acknowledged at offset 1 to producer" in anomaly.text


def test_a_tail_that_was_cut_off_is_lost() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("a", 1, 1)
    script.read_all((0, "a", 0), end=1)
    assert found(script) == [Kind.LOST_WRITE]


def test_a_partition_that_is_empty_at_the_end_has_lost_all() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("b", 0, 1)
    script.read_all(end=0)
    assert found(script) == [Kind.LOST_WRITE] * 2


def test_what_was_seen_on_the_way_can_be_lost_later() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.poll("reader", (0, "a", 0))
    script.read_all(end=0)
    assert found(script) == [Kind.LOST_WRITE]


def test_a_second_full_read_does_not_count_what_the_first_one_found() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.read_all((0, "a", 0), end=1)
    script.read_all(end=0)
    assert found(script) == [Kind.LOST_WRITE]


def test_a_write_is_not_lost_if_it_came_after_the_read() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.read_all((0, "a", 0), end=1)
    script.append("a", 1, 1)
    assert found(script) == []


def test_nothing_is_lost_where_nobody_has_read_to_the_end() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("a", 1, 1)
    script.poll("reader", (0, "a", 0))
    assert found(script) == []


def test_a_lost_tombstone_is_found_by_its_offset() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("a", None, 1)
    script.read_all((0, "a", 0), end=2)
    assert found(script) == [Kind.LOST_WRITE]
    assert "the tombstone of a" in only(script).text


# --- of compacted topics ---------------------------------------------------------------


def test_compaction_may_remove_what_has_a_newer_one() -> None:
    script = Script()
    script.append("a", 0, 0, topic=COMPACTED)
    script.append("a", 1, 1, topic=COMPACTED)
    script.append("b", 0, 2, topic=COMPACTED)
    script.append("b", None, 3, topic=COMPACTED)
    script.append("c", 0, 4, topic=COMPACTED)
    script.append("c", 1, topic=COMPACTED)
    script.read_all((1, "a", 1), end=6, topic=COMPACTED)
    assert found(script) == []


def test_the_newest_value_of_a_key_must_be_there() -> None:
    script = Script()
    script.append("a", 0, 0, topic=COMPACTED)
    script.append("a", 1, 1, topic=COMPACTED)
    script.append("b", 0, 2, topic=COMPACTED)
    script.read_all((2, "b", 0), end=3, topic=COMPACTED)
    assert found(script) == [Kind.LOST_WRITE]
    assert "a#1" in only(script).text


@pytest.mark.parametrize("newer", [1, None])
def test_an_old_value_that_comes_back_is_resurrected(newer: int | None) -> None:
    script = Script()
    old = script.append("a", 0, 0, topic=COMPACTED)
    new = script.append("a", newer, 1, topic=COMPACTED)
    read = script.read_all((0, "a", 0), end=2, topic=COMPACTED)
    anomalies = check_history(script.history())
    (resurrected,) = [one for one in anomalies if one.kind is Kind.RESURRECTED_KEY]
    assert resurrected.operations == (new, read)
    assert old.offset == resurrected.offset
    # A value that was replaced is lost as well; a tombstone may be gone.
    assert len(anomalies) == (1 if newer is None else 2)


def test_a_key_that_was_read_as_deleted_does_not_come_back() -> None:
    script = Script()
    script.append("a", 0, 0, topic=COMPACTED)
    script.append("a", None, topic=COMPACTED)
    script.read_all((1, "a", None), end=2, topic=COMPACTED, client="reader")
    script.read_all((0, "a", 0), end=2, topic=COMPACTED)
    assert found(script) == [Kind.RESURRECTED_KEY]


def test_a_tombstone_that_is_written_while_a_read_goes_on_may_be_missed() -> None:
    script = Script()
    script.append("a", 0, 0, topic=COMPACTED)
    script.poll("reader", (0, "a", 0), topic=COMPACTED)
    script.append("a", None, 1, topic=COMPACTED)
    read = script.note("reader", Verb.READ_TO_END, topic=COMPACTED, offset=1)
    script.operations[-1] = replace(read, invoked_ms=script.operations[1].invoked_ms)
    assert found(script) == []


def test_a_table_that_is_read_again_and_again_is_clean() -> None:
    script = Script()
    script.append("a", 0, 0, topic=COMPACTED)
    script.read_all((0, "a", 0), end=1, topic=COMPACTED, client="reader")
    script.append("a", 1, 1, topic=COMPACTED)
    script.read_all((0, "a", 0), (1, "a", 1), end=2, topic=COMPACTED, client="reader")
    script.append("a", None, 2, topic=COMPACTED)
    script.read_all((1, "a", 1), (2, "a", None), end=3, topic=COMPACTED, client="reader")
    script.append("a", 2, 3, topic=COMPACTED)
    script.read_all((3, "a", 2), end=4, topic=COMPACTED, client="reader")
    assert found(script) == []


# --- duplicates and order --------------------------------------------------------------


def test_a_record_at_two_offsets_is_a_duplicate() -> None:
    script = Script()
    write = script.append("a", 0, 0)
    script.append("a", 1, 1)
    script.read_all((0, "a", 0), (1, "a", 1), (2, "a", 0), end=3)
    anomaly = only(script)
    assert anomaly.kind is Kind.DUPLICATE
    assert anomaly.text == "a#0 is there 2 times: events-0 at 0, events-0 at 2."
    assert anomaly.operations[0] == write


def test_a_record_in_two_partitions_is_a_duplicate() -> None:
    script = Script()
    script.append("a", 0)
    script.read_all((0, "a", 0), end=1)
    script.read_all((0, "a", 0), end=1, partition=1)
    assert found(script) == [Kind.DUPLICATE]


def test_two_readers_of_one_record_are_no_duplicate() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.poll("one", (0, "a", 0))
    script.poll("two", (0, "a", 0))
    script.read_all((0, "a", 0), end=1)
    assert found(script) == []


def test_the_records_of_a_key_lie_in_the_order_of_their_writes() -> None:
    script = Script()
    first = script.append("a", 0)
    second = script.append("a", 1)
    script.append("b", 0)
    read = script.read_all((0, "a", 1), (1, "b", 0), (2, "a", 0), end=3)
    anomaly = only(script)
    assert anomaly.kind is Kind.REORDER
    assert anomaly.operations[:2] == (first, second)
    assert anomaly.offset == 2
    assert read.number not in [one.number for one in anomaly.operations]


# --- offsets ---------------------------------------------------------------------------


def test_two_records_at_one_offset_are_inconsistent() -> None:
    script = Script()
    script.append("a", 0)
    script.append("b", 0)
    one = script.poll("one", (0, "a", 0))
    two = script.poll("two", (0, "b", 0))
    anomaly = only(script)
    assert anomaly.kind is Kind.INCONSISTENT_OFFSET
    assert anomaly.operations == (one, two)


def test_another_record_where_one_was_acknowledged_is_inconsistent() -> None:
    script = Script()
    write = script.append("a", 0, 0)
    script.append("b", 0)
    poll = script.poll("reader", (0, "b", 0))
    anomaly = only(script)
    assert anomaly.kind is Kind.INCONSISTENT_OFFSET
    assert anomaly.operations == (write, poll)


def test_an_offset_that_was_acknowledged_twice_is_inconsistent() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("b", 0, 0)
    assert found(script) == [Kind.INCONSISTENT_OFFSET]


def test_a_record_that_lies_elsewhere_than_acknowledged_is_inconsistent() -> None:
    script = Script()
    script.append("a", 0, 5)
    script.read_all((7, "a", 0), end=8)
    assert found(script) == [Kind.INCONSISTENT_OFFSET]
    assert "was acknowledged at offset 5 of events-0, but final-reader got it at 7" in (
        only(script).text
    )


# --- from nowhere ----------------------------------------------------------------------


def test_a_record_that_nobody_wrote_is_invented() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.read_all((0, "a", 0), (1, "a", 1), end=2)
    assert found(script) == [Kind.INVENTED_RECORD]


def test_a_record_whose_write_failed_must_not_be_there() -> None:
    script = Script()
    script.append("a", 0, outcome=FAILED)
    script.read_all((0, "a", 0), end=1)
    assert found(script) == [Kind.INVENTED_RECORD]
    assert found(script, is_whole=False) == [Kind.INVENTED_RECORD]


def test_of_a_run_that_was_cut_off_writes_may_be_missing() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.poll("reader", (0, "a", 0), (1, "a", 1))
    assert found(script, is_whole=False) == []


def test_a_divergence_that_the_run_found_is_an_anomaly() -> None:
    (anomaly,) = check_history(Script().history(divergences=["events-0: differs at 5"]))
    assert anomaly == Anomaly(Kind.DIVERGENCE, "events-0: differs at 5")
