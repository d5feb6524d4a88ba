"""The golden cases: what was sent to Apache Kafka 4.3.1, and the files it left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tidelog.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import Settings, TopicConfig
from tidelog.storage.log import Appended, Log
from tidelog.storage.recovery import Opening, Report, open_log
from tidelog.storage.validation import Rejected
from tidelog.wire.batch import BatchHeader, headers
from tidelog.wire.control import read_marker

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SEGMENTS = GOLDEN / "segments"
Step = dict[str, Any]


@dataclass(frozen=True)
class Case:
    name: str

    @property
    def path(self) -> Path:
        return SEGMENTS / self.name

    @cached_property
    def input(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.path / "input.json").read_text())
        return loaded

    @cached_property
    def sent(self) -> bytes:
        return (self.path / "sent.bin").read_bytes()

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.input["topic"], PartitionIndex(self.input["partition"]))

    @property
    def directories(self) -> list[str]:
        return sorted(p.name for p in self.path.iterdir() if p.is_dir())

    def config(self, **overrides: str) -> TopicConfig:
        given = {**self.input["configs"], **{k.replace("_", "."): v for k, v in overrides.items()}}
        return TopicConfig.resolve(given, Settings())

    def runs(self) -> list[list[Step]]:
        """The steps between two restarts, run by run."""
        runs: list[list[Step]] = [[]]
        for step in self.input["steps"]:
            if step["op"] == "restart":
                runs.append([])
            else:
                runs[-1].append(step)
        return runs

    def sent_batch(self, step: Step) -> bytes:
        start = step["sentPosition"]
        return self.sent[start : start + step["sentLength"]]

    def batches(self, directory: str) -> list[tuple[BatchHeader, bytes]]:
        """Every batch of the directory's log files, in order."""
        return [
            (header, data[position : position + header.size])
            for path in sorted((self.path / directory).glob("*.log"))
            for data in [path.read_bytes()]
            for position, header in headers(data)
        ]

    def copy(self, directory: str, target: Path) -> Path:
        shutil.copytree(self.path / directory, target)
        (target / "dump.txt").unlink(missing_ok=True)
        return target


def cases() -> list[Case]:
    return [Case(path.parent.name) for path in sorted(SEGMENTS.glob("*/input.json"))]


def open_clean(
    directory: Path, tp: TopicPartition, config: TopicConfig, *, now_ms: int, log_start: int = 0
) -> Log:
    log, _ = open_with(directory, tp, config, now_ms=now_ms, log_start=log_start, was_clean=True)
    return log


def open_with(
    directory: Path,
    tp: TopicPartition,
    config: TopicConfig,
    *,
    now_ms: int = 0,
    log_start: int = 0,
    recovery_point: int = 0,
    high_watermark: int = 0,
    was_clean: bool = False,
) -> tuple[Log, Report]:
    return in_one_go(
        open_log(
            Opening(
                OsDisk(),
                str(directory),
                tp,
                config,
                SystemRandom(7),
                TimestampMs(now_ms),
                was_clean=was_clean,
                recovery_point=Offset(recovery_point),
                log_start=Offset(log_start),
                high_watermark=Offset(high_watermark),
            )
        )
    )


class Replay:
    """Sends a case's batches to a log, with Kafka's clock and markers where it wrote them."""

    def __init__(self, case: Case, log: Log, expected: list[tuple[BatchHeader, bytes]]) -> None:
        self.case = case
        self.log = log
        self._by_offset = {header.base_offset: (header, data) for header, data in expected}

    def run(self, steps: list[Step], run_number: int) -> Iterator[tuple[Step, Appended | Rejected]]:
        """Each produce step with the log's answer; transaction markers are written between."""
        epoch = LeaderEpoch(2 * (run_number - 1))
        self.log.begin_epoch(epoch)
        for step in steps:
            self._write_markers(epoch)
            if step["op"] == "produce":
                answer = self.log.append_as_leader(
                    self.case.sent_batch(step), leader_epoch=epoch, now_ms=self._time_of(step)
                )
                self.log.advance_high_watermark(self.log.end_offset)
                yield step, answer
        self._write_markers(epoch)

    def _time_of(self, step: Step) -> TimestampMs:
        """LogAppendTime is the broker's clock, which is known from what it wrote or answered."""
        answered = step["response"]["logAppendTimeMs"]
        return TimestampMs(answered if answered >= 0 else step["at"])

    def _write_markers(self, epoch: LeaderEpoch) -> None:
        while (found := self._by_offset.get(self.log.end_offset)) is not None:
            header, data = found
            if not header.is_control:
                return
            marker = read_marker(data, header)
            assert marker is not None
            answer = self.log.append_marker(
                header.producer_id,
                header.producer_epoch,
                marker,
                leader_epoch=epoch,
                now_ms=header.max_timestamp,
            )
            assert isinstance(answer, Appended), answer
            self.log.advance_high_watermark(self.log.end_offset)
