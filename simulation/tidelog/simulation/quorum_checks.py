"""What must hold for the metadata quorum at every moment (Raft paper, figure 3), from outside.

- Election safety: at most one leader per term; a member's term never goes back while it lives.
- Log matching: an offset and a term name one entry with one predecessor.
- Leader completeness: a leader holds everything that was committed in earlier terms.
- State-machine safety: all members commit the same entries; nothing committed is cut.
- Durability: what a leader commits is on the disks of a majority of its voters, whatever the power
  does.
- Image equality: equal offsets mean equal images, on controllers and brokers.
- Epochs of partitions and brokers only grow from image to image.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import LEADERLESS
from tidelog.controller.raft.model import Entry, ReplicaKey
from tidelog.controller.raft.node import QuorumStatus, RaftNode
from tidelog.controller.raft.roles import Role
from tidelog.kernel.ids import Offset
from tidelog.simulation.changes import Changes
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.history import Violation
from tidelog.simulation.image_equality import ImageEquality
from tidelog.simulation.log_scan import LogScan
from tidelog.storage.names import METADATA_TOPIC

_IMAGES_KEPT: Final = 400
_SNAPSHOT_SUFFIX: Final = ".checkpoint"


@dataclass(slots=True)
class _Member:
    """What was seen of one member in one life."""

    life: str
    term: int = 0
    checked_end: int = -1
    led_term: int = -1
    log_end: int = -1
    role: Role | None = None
    image_offset: int = -1


@dataclass(slots=True)
class _Chain:
    """All committed entries, and the term of the leader that was the first seen to have them."""

    entries: dict[Offset, Entry] = field(default_factory=dict)
    committed_in: dict[Offset, int] = field(default_factory=dict)
    end: Offset = Offset(0)


class QuorumChecks:
    """``look`` after every event, or often."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        flipped: Collection[int] = (),
        failing: Collection[int] = (),
    ) -> None:
        self._cluster = cluster
        self._controllers, self._brokers = Changes(cluster), Changes(cluster)
        self._undurable = frozenset((*flipped, *failing))
        self._members: dict[int, _Member] = {}
        self._leaders: dict[int, ReplicaKey] = {}
        self._chain = _Chain()
        self._named: dict[tuple[Offset, int], tuple[Entry, int]] = {}
        self._images: dict[Offset, tuple[str, MetadataImage]] = {}
        self._equality = ImageEquality()
        self._newest = MetadataImage()
        self._broker_offsets: dict[int, int] = {}
        self._scans: dict[int, LogScan] = {}
        self.elections = 0

    @property
    def committed_end(self) -> int:
        return self._chain.end

    def look(self) -> None:
        for number, process in self._controllers.among(self._cluster.plan.controllers):
            quorum = self._cluster.quorum(number)
            if quorum is None or quorum.raft is None:
                continue
            member = self._members.get(number)
            if member is None or member.life != process.name:
                member = self._members[number] = _Member(process.name)
            self._look_at(number, member, quorum.raft)
            self._look_at_image(number, member)
        self._look_at_brokers()

    # --- one member --------------------------------------------------------------------

    def _look_at(self, number: int, member: _Member, raft: RaftNode) -> None:
        term = raft.term
        if term < member.term:
            raise Violation(f"{member.life} went back to term {term}")
        member.term = term
        if raft.is_leader and member.led_term != term:
            member.led_term = term
            self._elected(member, self._key(number), raft.status, raft)
        if raft.high_watermark > member.checked_end:
            status = raft.status
            self._check_committed(member, status, raft)
            if status.role is Role.LEADER:
                self._check_on_disks(member, status)
            member.checked_end = status.high_watermark

    def _elected(
        self, member: _Member, key: ReplicaKey, status: QuorumStatus, raft: RaftNode
    ) -> None:
        self.elections += 1
        if self._leaders.setdefault(status.term, key) != key:
            raise Violation(
                f"term {status.term} is led by {self._leaders[status.term]} and by {key}"
            )
        held = raft.entries_between(status.log_start, status.log_end)
        self._check_matching(member, held)
        mine = {entry.base_offset: entry for entry in held}
        for base, entry in self._chain.entries.items():
            is_due = self._chain.committed_in[base] < status.term and base >= status.log_start
            if is_due and mine.get(base) != entry:
                raise Violation(f"{member.life} leads term {status.term} without {entry}")
        if status.log_start > self._chain.end:
            raise Violation(f"{member.life} begins at {status.log_start}, which was not committed")

    def _check_matching(self, member: _Member, held: Sequence[Entry]) -> None:
        """An offset and a term name one entry, and with it all before it."""
        term_before = -1
        for entry in held:
            name = (entry.base_offset, entry.term)
            known, known_before = self._named.setdefault(name, (entry, term_before))
            if known != entry or (
                term_before != known_before and -1 not in (known_before, term_before)
            ):
                raise Violation(
                    f"{member.life} has {entry} after term {term_before}, others {known}"
                )
            term_before = entry.term

    def _check_committed(self, member: _Member, status: QuorumStatus, raft: RaftNode) -> None:
        chain = self._chain
        start = Offset(max(member.checked_end, status.log_start))
        for entry in raft.entries_between(start, status.high_watermark):
            known = chain.entries.get(entry.base_offset)
            if known is None:
                if entry.base_offset != chain.end:
                    raise Violation(f"{member.life} commits {entry}, but {chain.end} comes next")
                chain.entries[entry.base_offset] = entry
                chain.committed_in[entry.base_offset] = status.term
                chain.end = entry.end_offset
            elif known != entry:
                raise Violation(f"{member.life} commits {entry}, others {known}")

    def _check_on_disks(self, member: _Member, status: QuorumStatus) -> None:
        """A majority has it for sure; who may lie about its disk is given the benefit of doubt."""
        end = status.high_watermark
        holders = [
            key
            for key in status.voters
            if key.node_id in self._undurable or self._safe_end(key) >= end
        ]
        if len(holders) < status.voters.majority:
            held = {str(key.node_id): self._safe_end(key) for key in status.voters}
            raise Violation(
                f"{member.life} commits up to {end} in term {status.term}; on disks is {held}"
            )

    def _safe_end(self, key: ReplicaKey) -> int:
        """How much of the metadata log this voter surely has after power loss."""
        number = int(key.node_id)
        if number not in self._cluster.nodes or self._key(number) != key:
            return -1
        directory = f"{self._cluster.nodes[number].metadata_dir}/{METADATA_TOPIC}-0"
        view = self._cluster.disk_view(number)
        snapshot = max(
            (
                int(file.name[:20])
                for file in view.files(directory, _SNAPSHOT_SUFFIX)
                if file.safe_bytes == file.content.size
            ),
            default=0,
        )
        scan = self._scans.setdefault(number, LogScan(directory))
        return max(snapshot, scan.safe_end(view, snapshot))

    def _key(self, number: int) -> ReplicaKey:
        return self._cluster.replica_key(number)

    # --- images ------------------------------------------------------------------------

    def _look_at_image(self, number: int, member: _Member) -> None:
        controller = self._cluster.controller(number)
        if controller is None or controller.committed.offset == member.image_offset:
            return
        image = controller.committed
        if image.offset < member.image_offset:
            raise Violation(f"{member.life} went back to metadata of offset {image.offset}")
        member.image_offset = image.offset
        self._compare(member.life, image)
        if image.offset > self._newest.offset:
            _check_progress(self._newest, image)
            self._newest = image

    def _look_at_brokers(self) -> None:
        for number, _ in self._brokers.among(self._cluster.plan.brokers):
            replicas = self._cluster.replicas(number)
            if replicas is not None and replicas.image.offset != self._broker_offsets.get(number):
                self._broker_offsets[number] = replicas.image.offset
                self._compare(f"broker {number}", replicas.image)

    def _compare(self, who: str, image: MetadataImage) -> None:
        first, known = self._images.setdefault(image.offset, (who, image))
        if not self._equality.holds(known, image):
            raise Violation(f"{who} and {first} have different metadata at {image.offset}")
        while len(self._images) > _IMAGES_KEPT:
            del self._images[next(iter(self._images))]


def _check_progress(before: MetadataImage, after: MetadataImage) -> None:
    """From one committed image to a later one, epochs only grow."""
    for broker_id, old in before.brokers.items():
        new = after.brokers.get(broker_id)
        if new is not None and new.epoch < old.epoch:
            raise Violation(f"broker {broker_id} went from epoch {old.epoch} to {new.epoch}")
    for topic_id, topic in after.topics.by_id.items():
        earlier = before.topics.by_id.get(topic_id)
        if earlier is topic:
            continue
        for index, state in topic.partitions.items():
            ref = PartitionRef(topic_id, index)
            check_state(ref, state)
            old_state = None if earlier is None else earlier.partitions.get(index)
            if old_state is not None and old_state is not state:
                check_change(ref, old_state, state)


def check_state(ref: PartitionRef, state: PartitionState) -> None:
    """What every state of a partition has to be."""
    if not set(state.isr) <= set(state.replicas) or len(set(state.isr)) != len(state.isr):
        raise Violation(f"{ref}: the ISR is no set of replicas in {state}")
    if len(state.directories) != len(state.replicas):
        raise Violation(f"{ref}: not one directory for each replica in {state}")
    if state.leader != LEADERLESS and state.leader not in state.isr:
        raise Violation(f"{ref}: the leader is not in sync in {state}")
    if set(state.elr) & set(state.isr):
        raise Violation(f"{ref}: ISR and ELR overlap in {state}")


def check_change(ref: PartitionRef, old: PartitionState, new: PartitionState) -> None:
    if new.leader_epoch < old.leader_epoch or new.partition_epoch < old.partition_epoch:
        raise Violation(f"{ref}: epochs went back from {old} to {new}")
    if new.leader_epoch == old.leader_epoch and new.leader != old.leader:
        raise Violation(f"{ref}: epoch {new.leader_epoch} has leaders {old.leader}, {new.leader}")
    if new.partition_epoch == old.partition_epoch and new.isr != old.isr:
        raise Violation(f"{ref}: partition epoch {new.partition_epoch} has ISRs {old}, {new}")
