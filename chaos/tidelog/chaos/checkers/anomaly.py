"""What must not be, as a sentence for a person and the operations that show it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelog.chaos.history import Operation, Record


class Kind(Enum):
    """The anomalies a history can show; the value is what a person reads."""

    LOST_WRITE = "lost write"
    """Acknowledged, and not there at the end."""
    DUPLICATE = "duplicate"
    """There twice."""
    REORDER = "reorder"
    """Two records of a key in another order than they were written."""
    INCONSISTENT_OFFSET = "inconsistent offset"
    """Two records at one offset, or one that is elsewhere than was acknowledged."""
    INVENTED_RECORD = "invented record"
    """Nobody wrote it, or its writer was told that it failed."""
    ABORTED_READ = "aborted read"
    """Of a transaction that was aborted, and yet a consumer got it."""
    TORN_TRANSACTION = "torn transaction"
    """Some of it is there and some is not."""
    NON_MONOTONIC_POLL = "non-monotonic poll"
    """A consumer's position went back or stood still."""
    UNSEEN = "unseen"
    """A consumer read past it without getting it, though it is there."""
    STALE_GROUP_OFFSET = "stale group offset"
    """A group's offset fell behind one whose commit was acknowledged."""
    RESURRECTED_KEY = "resurrected key"
    """An old value of a key came back after a newer one or a tombstone."""
    DIVERGENCE = "divergence"
    """The files of two replicas differ."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    text: str
    """One sentence."""
    operations: tuple[Operation, ...] = ()
    """Those that show it, in the order in which the sentence speaks of them."""
    topic: str = ""
    partition: int = -1
    offset: int | None = None


def named(record: Record | Operation) -> str:
    """A record by its key and number: ``k7#12``."""
    if record.sequence is None:
        return f"the tombstone of {record.key}"
    return f"{record.key}#{record.sequence}"


def seconds(at_ms: float | None) -> str:
    return "the end of the run" if at_ms is None else f"{at_ms / 1000:.3f} s"
