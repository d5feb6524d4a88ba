"""Changes of partitions that a node holds replicas of: told in the log, each with its cause.

The controller decides, and logs why with each decision; what reaches a broker is the new state.
From the two states and the brokers of that moment the cause can be told again, so that the log of
any one replica reads as the partition's story. The log is written after the change took effect and
a few lines at a time: with thousands of partitions a failover must not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.ids import NodeId

log = logging.getLogger("tidelog.state_change")

_LINES_PER_TURN: Final = 50


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    """created, leader, leaderless, isr-shrunk, isr-grown, assignment or other."""
    cause: str


def change_of(
    before: PartitionState | None, after: PartitionState, image: MetadataImage
) -> Change | None:
    """What happened to a partition and why; None if nothing that anybody would ask about."""
    if before is None:
        return Change("created", "its topic was created, or this broker has just learnt of it")
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        return _change_of_leader(before, after, image)
    if before.replicas != after.replicas or before.adding != after.adding:
        return Change("assignment", "it is being reassigned")
    if before.isr != after.isr:
        gone = [node for node in before.isr if node not in after.isr]
        if gone:
            return Change("isr-shrunk", "; ".join(_why_out(node, image) for node in gone))
        come = [str(node) for node in after.isr if node not in before.isr]
        return Change("isr-grown", f"broker {', '.join(come)} caught up")
    if before.partition_epoch != after.partition_epoch:
        return Change("other", "the controller noted something about its replicas")
    return None


def _change_of_leader(
    before: PartitionState, after: PartitionState, image: MetadataImage
) -> Change:
    if not after.has_leader:
        why = _why_out(before.leader, image) if before.has_leader else "nobody may lead it"
        return Change("leaderless", f"{why}, and no replica may take its place")
    if not before.has_leader:
        return Change("leader", f"broker {after.leader} may lead it again")
    if before.leader == after.leader:
        return Change("leader", "its leader was elected again")
    registration = image.brokers.get(before.leader)
    if registration is not None and registration.is_active:
        if after.has_preferred_leader:
            return Change("leader", f"broker {after.leader} is its preferred leader")
        if before.leader not in after.replicas:
            return Change("leader", f"broker {before.leader} gave its replica away")
    return Change("leader", _why_out(before.leader, image))


def _why_out(node: NodeId, image: MetadataImage) -> str:
    registration = image.brokers.get(node)
    if registration is None:
        return f"broker {node} is not registered any more"
    if registration.fenced:
        return f"broker {node} is fenced"
    if registration.in_controlled_shutdown:
        return f"broker {node} shuts down"
    return f"broker {node} fell behind, or its log directory failed"


class StateChanges:
    """Subscribed to a broker's metadata; ``counts`` are by kind, for the metrics."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.counts: Counter[str] = Counter()
        self.isr_shrinks = 0
        self.isr_expands = 0
        self._untold: deque[tuple[str, PartitionState | None, PartitionState, Change, int]]
        self._untold = deque()
        self._is_telling = False

    def note(self, delta: MetadataDelta) -> None:
        for ref in delta.partitions:
            self._note(ref, delta)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._untold and not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _note(self, ref: PartitionRef, delta: MetadataDelta) -> None:
        before, after = delta.before.topics.partition(ref), delta.after.topics.partition(ref)
        me = self._node_id
        if after is None or not (me in after.replicas or (before and me in before.replicas)):
            return
        change = change_of(before, after, delta.after)
        if change is None:
            return
        self.counts[change.kind] += 1
        if before is not None and before.leader == after.leader == me:
            self.isr_shrinks += len(after.isr) < len(before.isr)
            self.isr_expands += len(after.isr) > len(before.isr)
        # Whether anybody reads it or not: what the loop does must not depend on a log level.
        name = f"{delta.after.topics.by_id[ref.topic_id].name}-{ref.partition}"
        self._untold.append((name, before, after, change, delta.after.offset))

    def _tell_some(self) -> None:
        for _ in range(min(_LINES_PER_TURN, len(self._untold))):
            _tell(*self._untold.popleft())
        self._is_telling = False
        self._tell_soon()


def _tell(
    name: str, before: PartitionState | None, after: PartitionState, change: Change, offset: int
) -> None:
    log.info(
        "%s: leader %s epoch %d isr %s replicas %s (%s), because %s",
        name, after.leader, after.leader_epoch, list(after.isr), list(after.replicas),
        change.kind, change.cause,
        extra={
            "partition": name,
            "change": change.kind,
            "cause": change.cause,
            "leader": after.leader,
            "former_leader": None if before is None else before.leader,
            "leader_epoch": after.leader_epoch,
            "partition_epoch": after.partition_epoch,
            "isr": list(after.isr),
            "former_isr": None if before is None else list(before.isr),
            "metadata_offset": offset,
        },
    )  # fmt: skip
