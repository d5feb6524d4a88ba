"""Ends of records by guessing runs of one size, against a walk from length to length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.wire.errors import InvalidRecord
from tidelog.wire.record_ends import record_ends
from tidelog.wire.varints import write_varint

# Lengths whose own length differs, and contents that look like lengths themselves.
RUNS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 7, 63, 64, 65, 100, 8191, 8192]),
        st.integers(1, 8) | st.sampled_from([16, 63, 64, 65, 200, 600, 3000]),
        st.sampled_from([b"\x00", b"\x02", b"\x7e", b"\xc8", b"\xff"]),
    ),
    min_size=1,
    max_size=6,
)


def sized(length: int, filler: bytes) -> bytes:
    record = bytearray()
    write_varint(record, length)
    return bytes(record) + filler * length


@settings(derandomize=True, deadline=None, max_examples=150)
@given(RUNS)
def test_runs_of_one_size_and_changes(runs: list[tuple[int, int, bytes]]) -> None:
    records = [sized(length, filler) for length, count, filler in runs for _ in range(count)]
    section = np.frombuffer(b"".join(records), np.uint8)
    expected = np.cumsum([len(record) for record in records])
    assert record_ends(section, len(records)).tolist() == expected.tolist()


@pytest.mark.parametrize("least", [50, 900])  # copied to be walked, and walked in place
def test_sizes_that_never_stay(least: int) -> None:
    records = [sized(least + index * 7 % 31, b"x") for index in range(10_000)]
    section = np.frombuffer(b"".join(records), np.uint8)
    ends = record_ends(section, len(records))
    assert ends.tolist() == np.cumsum([len(record) for record in records]).tolist()


@pytest.mark.parametrize("length", [20, 900])
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_a_count_that_does_not_fit_is_refused(count: int, length: int) -> None:
    section = np.frombuffer(sized(length, b"x") * count, np.uint8)
    with pytest.raises(InvalidRecord, match=f"record {count} of {count + 1} starts at byte"):
        record_ends(section, count + 1)
    for cut in (section[:-1], section[:-length]):
        with pytest.raises(InvalidRecord):
            record_ends(cut, count)
    if count > 1:
        with pytest.raises(InvalidRecord, match="records declared take"):
            record_ends(section, count - 1)


def test_nothing_is_nothing() -> None:
    assert record_ends(np.zeros(0, np.uint8), 0).tolist() == []
    with pytest.raises(InvalidRecord):
        record_ends(np.zeros(1, np.uint8), 0)
