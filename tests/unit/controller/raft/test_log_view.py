"""The view of the log against a dumb list of (offset, term) that is searched from the front."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raft_transcript import entries, voters

from tidelog.controller.raft import BrokenInvariant
from tidelog.controller.raft.log_view import LogView
from tidelog.controller.raft.model import Entry, RestoredLog, SnapshotId, Term
from tidelog.kernel.ids import Offset


@dataclass
class DumbLog:
    """All entries ever, and where the log starts."""

    start: int = 0
    all: list[Entry] = field(default_factory=list)

    def term_before(self, end: int) -> int | None:
        if end == 0 and self.start == 0:
            return 0
        below = [e.term for e in self.all if e.base_offset < end <= e.end_offset]
        return below[0] if below and end >= self.start else None

    def start_of_term(self, term: int) -> int:
        offsets = [e.base_offset for e in self.all if e.term == term]
        return max(self.start, min(offsets, default=self.start))

    def end_of_term(self, term: int) -> int | None:
        ends = [e.end_offset for e in self.all if e.term == term]
        return max(ends) if ends and max(ends) >= self.start else None


# Append some records of a term that is so much higher, cut a part off, or compact a part away.
operations = st.lists(
    st.tuples(st.sampled_from(["append", "cut", "compact"]), st.integers(0, 4), st.integers(0, 2)),
    max_size=30,
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(operations)
def test_it_answers_like_a_list(script: list[tuple[str, int, int]]) -> None:
    log, dumb = LogView(), DumbLog()
    term = 1
    for operation, number, rise in script:
        boundaries = [log.start, *(e.end_offset for e in dumb.all if e.end_offset > log.start)]
        where = boundaries[-1 - min(number, len(boundaries) - 1)]
        if operation == "append":
            term += rise
            new = Entry(log.end, Offset(log.end + number), Term(term), data=bytes(number))
            log.append([new])
            dumb.all.append(new)
        elif operation == "cut":
            log.truncate(where)
            dumb.all = [e for e in dumb.all if e.end_offset <= where]
            term = max(term, log.last_term)
        elif where > log.start:
            log.compact(SnapshotId(where, Term(dumb.term_before(where) or 0)))
            dumb.start = where
        agree(log, dumb)


def agree(log: LogView, dumb: DumbLog) -> None:
    kept = [e for e in dumb.all if e.base_offset >= dumb.start]
    assert log.start == dumb.start
    assert list(log.entries_between(log.start, log.end)) == kept
    assert log.end == (dumb.all[-1].end_offset if dumb.all else 0)
    assert log.last_term == (dumb.all[-1].term if dumb.all else 0)
    for offset in range(log.end + 3):
        assert log.term_before(Offset(offset)) == dumb.term_before(offset)
    for term in {e.term for e in dumb.all}:
        assert log.end_of_term(term) == dumb.end_of_term(term)
    for term in {e.term for e in kept}:
        first = min(e.base_offset for e in kept if e.term == term)
        assert log.start_of_term(term) == first
    for entry in kept:
        assert log.bytes_from(entry.base_offset) == sum(
            e.size_bytes for e in kept if e.base_offset >= entry.base_offset
        )


def test_entries_are_sent_whole_and_at_least_one() -> None:
    log = LogView()
    log.append(entries("data@1(aaaa);data@1x3(bb);data@1(c)", 0))
    sizes = [e.size_bytes for e in log.entries_between(Offset(0), Offset(5))]
    assert sizes == [65, 63, 62]
    for limit, count in ((0, 1), (65, 1), (127, 1), (128, 2), (190, 3), (999, 3)):
        assert len(log.entries_from(Offset(0), limit)) == count
    assert len(log.entries_from(Offset(4), 62)) == 1
    assert log.entries_from(Offset(5), 99) == ()
    assert log.boundary_at_or_below(Offset(3)) == 1
    assert not log.is_boundary(Offset(3))
    assert log.is_boundary(Offset(5))


def test_voters_are_those_of_the_newest_entry_and_roll_back() -> None:
    log = LogView(SnapshotId(Offset(4), Term(1)), voters("1A,2A"))
    assert (log.voters, log.voters_end) == (voters("1A,2A"), 4)
    log.append(entries("voters@1(1A,2A,3A);data@1;voters@2(2A,3A)", 4))
    assert (log.voters, log.voters_end) == (voters("2A,3A"), 7)
    assert log.previous_voters == voters("1A,2A,3A")
    assert log.voters_at(Offset(6)) == voters("1A,2A,3A")
    assert log.voters_at(Offset(4)) == voters("1A,2A")
    log.truncate(Offset(6))
    assert (log.voters, log.voters_end) == (voters("1A,2A,3A"), 5)
    log.compact(SnapshotId(Offset(5), Term(1)))
    assert (log.voters, log.previous_voters) == (voters("1A,2A,3A"), voters("1A,2A,3A"))


@pytest.mark.parametrize("text", ["data@1;data@0", "data@1x0"])
def test_what_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(BrokenInvariant):
        LogView().append(entries(text, 0))
    with pytest.raises(BrokenInvariant, match="does not fit at 0"):
        LogView().append(entries("data@1", 3))


def test_a_snapshot_beyond_the_log_that_was_found() -> None:
    snapshot = SnapshotId(Offset(9), Term(2))
    found = RestoredLog(snapshot, voters("1A"), entries("voters@1(1A);data@1", 0))
    log = LogView.restore(found)
    assert (log.start, log.end, log.last_term) == (9, 9, 2)
