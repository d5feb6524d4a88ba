"""A history that was written is read as it was; what is no history is refused with its line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidelog.chaos.history import (
    Event,
    FaultBand,
    Note,
    Operation,
    Outcome,
    PartitionState,
    Record,
    RunEnd,
    RunHeader,
    Sample,
    Verb,
)
from tidelog.chaos.history_file import CorruptHistory, HistoryWriter, read_history
from tidelog.chaos.history_lines import encode_event

HEADER = RunHeader(
    seed=7,
    command="tidelog chaos run --seed 7",
    target="local",
    workload="append",
    faults=("kill-leader", "cut"),
    duration_s=90.0,
    started_at="2026-01-01T00:00:00Z",
    environment={"python": "3.11", "größe": "3 nodes\n"},
    compacted_topics=("table",),
)
APPEND = Operation(
    number=1,
    client="producer-1",
    verb=Verb.APPEND,
    invoked_ms=1.5,
    ended_ms=2.25,
    outcome=Outcome.OK,
    topic="events",
    partition=0,
    offset=0,
    key="k–1",
    sequence=0,
)
POLL = Operation(
    number=2,
    client="consumer-1",
    verb=Verb.POLL,
    invoked_ms=3.0,
    ended_ms=None,
    outcome=Outcome.UNKNOWN,
    group="readers",
    seen=(Record("events", 0, 0, "k–1", 0), Record("events", 0, 1, "k–2", None)),
    error="timed out",
)
END_TRANSACTION = Operation(
    number=3,
    client="copier",
    verb=Verb.END_TRANSACTION,
    invoked_ms=3.0,
    ended_ms=4.0,
    outcome=Outcome.FAILED,
    transaction="copier-0-1",
    is_commit=True,
)
FAULT = FaultBand(1, "kill-leader", "node 2", (2,), 10.0, None)
HEALED = FaultBand(1, "kill-leader", "node 2", (2,), 10.0, 20.0)
FAILED_FAULT = FaultBand(2, "cut", "1 | 2", (1, 2), 30.0, None, "no rights")
SAMPLE = Sample(5.0, None, (1, 3), (PartitionState("events", 0, None, 4, (1, 2, 3), (1, 3)),))
NOTE = Note(6.0, "the disk is nearly full")
END = RunEnd(100.0, True, ("events-0: batches differ at 5",))


def write(path: Path, *events: Event) -> None:
    writer = HistoryWriter(path)
    for event in events:
        writer.note(event)
    writer.close()


def test_what_was_noted_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write(
        path,
        *(HEADER, APPEND, FAULT, POLL, SAMPLE, HEALED, NOTE, END_TRANSACTION, FAILED_FAULT, END),
    )
    history = read_history(path)
    assert history.header == HEADER
    assert history.operations == (APPEND, POLL, END_TRANSACTION)
    assert history.faults == (HEALED, FAILED_FAULT)
    assert history.samples == (SAMPLE,)
    assert history.notes == (NOTE,)
    assert history.end == END


def test_a_line_is_in_the_file_as_soon_as_it_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path)
    writer.note(HEADER)
    writer.note(APPEND)
    assert read_history(path).operations == (APPEND,)
    writer.close()


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path)
    writer.note(HEADER)

    def note_many() -> None:
        for _ in range(200):
            writer.note(POLL)

    threads = [threading.Thread(target=note_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert read_history(path).operations == (POLL,) * 800


@pytest.mark.parametrize("kept", range(1, len(encode_event(POLL).encode()), 7))
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "history.jsonl"
    write(path, HEADER, APPEND)
    with path.open("ab") as file:
        file.write(encode_event(POLL).encode()[:kept])
    history = read_history(path)
    assert history.operations == (APPEND,)
    assert history.end is None


def test_a_last_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write(path, HEADER)
    with path.open("a", encoding="utf-8") as file:
        file.write(encode_event(APPEND))
    assert read_history(path).operations == (APPEND,)


OPERATION = '{"kind":"operation","number":1,"client":"a","verb":"append","invoked_ms":1'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "it is not JSON"),
        ("}{", "it is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"kind":"note","at_ms":' + "9" * 5000 + ',"text":""}', "not an event"),
        ("[1]", "not a JSON object"),
        ('{"kind":"poll"}', "its kind is 'poll'; it must be one of run, operation, fault"),
        ('{"kind":["note"]}', "its kind is ['note']"),
        ('{"kind":"note","at_ms":1}', "it has no text"),
        ('{"kind":"note","at_ms":NaN,"text":""}', "NaN is no number of a history"),
        ('{"kind":"note","at_ms":1e999,"text":""}', "at_ms is no finite number"),
        ('{"kind":"note","at_ms":true,"text":""}', "its at_ms is true, not a number"),
        ('{"kind":"note","at_ms":1,"text":5}', "its text is 5, not a text"),
        ('{"kind":"note","at_ms":1,"text":"","by":"me"}', "'by' is no field of it"),
        (OPERATION + ',"ended_ms":2,"outcome":"good"}', 'its outcome is "good"; it must be one of'),
        (OPERATION + ',"ended_ms":2,"outcome":[]}', "its outcome is []; it must be one of"),
        (OPERATION + ',"ended_ms":2,"outcome":"ok","seen":[["t",0]]}', "its seen has"),
        (OPERATION + ',"ended_ms":2,"outcome":"ok","seen":3}', "its seen is 3, not a list"),
        (OPERATION + ',"ended_ms":2,"outcome":"ok","is_commit":1}', "its is_commit is 1, neither"),
        (
            '{"kind":"sample","at_ms":1,"controller":1,"alive":[1],"partitions":[{"topic":"t"}]}',
            "its partitions are not right: it has no partition, leader",
        ),
        (encode_event(HEADER), "a second run begins here"),
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{encode_event(HEADER)}\n{line}\n{encode_event(APPEND)}\n", encoding="utf-8")
    with pytest.raises(CorruptHistory) as raised:
        read_history(path)
    assert f"{path}, line 2: " in str(raised.value)
    assert why in str(raised.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(encode_event(HEADER).encode() + b"\n\xff\xfe\n")
    with pytest.raises(CorruptHistory, match="line 2: it is not UTF-8"):
        read_history(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        (encode_event(APPEND) + "\n", "line 1: a history begins with what ran"),
        ('{"kind":"run","seed"', "line 1: it is not JSON"),
    ],
)
def test_a_history_begins_with_what_ran(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CorruptHistory, match=why):
        read_history(path)
