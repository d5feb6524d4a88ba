"""``tidelog log verify`` finds nothing in what Kafka left, and everything that is then broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.verify_partition import check_partition
from tidelog.kernel.real.disk import OsDisk

Run = Callable[..., Any]
Copy = Callable[..., Path]
GOLDEN = Path(__file__).parents[2] / "data/golden"
PARTITIONS = sorted({str(log.parent.relative_to(GOLDEN)) for log in GOLDEN.rglob("*/*/0*.log")})
BASE = "00000000000000000118"


@pytest.mark.parametrize("directory", PARTITIONS)
def test_nothing_is_wrong_with_what_kafka_wrote(directory: str) -> None:
    check = check_partition(OsDisk(), str(GOLDEN / directory), lambda done: None)
    assert [str(finding) for finding in check.findings] == []
    assert check.segments > 0


def test_a_sound_data_directory(tidelog: Run, data_dir: Path) -> None:
    ran = tidelog("log", "verify", data_dir)
    assert (ran.code, ran.out) == (0, "")
    assert f"{data_dir}/bootstrap.checkpoint: not checked" in ran.err
    assert "partitions: 4, segments: " in ran.err
    assert ran.err.endswith("problems: 0\n")


def test_the_directory_of_one_partition(tidelog: Run, data_dir: Path) -> None:
    ran = tidelog("log", "verify", data_dir / "plain-0")
    assert (ran.code, ran.out) == (0, "")


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def swap_batches(path: Path) -> None:
    """The first two batches in the wrong order: offsets go backwards."""
    content = path.read_bytes()
    first = 12 + int.from_bytes(content[8:12], "big")
    second = first + 12 + int.from_bytes(content[first + 8 : first + 12], "big")
    path.write_bytes(content[first:second] + content[:first] + content[second:])


def claim_more(path: Path) -> None:
    """The last batch says that it is longer than the file."""
    content = bytearray(path.read_bytes())
    content[8:12] = (len(content)).to_bytes(4, "big")
    path.write_bytes(content)


DAMAGE: list[tuple[str, str, Callable[[Path], object], str]] = [
    ("a flipped bit", ".log", lambda p: flip(p, 100), "stored CRC is"),
    ("a flipped bit in the epoch", ".log", lambda p: flip(p, 12), "leader epoch"),
    ("a torn tail", ".log", lambda p: cut(p, p.stat().st_size - 1), "only"),
    ("a zero-filled tail", ".log", lambda p: p.write_bytes(p.read_bytes() + bytes(9)), "9 zero"),
    ("a zero-filled log", ".log", lambda p: p.write_bytes(bytes(500)), "500 zero bytes from"),
    ("a foreign file", ".log", lambda p: p.write_bytes(b"no log at all " * 20), "magic"),
    ("offsets that go back", ".log", swap_batches, "is below"),
    ("a batch longer than the file", ".log", claim_more, "only"),
    ("a truncated offset index", ".index", lambda p: cut(p, 13), "not a multiple of 8"),
    ("a wrong offset index", ".index", lambda p: flip(p, 7), "no batch at position"),
    ("no offset index", ".index", Path.unlink, "missing"),
    ("a truncated time index", ".timeindex", lambda p: cut(p, 13), "not a multiple of 12"),
    ("a wrong time index", ".timeindex", lambda p: flip(p, 7), "log timestamp"),
    ("no time index", ".timeindex", Path.unlink, "missing"),
    ("a damaged snapshot", ".snapshot", lambda p: flip(p, 8), "stored CRC is"),
    ("a zero-filled snapshot", ".snapshot", lambda p: p.write_bytes(bytes(10)), "version is 0"),
]


@pytest.mark.parametrize(
    ("suffix", "damage", "text"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE]
)
def test_damage_to_a_segment_is_named(
    tidelog: Run, data_dir: Path, suffix: str, damage: Callable[[Path], object], text: str
) -> None:
    path = data_dir / "plain-0" / f"{BASE}{suffix}"
    damage(path)
    ran = tidelog("log", "verify", data_dir)
    assert ran.code == 1
    about_it = [line for line in ran.out.splitlines() if line.startswith(f"{path}: ")]
    assert any(text in line for line in about_it), ran.out


def test_an_index_larger_than_its_log(tidelog: Run, data_dir: Path) -> None:
    log = data_dir / "plain-0" / f"{BASE}.log"
    cut(log, 12 + int.from_bytes(log.read_bytes()[8:12], "big"))
    ran = tidelog("log", "verify", data_dir)
    assert ran.code == 1
    assert f"{BASE}.index: Index offset: " in ran.out
    assert "entries more" in ran.out


def test_an_index_without_a_log(tidelog: Run, data_dir: Path) -> None:
    shutil.copy(data_dir / f"plain-0/{BASE}.index", data_dir / "plain-0/00000000000000000119.index")
    ran = tidelog("log", "verify", data_dir)
    assert ran.code == 1
    assert "00000000000000000119.index: there is no log of this segment" in ran.out


def test_a_marker_that_is_not_in_the_segment(tidelog: Run, data_dir: Path) -> None:
    partition = data_dir / "txn-mixed-v2-0"
    first, second = sorted(partition.glob("*.txnindex"))[:2]
    shutil.copy(second, first)
    ran = tidelog("log", "verify", data_dir)
    assert ran.code == 1
    assert f"{first}: marker " in ran.out


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("meta.properties", b"version=1\n", "cluster.id is missing"),
        ("recovery-point-offset-checkpoint", b"0\n2\nplain 0 5\n", "line 2"),
        (
            "recovery-point-offset-checkpoint",
            b"0\n1\nplain 0 737\n",
            "plain-0 has 737, but its log ends at 736",
        ),
        ("replication-offset-checkpoint", bytes(20), "version"),
        ("plain-0/leader-epoch-checkpoint", b"0\n1\n", "line 2"),
        ("plain-0/partition.metadata", b"", "version: 0"),
    ],
)
def test_damage_to_a_text_file_is_named(
    tidelog: Run, data_dir: Path, name: str, content: bytes, text: str
) -> None:
    (data_dir / name).write_bytes(content)
    ran = tidelog("log", "verify", data_dir)
    assert ran.code == 1
    assert str(data_dir / name) in ran.out
    assert text in ran.out


def test_partitions_of_one_topic_with_different_ids(tidelog: Run, data_dir: Path) -> None:
    shutil.copytree(data_dir / "plain-0", data_dir / "plain-1")
    (data_dir / "plain-1/partition.metadata").write_text(
        "version: 0\ntopic_id: foxbh5z4A1voHxjTmOYeJQ"
    )
    ran = tidelog("log", "verify", data_dir)
    assert ran.code == 1
    assert "the topic id is foxbh5z4A1voHxjTmOYeJQ, but " in ran.out


def test_what_is_on_its_way_out_is_not_looked_at(tidelog: Run, data_dir: Path) -> None:
    going = data_dir / f"plain-7.{'0' * 32}-delete"
    going.mkdir()
    (going / f"{BASE}.log").write_bytes(b"rubbish")
    (data_dir / f"plain-0/{'0' * 19}9.log.deleted").write_bytes(b"rubbish")
    assert tidelog("log", "verify", data_dir).code == 0


def test_a_running_node_is_mentioned(tidelog: Run, data_dir: Path) -> None:
    with OsDisk().lock(str(data_dir / ".lock")):
        ran = tidelog("log", "verify", data_dir)
    assert ran.code == 0
    assert "a node is running here" in ran.err


def test_a_directory_that_holds_no_log(tidelog: Run, tmp_path: Path) -> None:
    ran = tidelog("log", "verify", tmp_path)
    assert ran.code == 2
    assert "no segments (.log), no partitions" in ran.err


@pytest.mark.parametrize("command", ["verify", "reindex"])
def test_a_file_or_nothing_instead_of_a_directory(
    tidelog: Run, data_dir: Path, command: str
) -> None:
    assert tidelog("log", command, data_dir / "meta.properties").code == 2
    assert tidelog("log", command, data_dir / "nowhere").code == 2
    assert tidelog("log", command).code == 2
