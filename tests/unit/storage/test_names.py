"""File and directory names: what Kafka wrote, read back; what must not be taken for a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.kernel.ids import Offset, PartitionIndex, TopicPartition
from tidelog.storage import names
from tidelog.storage.names import DirKind, PartitionDir, SegmentFile

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
MARK = "0123456789abcdef0123456789abcdef"


def tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(partition))


@pytest.mark.parametrize(
    ("base_offset", "suffix", "extra", "path"),
    [
        (0, names.LOG_SUFFIX, "", "/d/t-0/00000000000000000000.log"),
        (1234, names.INDEX_SUFFIX, "", "/d/t-0/00000000000000001234.index"),
        (7, names.TIME_INDEX_SUFFIX, ".swap", "/d/t-0/00000000000000000007.timeindex.swap"),
        (7, names.TXN_INDEX_SUFFIX, ".cleaned", "/d/t-0/00000000000000000007.txnindex.cleaned"),
        (
            2**63 - 1,
            names.SNAPSHOT_SUFFIX,
            ".deleted",
            "/d/t-0/09223372036854775807.snapshot.deleted",
        ),
    ],
)
def test_segment_files(base_offset: int, suffix: str, extra: str, path: str) -> None:
    assert names.segment_file("/d/t-0", base_offset, suffix, extra) == path
    name = path.rpartition("/")[2]
    assert names.parse_segment_file(name) == SegmentFile(Offset(base_offset), suffix, extra)
    assert names.parse_base_offset(name) == base_offset


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "0.log",
        "000000000000000000001.log",
        "00000000000000000000",
        "00000000000000000000.logs",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.swap.swap",
        "00000000000000000000-0000000000.checkpoint",
        "-0000000000000000001.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
        "09223372036854775808.log",
        "x00000000000000000000.log",
        "00000000000000000000.log\n",
    ],
)
def test_not_a_segment_file(name: str) -> None:
    assert names.parse_segment_file(name) is None
    assert names.parse_base_offset(name) is None


def test_every_golden_file_has_a_known_name() -> None:
    others = {"dump.txt", names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA}
    seen = 0
    for log in GOLDEN.glob("segments/*/*/*.log"):
        for file in log.parent.iterdir():
            if file.name in others:
                continue
            parsed = names.parse_segment_file(file.name)
            assert parsed is not None, file
            made = names.segment_file(str(file.parent), parsed.base_offset, parsed.suffix)
            assert made == str(file)
            seen += 1
    assert seen > 1000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", PartitionDir(tp("t", 0), DirKind.LIVE)),
        ("a-b-c-12", PartitionDir(tp("a-b-c", 12), DirKind.LIVE)),
        ("a.b_c-2147483647", PartitionDir(tp("a.b_c", 2147483647), DirKind.LIVE)),
        ("t.x-delete-3", PartitionDir(tp("t.x-delete", 3), DirKind.LIVE)),
        (f"t.{MARK}-delete-3", PartitionDir(tp(f"t.{MARK}-delete", 3), DirKind.LIVE)),
        (f"t-5.{MARK}-delete", PartitionDir(tp("t", 5), DirKind.DELETE)),
        (f"t-5.{MARK}-future", PartitionDir(tp("t", 5), DirKind.FUTURE)),
        (f"a-1-5.{MARK}-stray", PartitionDir(tp("a-1", 5), DirKind.STRAY)),
        ("__cluster_metadata-0", PartitionDir(tp("__cluster_metadata", 0), DirKind.LIVE)),
        ("lost+found", None),
        ("-0", None),
        (".-0", None),
        ("..-0", None),
        ("t", None),
        ("t-", None),
        ("t-01", None),
        ("t--1", PartitionDir(tp("t-", 1), DirKind.LIVE)),
        ("t-+1", None),
        ("t-2147483648", None),
        ("ü-0", None),
        ("a b-0", None),
        ("t-0\n", None),
        ("t-5.0123-delete", None),
        ("x" * 250 + "-0", None),
    ],
)
def test_partition_dirs(name: str, expected: PartitionDir | None) -> None:
    assert names.parse_partition_dir(name) == expected


@pytest.mark.parametrize("topic", ["t", "a-b.c", "x" * 249])
@pytest.mark.parametrize("partition", [0, 2147483647])
def test_dir_names_read_back(topic: str, partition: int) -> None:
    where = tp(topic, partition)
    live = names.partition_dir_name(where)
    assert names.parse_partition_dir(live) == PartitionDir(where, DirKind.LIVE)
    for made, kind in (
        (names.delete_dir_name(where, MARK), DirKind.DELETE),
        (names.future_dir_name(where, MARK), DirKind.FUTURE),
        (names.stray_dir_name(where, MARK), DirKind.STRAY),
    ):
        assert len(made) <= 255
        parsed = names.parse_partition_dir(made)
        assert parsed is not None
        assert parsed.kind is kind
        assert parsed.tp.partition == partition
        assert topic.startswith(parsed.tp.topic)


def test_a_delete_dir_fills_the_cap_exactly() -> None:
    made = names.delete_dir_name(tp("x" * 249, 0), MARK)
    assert len(made) == 255
    assert made.endswith(f"x-0.{MARK}-delete")


def test_a_mark_must_be_hex() -> None:
    with pytest.raises(ValueError, match="32 hex digits"):
        names.delete_dir_name(tp("t", 0), "nope")
