"""``tidelog log compact --dry-run`` tells what a pass would do, and touches nothing.

The example of docs/COMPACTION.md is run as it is written there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.ids import LeaderEpoch, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import Settings, TopicConfig
from tidelog.storage.cleaner.cleaning import NO_FLOOR, LogCleaner
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import Appended, Log
from tidelog.storage.opening import Opening
from tidelog.storage.read import LogRead
from tidelog.storage.recovery import open_log
from tidelog.wire.batch import headers
from tidelog.wire.records import Record, build_batch, decode_records

Run = Callable[..., Any]
Copy = Callable[..., Path]
DOCS = Path(__file__).parents[3] / "docs/COMPACTION.md"
PRICES = TopicPartition("prices", PartitionIndex(0))
NOW = 1_577_409_425_248
CONFIG = TopicConfig.resolve(
    {
        "cleanup.policy": "compact",
        "delete.retention.ms": "100",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.01",
    },
    Settings(),
)


def blocks() -> list[list[str]]:
    """The code of the page's example."""
    _, _, example = DOCS.read_text(encoding="utf-8").partition("## An example")
    return [block.strip().splitlines() for block in re.findall(r"```\n(.*?)```", example, re.S)]


def prices(directory: Path) -> Log:
    opening = Opening(
        OsDisk(), str(directory), PRICES, CONFIG, SystemRandom(1), TimestampMs(NOW), was_clean=True
    )
    log = in_one_go(open_log(opening))[0]
    for second, line in enumerate(blocks()[0]):
        now_ms = TimestampMs(NOW + 1_000 * second)
        key, _, value = line.encode().partition(b":")
        batch = build_batch([Record(0, now_ms, key, value)])
        answer = log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=now_ms)
        assert isinstance(answer, Appended), answer
    log.advance_high_watermark(log.end_offset)
    log.flush_now()
    return log


def consumed(log: Log) -> list[str]:
    lines, offset = [], log.log_start
    while offset < log.end_offset:
        answer = log.read(offset, log.high_watermark, 1 << 20)
        assert isinstance(answer, LogRead)
        assert answer.records is not None
        data = answer.records.read()
        for position, header in headers(data):
            for record in decode_records(data[position : position + header.size]):
                lines.append(f"{(record.key or b'').decode()} {(record.value or b'').decode()}")
            offset = header.next_offset
    return lines


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_the_prices_of_the_documentation(tidelog: Run, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "prices-0"
    log = prices(directory)
    _, dry_run, left = blocks()
    before = files_of(directory)
    command = dry_run[0].removeprefix("$ tidelog ").split()
    ran = tidelog(*command[:-1], tmp_path / command[-1])
    assert (ran.code, ran.out.splitlines()) == (0, dry_run[1:])
    assert files_of(directory) == before

    cleaner = LogCleaner(OsDisk(), log, CleanerSettings(), SystemRandom(1))
    now_ms = TimestampMs(NOW + 60_000)
    plan = cleaner.plan(now_ms, None)
    cleaner.begin(plan, now_ms, clean_floor=NO_FLOOR).run_here()
    assert consumed(log) == left
    assert log.segments.bases == [0, 5]
    assert [header.base_offset for _, header in log.segments[0].batches()] == [3, 4]


def test_a_data_directory_of_kafka(tidelog: Run, data_dir: Path) -> None:
    before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    ran = tidelog("log", "compact", "--dry-run", "--json", data_dir)
    told = {line["topic"]: line for line in map(json.loads, ran.out.splitlines())}
    assert ran.code == 0
    assert sorted(told) == ["empty", "idempotent", "plain", "txn-mixed-v2"]
    assert told["empty"]["heldBack"][0]["reason"] == "nothing dirty"
    assert told["plain"]["would"]["recordsKept"] < told["plain"]["would"]["recordsRead"]
    assert told["txn-mixed-v2"]["would"]["abortedDropped"] > 0
    assert before == {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}


def test_it_counts_what_kafka_kept(tidelog: Run, golden_copy: Copy) -> None:
    partition = golden_copy("segments/compact-merge/before-1", "merge-0")
    after = golden_copy("segments/compact-merge/after-1", "after-0")
    bases = sorted(path.stem for path in after.glob("*.log"))[:-1]
    sizes = [(after / f"{base}.log").stat().st_size for base in bases]
    ran = tidelog(
        "log", "compact", "--dry-run", "--json", "--config", "delete.retention.ms=86400000",
        partition,
    )  # fmt: skip
    assert json.loads(ran.out)["would"]["bytesWritten"] == sum(sizes)


def test_a_setting_changes_the_answer(tidelog: Run, golden_copy: Copy) -> None:
    partition = golden_copy("segments/compact-merge/before-1", "merge-0")
    ran = tidelog("log", "compact", "--dry-run", "--config", "cleanup.policy=delete", partition)
    assert "not due" in ran.out
    assert "held back: not compacted; see cleanup.policy" in ran.out


def test_a_corrupt_log_is_told(tidelog: Run, golden_copy: Copy) -> None:
    partition = golden_copy("segments/compact-merge/before-1", "merge-0")
    first = min(partition.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    ran = tidelog("log", "compact", "--dry-run", partition)
    assert ran.code == 1
    assert "cannot be compacted" in ran.err
    assert "CRC" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--dry-run"),
        (("--dry-run", "--config", "nonsense"), "NAME=VALUE"),
        (("--dry-run", "--config", "no.such.setting=1"), "no.such.setting"),
    ],
)
def test_wrong_use(
    tidelog: Run, golden_copy: Copy, arguments: tuple[str, ...], message: str
) -> None:
    partition = golden_copy("segments/compact-merge/before-1", "merge-0")
    ran = tidelog("log", "compact", *arguments, partition)
    assert ran.code == 2
    assert message in ran.err


def test_an_empty_directory_is_no_log(tidelog: Run, tmp_path: Path) -> None:
    ran = tidelog("log", "compact", "--dry-run", tmp_path)
    assert ran.code == 2
    assert "no segments" in ran.err
