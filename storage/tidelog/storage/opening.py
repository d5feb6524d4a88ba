"""What is known of a log before it is opened, and what opening it found.

The verdict says what a restart cost, because a replica that lost acknowledged data must not
lead while a sound one exists:

- *clean*: nothing had to be cut;
- *torn tail*: a write that was under way; nothing sound lies behind the cut, and the cut lies
  at or above both the recovery point and the checkpointed high watermark;
- *suspect*: anything else. The bytes that were cut off are kept in a file beside the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidelog.kernel.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from tidelog.kernel.ports import Disk, Random
from tidelog.kernel.settings import TopicConfig


class Verdict(Enum):
    CLEAN = "clean"
    TORN_TAIL = "torn tail"
    SUSPECT = "suspect"


@dataclass(slots=True)
class Report:
    """What opening a log found and did; for the node's log and for its registration."""

    tp: TopicPartition
    verdict: Verdict = Verdict.CLEAN
    last_epoch: LeaderEpoch = LeaderEpoch(-1)
    end_offset: Offset = Offset(0)
    bytes_verified: int = 0
    bytes_cut: int = 0
    repairs: list[str] = field(default_factory=list)

    def note(self, repair: str) -> None:
        self.repairs.append(repair)

    def suspect(self, reason: str) -> None:
        """Data that others count on may be missing here."""
        self.verdict = Verdict.SUSPECT
        self.note(reason)


@dataclass(frozen=True, slots=True)
class Opening:
    """What the node knows about a log before it is opened."""

    disk: Disk
    directory: str
    tp: TopicPartition
    config: TopicConfig
    random: Random
    now_ms: TimestampMs
    was_clean: bool
    """The clean-shutdown marker was there and this log is not otherwise in doubt."""
    recovery_point: Offset = Offset(0)
    log_start: Offset = Offset(0)
    high_watermark: Offset = Offset(0)
    is_distrusted: bool = False
    """An fsync failed here: only what the recovery point vouches for is kept."""
