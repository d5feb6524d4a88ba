"""Where replicas of new partitions go.

Goals, in this order: a partition's replicas lie on as many racks as possible; leaders are spread
evenly over the brokers; replicas are spread evenly over the brokers of a rack. Brokers that are
fenced never lead, and get a replica only when their rack has no live broker left to give.

Leaders follow a ring that takes one broker from each rack in turn; when every live broker has led
once, the ring is shuffled, so that the same neighbours do not always share partitions. A
partition's other replicas come from the racks that follow its leader's, each giving the broker
with the fewest replicas so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import NodeIds
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.kernel.ports import Random

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that can be given replicas."""

    broker: NodeId
    rack: str | None
    is_live: bool


def candidates(image: MetadataImage) -> list[Candidate]:
    return [
        Candidate(broker_id, image.brokers[broker_id].rack, image.brokers[broker_id].is_active)
        for broker_id in sorted(image.brokers)
    ]


def place_replicas(
    brokers: Sequence[Candidate], partitions: int, factor: int, random: Random
) -> list[NodeIds]:
    """A replica list for each partition, the leader first; raises Refused."""
    live = sum(1 for candidate in brokers if candidate.is_live)
    if factor > len(brokers):
        raise _impossible(
            factor,
            f"The target replication factor of {factor} cannot be reached because only"
            f" {len(brokers)} broker(s) are registered.",
        )
    if live == 0:
        raise _impossible(factor, "All brokers are currently fenced.")
    placer = _Placer(brokers, random)
    return [placer.place(factor) for _ in range(partitions)]


def _impossible(factor: int, reason: str) -> Refused:
    message = f"Unable to replicate the partition {factor} time(s): {reason}"
    return Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class _Placer:
    def __init__(self, brokers: Sequence[Candidate], random: Random) -> None:
        self._random = random
        self._racks: list[list[Candidate]] = _by_rack(brokers)
        self._replicas = {candidate.broker: 0 for candidate in brokers}
        self._ring: list[Candidate] = []
        self._rotate_racks()

    def _rotate_racks(self) -> None:
        """A random place to begin, in the list of racks and in each rack."""
        self._racks = [_rotated(rack, self._random) for rack in _rotated(self._racks, self._random)]
        self._ring = list(_interleaved(self._racks))
        self._next_leader = 0

    def _shuffle(self) -> None:
        self._racks = _shuffled(self._racks, self._random)
        self._racks = [_shuffled(rack, self._random) for rack in self._racks]
        self._ring = list(_interleaved(self._racks))
        self._next_leader = 0

    def place(self, factor: int) -> NodeIds:
        if self._next_leader == len(self._ring):
            self._shuffle()
        leader = self._ring[self._next_leader]
        self._next_leader += 1
        chosen = [leader.broker]
        rack = next(i for i, members in enumerate(self._racks) if leader in members)
        while len(chosen) < factor:
            rack = (rack + 1) % len(self._racks)
            pick = self._pick(self._racks[rack], leader, chosen)
            if pick is not None:
                chosen.append(pick)
        for broker in chosen:
            self._replicas[broker] += 1
        return tuple(chosen)

    def _pick(
        self, rack: list[Candidate], leader: Candidate, chosen: list[NodeId]
    ) -> NodeId | None:
        start = rack.index(leader) if leader in rack else self._next_leader
        free = [
            (not candidate.is_live, self._replicas[candidate.broker], (i - start) % len(rack), i)
            for i, candidate in enumerate(rack)
            if candidate.broker not in chosen
        ]
        return rack[min(free)[3]].broker if free else None


def _by_rack(brokers: Iterable[Candidate]) -> list[list[Candidate]]:
    racks: dict[tuple[bool, str], list[Candidate]] = {}
    for candidate in sorted(brokers, key=lambda one: one.broker):
        key = (candidate.rack is not None, candidate.rack or "")
        racks.setdefault(key, []).append(candidate)
    return [racks[key] for key in sorted(racks)]


def _interleaved(racks: list[list[Candidate]]) -> Iterable[Candidate]:
    """The live brokers, one from each rack in turn."""
    live = [[candidate for candidate in rack if candidate.is_live] for rack in racks]
    for position in range(max(len(rack) for rack in live)):
        for rack in live:
            if position < len(rack):
                yield rack[position]


def _rotated(items: list[T], random: Random) -> list[T]:
    start = random.randrange(0, len(items))
    return items[start:] + items[:start]


def _shuffled(items: list[T], random: Random) -> list[T]:
    mixed = list(items)
    for last in range(len(mixed) - 1, 0, -1):
        other = random.randrange(0, last + 1)
        mixed[last], mixed[other] = mixed[other], mixed[last]
    return mixed
