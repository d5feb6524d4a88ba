"""The epoch cache: tables of Kafka's rules, and a property against the log it describes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.ids import LeaderEpoch, Offset
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochCache, EpochEntry
from tidelog.wire.batch import headers

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def test_golden_checkpoints_are_what_the_batches_say() -> None:
    checked = 0
    for file in sorted(GOLDEN.glob("segments/*/*/leader-epoch-checkpoint")):
        logs = sorted(file.parent.glob("*.log"))
        lines = file.read_text().splitlines()[2:]
        stored = EpochCache.from_lines(lines)
        assert stored.to_lines() == lines
        rebuilt = EpochCache()
        for log in logs:
            for _, header in headers(log.read_bytes()):
                rebuilt.assign(header.leader_epoch, header.base_offset)
        if file.parts[-3].startswith(("compact", "retention", "delete")):
            continue
        # A leader notes its epoch before it writes; such an entry has no batches yet.
        assert stored.to_lines()[: len(rebuilt.entries)] == rebuilt.to_lines(), file
        checked += 1
    assert checked > 30


@pytest.mark.parametrize(
    ("before", "assigned", "after"),
    [
        ([], (0, 0), [(0, 0)]),
        ([(0, 0)], (0, 5), None),
        ([(0, 0)], (0, 0), None),
        ([(0, 5)], (0, 3), [(0, 3)]),
        ([(0, 0)], (1, 5), [(0, 0), (1, 5)]),
        ([(0, 0), (1, 5)], (3, 5), [(0, 0), (3, 5)]),
        ([(0, 0), (1, 5), (2, 9)], (3, 4), [(0, 0), (3, 4)]),
        ([(0, 0), (1, 5), (2, 9)], (1, 12), [(0, 0), (1, 12)]),
        ([(4, 5)], (2, 9), [(2, 9)]),
        ([(0, 0), (4, 5)], (2, 3), [(0, 0), (2, 3)]),
    ],
)
def test_assign(
    before: list[tuple[int, int]], assigned: tuple[int, int], after: list[tuple[int, int]] | None
) -> None:
    epochs = cache(*before)
    assert epochs.assign(*assigned) is (after is not None)
    assert list(epochs.entries) == (before if after is None else after)


@pytest.mark.parametrize("bad", [(-1, 0), (0, -1)])
def test_assign_refuses_negative_numbers(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="both must be ≥ 0"):
        EpochCache().assign(*bad)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, UNDEFINED_END),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 35)),
        (5, (4, 35)),
        (6, (6, 50)),
        (7, UNDEFINED_END),
    ],
)
def test_end_offset_for(epoch: int, expected: tuple[int, int]) -> None:
    assert cache((2, 10), (4, 20), (6, 35)).end_offset_for(epoch, 50) == expected


def test_an_empty_cache_knows_nothing() -> None:
    epochs = EpochCache()
    assert epochs.end_offset_for(0, 50) == UNDEFINED_END
    assert (epochs.latest_epoch, epochs.previous_epoch, epochs.latest_entry) == (None, None, None)
    assert epochs.epoch_for_offset(0) is None
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(7)
    assert not epochs.clear()


def test_epochs_by_position() -> None:
    epochs = cache((2, 10), (4, 20), (6, 35))
    assert [epochs.epoch_for_offset(o) for o in (9, 10, 19, 20, 34, 35, 99)] == [
        None, 2, 2, 4, 4, 6, 6,
    ]  # fmt: skip
    assert (epochs.latest_epoch, epochs.previous_epoch) == (6, 4)
    assert epochs.latest_entry == (6, 35)
    assert cache((2, 10)).previous_epoch is None


@pytest.mark.parametrize(
    ("end", "kept"), [(36, 3), (35, 2), (21, 2), (20, 1), (10, 0), (0, 0), (100, 3)]
)
def test_truncate_from_end(end: int, kept: int) -> None:
    entries = [(2, 10), (4, 20), (6, 35)]
    epochs = cache(*entries)
    assert epochs.truncate_from_end(end) is (kept < 3)
    assert list(epochs.entries) == entries[:kept]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, None),
        (9, None),
        (10, None),
        (11, [(2, 11), (4, 20), (6, 35)]),
        (20, [(4, 20), (6, 35)]),
        (21, [(4, 21), (6, 35)]),
        (40, [(6, 40)]),
    ],
)
def test_truncate_from_start(start: int, expected: list[tuple[int, int]] | None) -> None:
    entries = [(2, 10), (4, 20), (6, 35)]
    epochs = cache(*entries)
    assert epochs.truncate_from_start(start) is (expected is not None)
    assert list(epochs.entries) == (expected or entries)


@pytest.mark.parametrize(
    "line", ["", "1", "1 ", " 1", "1 2 3", "a 1", "-1 0", "1 -2", "1  2", "٣ 4"]
)
def test_malformed_lines(line: str) -> None:
    with pytest.raises(ValueError, match="not an epoch and a start offset"):
        EpochEntry.from_line(line)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "cut", "trim"]), st.integers(0, 3), st.integers(1, 5)),
        max_size=30,
    )
)
def test_the_cache_describes_the_log(steps: list[tuple[str, int, int]]) -> None:
    """The model is the epoch of every single offset."""
    epochs, log, start, epoch = EpochCache(), list[int](), 0, 0
    for action, bump, count in steps:
        end = start + len(log)
        match action:
            case "append":
                epoch += bump
                epochs.assign(epoch, end)
                log += [epoch] * count
            case "cut":
                del log[-count:]
                epochs.truncate_from_end(start + len(log))
            case "trim" if count < len(log):
                start += count
                del log[:count]
                epochs.truncate_from_start(start)
        end = start + len(log)
        for position, expected in enumerate(log):
            assert epochs.epoch_for_offset(start + position) == expected
        for known in set(log):
            last = start + max(i for i, e in enumerate(log) if e == known)
            assert epochs.end_offset_for(known, end) == (known, last + 1)
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset
                   for a, b in pairwise(epochs.entries))  # fmt: skip
