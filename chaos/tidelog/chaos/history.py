"""What happened in a run, as it is kept in a file and judged by the checkers. Pure.

A history is a list of events in the order in which they were noted; each is a line of JSON in the
file, so that a run that was interrupted leaves a history that can be checked up to there. All
times are milliseconds since the run began, taken from one monotonic clock.

An operation is noted once, when it has ended or when the run gives up on it. ``UNKNOWN`` means
that it may have happened: a request without an answer. Only what is ``OK`` must be there, only what
``FAILED`` must not.

What the checkers rely on, and a workload therefore keeps to:

- A key's records in a topic have one writer at a time, and (topic, key, sequence) is appended once;
  only a transactional copier may append it again, in another transaction, after one that did not
  commit.
- Consumers read committed. A client's offsets in a partition rise: one that is assigned a partition
  again, or starts over, goes by another name (``consumer-1.2``). A client of no group reads on
  from where it stands.
- Every run ends, when all is healed and quiet, with a ``READ_TO_END`` of every partition it wrote
  to: without one nothing can be called lost.
- An operation that may have happened is ``UNKNOWN``: so is a commit of a transaction that was cut
  off or fenced, unless the answer says that it was aborted.
- Nothing is removed from topics under way but by compaction, of ``compacted_topics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Verb(Enum):
    """What a client did."""

    APPEND = "append"
    """Wrote one record (``key``, ``sequence``); ``offset`` where it was acknowledged."""
    END_TRANSACTION = "end-transaction"
    """``transaction``, with ``is_commit``."""
    POLL = "poll"
    """Got the records of ``seen``, in this order, as ``group`` if it has one."""
    READ_TO_END = "read-to-end"
    """Has read all of ``topic``-``partition``, from its start up to but without ``offset``, by the
    polls of this client since it last did so; invoked when it began."""
    COMMIT_OFFSET = "commit-offset"
    """As ``group``: ``offset`` of ``topic``-``partition`` is the next to read. With a
    ``transaction`` it counts when that has committed."""
    FETCH_OFFSET = "fetch-offset"
    """Asked for ``group``'s offset of ``topic``-``partition`` and got ``offset``; None: there was
    none."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer got it."""

    topic: str
    partition: int
    offset: int
    key: str
    sequence: int | None
    """The number its writer gave it; None is a tombstone."""


@dataclass(frozen=True, slots=True)
class Operation:
    number: int
    """Counts the operations of a run from 1."""
    client: str
    verb: Verb
    invoked_ms: float
    ended_ms: float | None
    """None: it had no end before the run had."""
    outcome: Outcome
    topic: str = ""
    partition: int = -1
    offset: int | None = None
    key: str = ""
    sequence: int | None = None
    """Of a key, rising by one from 0 with each record that is written; None is a tombstone."""
    group: str = ""
    transaction: str = ""
    """Which transaction it belongs to; unique in the run."""
    is_commit: bool = False
    seen: tuple[Record, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class FaultBand:
    """A fault acted from ``began_ms`` on.

    It may be noted when it begins and again when it was healed: the last one of a number counts.
    """

    number: int
    name: str
    """As in ``tidelog chaos list``: ``kill-leader``, ``cut``, …"""
    detail: str
    """For a person: ``node 2 (leader of events-0)``."""
    nodes: tuple[int, ...]
    began_ms: float
    ended_ms: float | None
    """When it was healed; None: the run ended before."""
    failure: str = ""
    """Why it could not be done or healed."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """What the cluster said of itself."""

    at_ms: float
    controller: int | None
    alive: tuple[int, ...]
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The first event of a history."""

    seed: int
    command: str
    """What repeats the run."""
    target: str
    workload: str
    faults: tuple[str, ...]
    duration_s: float
    started_at: str
    """ISO 8601, UTC."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions, settings, machine: shown in the report."""
    compacted_topics: tuple[str, ...] = ()
    """Where a record may go when its key has a newer one."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the run wants a reader of the report to know."""

    at_ms: float
    text: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The last event of a run that was not cut off."""

    at_ms: float
    was_interrupted: bool
    divergences: tuple[str, ...] = ()
    """Where the files of replicas differ, found when the nodes had stopped."""


Event = RunHeader | Operation | FaultBand | Sample | Note | RunEnd


@dataclass(frozen=True, slots=True)
class History:
    """A whole run, sorted by kind."""

    header: RunHeader
    operations: tuple[Operation, ...]
    faults: tuple[FaultBand, ...] = ()
    samples: tuple[Sample, ...] = ()
    notes: tuple[Note, ...] = ()
    end: RunEnd | None = None
    """None: the run was cut off."""


def gather(header: RunHeader, events: Iterable[Event]) -> History:
    """The history that the events after a header make."""
    operations: list[Operation] = []
    faults: dict[int, FaultBand] = {}
    samples: list[Sample] = []
    notes: list[Note] = []
    end: RunEnd | None = None
    for event in events:
        match event:
            case Operation():
                operations.append(event)
            case FaultBand():
                faults[event.number] = event
            case Sample():
                samples.append(event)
            case Note():
                notes.append(event)
            case RunEnd():
                end = event
            case RunHeader():
                raise ValueError("a history has one header")
            case _:
                assert_never(event)
    return History(
        header, tuple(operations), tuple(faults.values()), tuple(samples), tuple(notes), end
    )
