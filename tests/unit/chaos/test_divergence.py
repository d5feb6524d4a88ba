"""Replicas whose committed, uncleaned batches differ are found; those that may differ are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_lab import batch_of

from tidelog.chaos.divergence import divergences

Batch = tuple[int, int, list[bytes]]
"""Base offset, leader epoch and values."""

COMMON: list[Batch] = [(0, 0, [b"a", b"b"]), (2, 0, [b"c"]), (3, 1, [b"d"])]


def replica(
    directory: Path,
    batches: list[Batch],
    *,
    watermark: int = 4,
    clean_point: int | None = None,
    topic: str = "events",
    second_segment_at: int | None = None,
) -> Path:
    partition = directory / f"{topic}-0"
    partition.mkdir(parents=True)
    bases = [0] if second_segment_at is None else [0, second_segment_at]
    for base, next_base in zip(bases, [*bases[1:], 10**9], strict=True):
        data = b"".join(
            batch_of(values, base_offset=offset, leader_epoch=epoch)
            for offset, epoch, values in batches
            if base <= offset < next_base
        )
        (partition / f"{base:020d}.log").write_bytes(data)
    _checkpoint(directory / "replication-offset-checkpoint", topic, watermark)
    if clean_point is not None:
        _checkpoint(directory / "cleaner-offset-checkpoint", topic, clean_point)
    return directory


def _checkpoint(path: Path, topic: str, offset: int) -> None:
    path.write_text(f"0\n1\n{topic} 0 {offset}\n", encoding="ascii")


def test_equal_replicas_do_not_differ(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", COMMON)
    two = replica(tmp_path / "2", COMMON)
    assert divergences({1: [one], 2: [two]}) == []


@pytest.mark.parametrize(
    ("other", "at"),
    [
        ([*COMMON[:2], (3, 1, [b"x"])], "differ at offset 3"),
        ([*COMMON[:2], (3, 2, [b"d"])], "differ at offset 3"),
        ([(0, 0, [b"a"]), (1, 0, [b"b"]), *COMMON[1:]], "differ at offset 0"),
        ([COMMON[0], COMMON[2]], "differ at offset 2"),
    ],
)
def test_committed_batches_that_differ_are_told(
    tmp_path: Path, other: list[Batch], at: str
) -> None:
    one = replica(tmp_path / "1", COMMON)
    two = replica(tmp_path / "2", other)
    (text,) = divergences({1: [one], 2: [two]})
    assert text.startswith(f"events-0: node 1 and node 2 {at}")


def test_what_is_not_committed_may_differ(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", [*COMMON, (4, 1, [b"x"])], watermark=5)
    two = replica(tmp_path / "2", [*COMMON, (4, 2, [b"y"])], watermark=4)
    assert divergences({1: [one], 2: [two]}) == []
    _checkpoint(two / "replication-offset-checkpoint", "events", 5)
    assert len(divergences({1: [one], 2: [two]})) == 1


def test_a_replica_that_is_behind_or_has_lost_its_start_may_be(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", COMMON)
    two = replica(tmp_path / "2", COMMON[:2])
    three = replica(tmp_path / "3", COMMON[1:])
    assert divergences({1: [one], 2: [two], 3: [three]}) == []


def test_what_one_of_them_has_cleaned_may_differ(tmp_path: Path) -> None:
    cleaned: list[Batch] = [(1, 0, [b"b"]), *COMMON[1:]]
    one = replica(tmp_path / "1", COMMON, second_segment_at=2)
    two = replica(tmp_path / "2", cleaned, clean_point=2, second_segment_at=2)
    assert divergences({1: [one], 2: [two]}) == []


def test_a_cleaned_partition_is_compared_in_its_last_segment(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", COMMON, clean_point=0, second_segment_at=3)
    two = replica(tmp_path / "2", [COMMON[0], COMMON[2]], second_segment_at=3)
    assert divergences({1: [one], 2: [two]}) == []
    three = replica(tmp_path / "3", [*COMMON[:2], (3, 1, [b"x"])], second_segment_at=3)
    assert len(divergences({1: [one], 3: [three]})) == 1
    four = replica(tmp_path / "4", COMMON, second_segment_at=3)
    assert len(divergences({2: [two], 4: [four]})) == 1
    assert divergences({2: [two], 4: [four]}, compacted_topics=["events"]) == []


def test_damaged_bytes_below_the_high_watermark_are_told(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", COMMON)
    path = one / "events-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (text,) = divergences({1: [one]})
    assert text.startswith("events-0: node 1 holds damaged bytes: ")
    _checkpoint(one / "replication-offset-checkpoint", "events", 3)
    assert divergences({1: [one]}) == []


def test_only_the_topics_that_were_asked_for(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", COMMON, topic="other")
    two = replica(tmp_path / "2", [(0, 0, [b"x"])], topic="other")
    assert divergences({1: [one], 2: [two]}, ["events"]) == []
    assert len(divergences({1: [one], 2: [two]}, ["other"])) == 1
    assert len(divergences({1: [one], 2: [two]})) == 1
