"""What clients of a simulation asked for and were told, in order.

An operation is *invoked*, and then *ok*, *failed* (it surely had no effect) or still *unknown*: a
client that gave up, or was never answered, does not know whether it took place. Nobody but the
clients writes here; the checks at the end read it.

Partitions are named by topic name and index: a topic that is deleted and created again is written
to under another name, so that a name stands for one topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

PartitionName: TypeAlias = tuple[str, int]


class Violation(AssertionError):
    """The cluster broke a promise."""


class Outcome(Enum):
    UNKNOWN = "unknown"
    OK = "ok"
    FAILED = "failed"


@dataclass(slots=True)
class Send:
    """One batch of one producer, however often it is sent."""

    producer: str
    partition: PartitionName
    base_sequence: int
    values: tuple[bytes, ...]
    invoked_ms: float
    is_counted: bool
    """Under acks=all from an idempotent producer: it must be there once, if it was answered."""
    outcome: Outcome = Outcome.UNKNOWN
    base_offset: int = -1
    answered_ms: float = -1.0
    attempts: int = 0

    def __str__(self) -> str:
        topic, index = self.partition
        where = f" at {self.base_offset}" if self.outcome is Outcome.OK else ""
        span = f"{self.base_sequence}+{len(self.values)}"
        return f"{self.producer} {topic}-{index} #{span} {self.outcome.value}{where}"


@dataclass(slots=True)
class AdminAct:
    """A change that was asked of the controller."""

    what: str
    invoked_ms: float
    outcome: Outcome = Outcome.UNKNOWN
    answered_ms: float = -1.0
    error: str = ""


@dataclass(slots=True)
class History:
    sends: dict[PartitionName, list[Send]] = field(default_factory=dict)
    reads: dict[PartitionName, dict[int, bytes]] = field(default_factory=dict)
    """What consumers were shown, by offset."""
    acts: list[AdminAct] = field(default_factory=list)

    def sent(self, send: Send) -> None:
        self.sends.setdefault(send.partition, []).append(send)

    def saw(self, reader: str, partition: PartitionName, offset: int, value: bytes) -> None:
        """A consumer was shown a record; nobody may ever be shown another one there."""
        known = self.reads.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            raise Violation(
                f"{reader} reads {value[:40]!r} at {partition[0]}-{partition[1]} offset {offset},"
                f" where {known[:40]!r} was read before"
            )

    def all_sends(self) -> list[Send]:
        return [send for sends in self.sends.values() for send in sends]

    def summary(self) -> str:
        sends = self.all_sends()
        ok = sum(send.outcome is Outcome.OK for send in sends)
        read = sum(map(len, self.reads.values()))
        acts = sum(act.outcome is Outcome.OK for act in self.acts)
        return f"{ok}/{len(sends)} batches acknowledged, {read} records read, {acts} admin acts"
