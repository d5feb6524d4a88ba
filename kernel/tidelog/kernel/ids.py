"""Names for the numbers that must not be mixed up.

Offsets of a partition are exclusive ends unless a name says otherwise: the log end offset
(LEO), the high watermark (HW) and the last stable offset (LSO) are each the first offset
*not* covered.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final, NewType

Offset = NewType("Offset", int)
"""A position in a partition's log."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""The term of a partition's leader; the metadata log uses its Raft term."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts every change the controller makes to a partition."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""One registration of a broker: the metadata offset of its registration record."""

NodeId = NewType("NodeId", int)
PartitionIndex = NewType("PartitionIndex", int)

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
CoordinatorEpoch = NewType("CoordinatorEpoch", int)

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970, as records carry them; −1 means none."""

NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_NODE: Final = NodeId(-1)
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)


@dataclass(frozen=True, slots=True, order=True)
class Uuid:
    """128 bits, printed the way Kafka does: 22 characters of URL-safe base64."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Uuid:
        try:
            raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
            return cls(raw)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a uuid of 22 base64url characters") from error

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.raw)[:22].decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({self})"


ZERO_UUID: Final = Uuid(bytes(16))

TopicId = NewType("TopicId", Uuid)
DirectoryId = NewType("DirectoryId", Uuid)
IncarnationId = NewType("IncarnationId", Uuid)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by the name of its topic: the form used at the edges and in file names."""

    topic: str
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
