"""How far a leader's log reaches, which no batch that it sends may pass.

No checksum covers a batch's base offset and leader epoch. One that was damaged there on the
leader's disk would otherwise take its place on every replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.kernel.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import CorruptBatch


@dataclass(frozen=True, slots=True)
class LeaderBounds:
    end: Offset
    epoch: LeaderEpoch

    def check(self, tp: TopicPartition, header: BatchHeader) -> None:
        """Raises ``CorruptBatch`` if the leader cannot have written such a batch."""
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"{tp}: last offset delta {header.last_offset_delta} < 0")
        if header.next_offset > self.end or header.leader_epoch > self.epoch:
            raise CorruptBatch(
                f"{tp}: the batch at offset {header.base_offset} of epoch {header.leader_epoch}"
                f" lies beyond its leader's log, which ends at {self.end} in epoch {self.epoch}"
            )


NO_BOUNDS: Final = LeaderBounds(Offset(2**64), LeaderEpoch(2**31))
