"""What a lake consists of: a log of commits, folded into a state. Pure.

A commit says from which offset to which it goes in each partition, and which files hold the
records. Files lie in a staging folder until the commit is written, which decides; then they are
moved to their place, where readers that know nothing of all this see them. If the one who decided
dies before, whoever opens the lake next moves them. So each record is in the lake exactly once.

Invariant: the ranges of a partition join; where records were lost before they could be read, the
commit behind the gap says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.pipeline.jobs.failures import LakeDamaged
from tidelog.pipeline.planner import OffsetRange, dashed
from tidelog.pipeline.positions import Offsets, Place, from_json, to_json

FORMAT: Final = 1
COMMITS: Final = "_tidelog/commits"
STAGING: Final = "_tidelog/staging"
ABOUT: Final = "_tidelog/lake.json"
SCHEMA: Final = (
    "key BINARY, value BINARY, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, partition INT, date DATE"
)

_PARTITIONED: Final = re.compile(r"topic=([^/]+)/partition=(\d+)/date=([^/]+)/([^/]+)")


@dataclass(frozen=True, slots=True)
class LakeFile:
    path: str
    staged: str
    """Where it lies until it is moved; both are relative to the lake."""
    topic: str
    partition: int
    date: str
    rows: int
    size: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    at_ms: int
    starts: Offsets
    ends: Offsets
    files: tuple[LakeFile, ...]
    lost: tuple[OffsetRange, ...] = ()
    """Gone from the topic before they were archived."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


@dataclass(frozen=True, slots=True)
class LakeState:
    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)
    """Where the next commit of a partition starts."""
    files: tuple[LakeFile, ...] = ()
    lost: tuple[OffsetRange, ...] = ()
    next_version: int = 0
    last: Commit | None = None


def commit_name(version: int) -> str:
    return f"{COMMITS}/{version:020d}.json"


def about() -> str:
    return json.dumps({"format": FORMAT, "schema": SCHEMA})


def check_about(text: str, where: str) -> None:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise LakeDamaged(f"{where}: {error}") from None
    if found.get("format") != FORMAT:
        raise LakeDamaged(f"{where}: format {found.get('format')!r}; known is {FORMAT}")
    if found.get("schema") != SCHEMA:
        raise LakeDamaged(f"{where}: the lake's schema is {found.get('schema')}, not {SCHEMA}")


def staged_file(
    folder: str, path: str, index: int, version: int, size: int, rows: int, offsets: tuple[int, int]
) -> LakeFile:
    """``path`` is what Spark wrote below ``folder``; names in the lake say which commit it was."""
    parts = _PARTITIONED.fullmatch(path)
    if parts is None:
        raise LakeDamaged(f"{folder}/{path} is not in a folder of topic, partition and date")
    topic, partition, date, name = parts.groups()
    codec = "".join(re.findall(r"\.\w+(?=\.parquet$)", name))
    place = f"topic={topic}/partition={partition}/date={date}"
    return LakeFile(
        path=f"{place}/{version:012d}-{index:05d}{codec}.parquet",
        staged=f"{folder}/{path}",
        topic=topic,
        partition=int(partition),
        date=date,
        rows=rows,
        size=size,
        first_offset=offsets[0],
        last_offset=offsets[1],
    )


def fold(commits: Iterable[Commit]) -> LakeState:
    starts: dict[Place, int] = {}
    ends: dict[Place, int] = {}
    files: list[LakeFile] = []
    lost: list[OffsetRange] = []
    last: Commit | None = None
    for number, commit in enumerate(commits):
        if commit.version != number:
            raise LakeDamaged(f"commit {number} is missing; the next one is {commit.version}")
        gaps = {(one.topic, one.partition): one for one in commit.lost}
        for place, start in commit.starts.items():
            expected = ends.get(place, start)
            if expected != start and (place not in gaps or gaps[place].start != expected):
                raise LakeDamaged(
                    f"commit {number} starts {dashed(place)} at {start}, "
                    f"and those before end at {expected}"
                )
            starts.setdefault(place, start)
        ends.update(commit.ends)
        files += commit.files
        lost += commit.lost
        last = commit
    version = 0 if last is None else last.version + 1
    return LakeState(starts, ends, tuple(files), tuple(lost), version, last)


def write_commit(commit: Commit) -> str:
    document = {
        "version": commit.version,
        "at_ms": commit.at_ms,
        "starts": to_json(commit.starts),
        "ends": to_json(commit.ends),
        "lost": [[one.topic, one.partition, one.start, one.end] for one in commit.lost],
        "files": [
            {
                "path": one.path,
                "staged": one.staged,
                "topic": one.topic,
                "partition": one.partition,
                "date": one.date,
                "rows": one.rows,
                "size": one.size,
                "offsets": [one.first_offset, one.last_offset],
            }
            for one in commit.files
        ],
    }
    return json.dumps(document, indent=1)


def read_commit(text: str, where: str) -> Commit:
    try:
        found = json.loads(text)
        return Commit(
            version=int(found["version"]),
            at_ms=int(found["at_ms"]),
            starts=from_json(found["starts"]),
            ends=from_json(found["ends"]),
            files=tuple(_file(one) for one in found["files"]),
            lost=tuple(OffsetRange(*one) for one in found["lost"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LakeDamaged(f"{where} is no commit: {error!r}") from None


def _file(found: Mapping[str, Any]) -> LakeFile:
    first, last = found["offsets"]
    return LakeFile(
        path=str(found["path"]),
        staged=str(found["staged"]),
        topic=str(found["topic"]),
        partition=int(found["partition"]),
        date=str(found["date"]),
        rows=int(found["rows"]),
        size=int(found["size"]),
        first_offset=int(first),
        last_offset=int(last),
    )
