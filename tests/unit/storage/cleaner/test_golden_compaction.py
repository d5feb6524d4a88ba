"""Logs cleaned here are what Apache Kafka 4.3.1 made of the same files."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from golden import SEGMENTS, Case, cases, open_clean

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.checkpoints import read_offset_checkpoint
from tidelog.storage.cleaner.cleaning import NO_FLOOR, LogCleaner
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import Log
from tidelog.wire.batch import BatchHeader, headers
from tidelog.wire.records import Record, decode_records

COMPACTED = [case for case in cases() if case.name.startswith("compact-")]
PASSES = [
    (case, number)
    for case in COMPACTED
    for number in (1, 2, 3)
    if f"after-{number}" in case.directories
]
IGNORED = {"dump.txt", "partition.metadata", "leader-epoch-checkpoint"}
CODECS = {"compact-gzip", "compact-snappy", "compact-lz4", "compact-zstd"}
FILES = {"compact-delete"} | CODECS
"""The cases that are not compared byte by byte."""


def ids(pair: tuple[Case, int]) -> str:
    return f"{pair[0].name}-{pair[1]}"


def config_of(case: Case) -> TopicConfig:
    given = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        **case.input["compactionConfigs"],
    }
    return case.config(**{name.replace(".", "_"): value for name, value in given.items()})


def horizons(case: Case, directory: str) -> set[int]:
    found = (header.delete_horizon_ms for header, _ in case.batches(directory))
    return {horizon for horizon in found if horizon is not None}


def time_of(case: Case, number: int) -> TimestampMs:
    """When Kafka cleaned: told by the horizons it set, else by its log."""
    new = horizons(case, f"after-{number}") - horizons(case, f"before-{number}")
    if new:
        return TimestampMs(min(new) - config_of(case).delete_retention_ms)
    text = (SEGMENTS / "_serverlog" / f"run-{2 * number}.txt").read_text()
    line = rf"^(\S+ \S+) .*Beginning cleaning of log {case.name}-0$"
    (at,) = re.findall(line, text, re.MULTILINE)
    moment = datetime.strptime(at, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return TimestampMs(int(moment.timestamp() * 1000))


def clean_point_after(case: Case, run: int) -> Offset | None:
    path = SEGMENTS / "_logdir" / f"run-{run}" / "cleaner-offset-checkpoint"
    if not path.exists():
        return None
    return read_offset_checkpoint(OsDisk(), str(path)).get(case.tp)


def opened(case: Case, number: int, target: Path) -> Log:
    directory = case.copy(f"before-{number}", target / str(case.tp))
    log = open_clean(directory, case.tp, config_of(case), now_ms=0)
    log.advance_high_watermark(log.end_offset)
    return log


def cleaned(case: Case, number: int, log: Log) -> CleaningReport:
    now_ms = time_of(case, number)
    cleaner = LogCleaner(OsDisk(), log, CleanerSettings(map_bytes=8 << 20), SystemRandom(1))
    plan = cleaner.plan(now_ms, clean_point_after(case, 2 * number - 1))
    assert plan.is_due, plan
    report = cleaner.begin(plan, now_ms, clean_floor=NO_FLOOR).run_here()
    assert (report.outcome, report.clean_point) == (
        Outcome.CLEANED,
        clean_point_after(case, 2 * number),
    )
    return report


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.name not in IGNORED and not path.name.endswith(".deleted")
    }


def shape(header: BatchHeader) -> tuple[int, ...]:
    """All of a header but its size and checksum, which depend on the compressor."""
    return (header.base_offset, *header[2:4], *header[5:])


Shaped = list[tuple[str, tuple[int, ...], list[Record]]]


def shaped(directory: Path) -> Shaped:
    return [
        (path.name, shape(header), decode_records(data[position : position + header.size]))
        for path in sorted(directory.glob("*.log"))
        for data in [path.read_bytes()]
        for position, header in headers(data)
    ]


@pytest.mark.parametrize("pair", [p for p in PASSES if p[0].name not in FILES], ids=ids)
def test_a_pass_leaves_the_same_files_as_kafka(pair: tuple[Case, int], tmp_path: Path) -> None:
    case, number = pair
    log = opened(case, number, tmp_path)
    cleaned(case, number, log)
    log.close()
    ours, theirs = files_of(tmp_path / str(case.tp)), files_of(case.path / f"after-{number}")
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.mark.parametrize("pair", [p for p in PASSES if p[0].name in CODECS], ids=ids)
def test_compressed_logs_hold_the_same_records(pair: tuple[Case, int], tmp_path: Path) -> None:
    case, number = pair
    log = opened(case, number, tmp_path)
    cleaned(case, number, log)
    log.close()
    ours, theirs = tmp_path / str(case.tp), case.path / f"after-{number}"
    assert sorted(files_of(ours)) == sorted(files_of(theirs))
    assert shaped(ours) == shaped(theirs)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_with_delete_what_is_missing_lies_below_the_log_start(number: int, tmp_path: Path) -> None:
    """Retention ran too, at a moment of its own: every record Kafka kept is kept."""
    case = Case("compact-delete")
    log = opened(case, number, tmp_path)
    cleaned(case, number, log)
    log.apply_retention(time_of(case, number))
    log.close()
    ours = {r.offset: r for _, _, found in shaped(tmp_path / str(case.tp)) for r in found}
    after = case.path / f"after-{number}"
    theirs = {r.offset: r for _, _, found in shaped(after) for r in found}
    start = min(int(path.stem) for path in after.glob("*.log"))
    assert {offset: ours.get(offset) for offset in theirs} == theirs
    assert [offset for offset in ours if offset not in theirs and offset >= start] == []


def test_all_seventeen_cases_are_covered() -> None:
    assert len(COMPACTED) == 17
    assert len(PASSES) == 15 * 3 + 2
