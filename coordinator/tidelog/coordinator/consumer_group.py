"""One group of the consumer protocol (KIP-848) as a pure machine.

``step(now_ms, event)`` changes the group and returns what is to be done: answers, and records to
write. Between steps the owner watches ``next_deadline_ms`` and sends ``TimePassed`` when it is
reached. A group is loaded by replaying its records in order.

The group has an epoch, which grows with every change of members, subscriptions or topics. For the
newest epoch there is, or will be, a *target assignment*. Every member has an epoch of its own and
walks to the target by itself, with its heartbeats: nobody has to stop and wait for all.

    change ──► group epoch ──► target assignment ──► each member: gives up, then takes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self, assert_never

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import CauseKind, Rebalance, RebalanceHistory
from tidelog.coordinator.consumer import classic_members
from tidelog.coordinator.consumer.assigning import assignor_name
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.conversion import (
    ClassicSnapshot,
    can_downgrade,
    classic_record,
    classic_snapshot,
    put_tombstones,
    seed,
)
from tidelog.coordinator.consumer.core import ConsumerCore, Timer, TimerKind
from tidelog.coordinator.consumer.events import (
    AppendDelayed,
    ConsumerHeartbeat,
    Effect,
    Event,
    RespondConsumer,
)
from tidelog.coordinator.consumer.heartbeat import assigned_topics, heartbeat
from tidelog.coordinator.consumer.leaving import expire, remove_members
from tidelog.coordinator.consumer.members import Member
from tidelog.coordinator.consumer.subscribing import all_subscribed_names
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.coordinator.server_assignors import Share
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid

__all__ = ["ConsumerGroup", "ConsumerGroupSettings", "ConsumerGroupState"]


class ConsumerGroupState(Enum):
    """The values are the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    ASSIGNING = "Assigning"
    """The newest epoch has no target assignment yet."""
    RECONCILING = "Reconciling"
    """Some members are on their way to the target."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or the coordinator moved away: nothing happens any more."""


@dataclass(frozen=True, slots=True)
class NamedShare:
    """Partitions of one topic, for people."""

    topic_id: Uuid
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    assigned: tuple[NamedShare, ...]
    target: tuple[NamedShare, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """What ConsumerGroupDescribe shows."""

    group_id: str
    state: ConsumerGroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]


class ConsumerGroup:
    __slots__ = ("_core", "became_classic")

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self._core = ConsumerCore(group_id, context)
        self.became_classic: ClassicSnapshot | None = None
        """Set by the step that left only classic members; the owner makes them a classic group."""

    @classmethod
    def upgraded(
        cls, group_id: str, context: GroupContext, members: list[Member], generation: int,
        now_ms: int,
    ) -> Self:  # fmt: skip
        """A group of classic members; its records go out with the step that follows."""
        group = cls(group_id, context)
        group._core.now_ms = now_ms
        seed(group._core, members, generation)
        return group

    def replace_on_write(self, records: Iterable[CoordinatorRecord]) -> None:
        """Records of what this new group stands in for; they go out with the first step."""
        self._core.add_foreign(records)

    # --- events --------------------------------------------------------------------------------

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        core = self._core
        core.now_ms = now_ms
        epoch = core.epoch
        match event:
            case e.AppendFinished(write_id, error):
                core.finish_write(write_id, error)
            case AppendDelayed(write_id):
                core.delay_write(write_id)
            case e.Closed(error):
                core.close(error)
            case _ if core.is_closed:
                return []
            case ConsumerHeartbeat():
                heartbeat(core, event)
            case e.JoinGroup():
                self._join(event)
            case e.SyncGroup():
                classic_members.sync(core, event)
            case e.Heartbeat():
                classic_members.heartbeat(core, event)
            case e.LeaveGroup():
                self._leave(event)
            case e.TimePassed():
                if gone := expire(core):
                    remove_members(core, gone)
            case other:
                assert_never(other)
        self._downgrade_if_all_are_classic(epoch)
        return core.end_step()

    def _join(self, event: e.JoinGroup) -> None:
        joining = classic_members.prepare_join(self._core, event)
        if isinstance(joining, e.JoinResult):
            self._core.refuse(e.Respond(event.request_id, joining))
        else:
            classic_members.join(self._core, event, joining)

    def _leave(self, event: e.LeaveGroup) -> None:
        left, gone = classic_members.check_leavers(self._core, event.members)
        if gone:
            remove_members(self._core, gone)
        answer = e.Respond(event.request_id, e.LeaveResult(ErrorCode.NONE, left))
        self._core.answer(answer)

    def _downgrade_if_all_are_classic(self, generation: int) -> None:
        """At the epoch before this step: most members are there, and understand what they hear."""
        core = self._core
        if not core.lost_members or not can_downgrade(core):
            return
        snapshot = classic_snapshot(core, generation)
        put_tombstones(core)
        core.add_foreign([classic_record(core.group_id, snapshot)])
        core.answers = [_at_generation(each, snapshot.value.generation) for each in core.answers]
        self.became_classic = snapshot

    def replay(self, record: r.ConsumerRecord, now_ms: int) -> None:
        """Loads one record; members have one session time-out from now to show up again.

        Whether they have heard what they were last given nobody knows.
        """
        core = self._core
        core.now_ms = now_ms
        core.replay(record)
        member = core.members.get(record.key.member_id or "")
        if member is None:
            for kind in TimerKind:
                core.cancel(Timer(kind, record.key.member_id or ""))
            core.unconfirmed.pop(record.key.member_id or "", None)
            return
        if not member.is_classic:
            core.unconfirmed[member.member_id] = now_ms
        core.arm_session(member)
        core.arm_rebalance(member)

    def delete(self, now_ms: int) -> tuple[r.ConsumerRecord, ...]:
        """The tombstones of a group without members; what waits is left to ``Closed``."""
        core = self._core
        core.now_ms = now_ms
        put_tombstones(core)
        records = tuple(each for each in core.draft if isinstance(each, r.ConsumerRecord))
        core.draft, core.before = [], []
        return records

    # --- views ---------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        return self._core.group_id

    @property
    def state(self) -> ConsumerGroupState:
        core = self._core
        if core.is_closed:
            return ConsumerGroupState.DEAD
        if not core.members:
            return ConsumerGroupState.EMPTY
        if core.epoch > core.target_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.STABLE if core.is_stable else ConsumerGroupState.RECONCILING

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def target_epoch(self) -> int:
        return self._core.target_epoch

    @property
    def is_unused(self) -> bool:
        """Nobody ever joined, or all that there was has been deleted."""
        return self._core.is_blank

    def awaits(self, write_id: int) -> bool:
        return write_id in self._core.writes

    @property
    def next_deadline_ms(self) -> int | None:
        return min(self._core.timers.values(), default=None)

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The last rebalances with their causes, oldest first."""
        return self._core.history.entries

    @property
    def history(self) -> RebalanceHistory:
        return self._core.history

    @history.setter
    def history(self, history: RebalanceHistory) -> None:
        self._core.history = history

    def member(self, member_id: str) -> Member | None:
        return self._core.members.get(member_id)

    def holds_since(self, member: Member, topic: str, partition: int) -> int | None:
        """The member epoch at which it got a partition; None if it does not have it."""
        info = self._core.topics.named(topic)
        return None if info is None else member.assigned.get(info.topic_id, {}).get(partition)

    def subscribed_topics(self) -> frozenset[str]:
        return all_subscribed_names(self._core)

    def note(self, now_ms: int, kind: CauseKind, member_id: str) -> None:
        self._core.now_ms = now_ms
        self._core.note_cause(kind, member_id)

    def keep_alive(self, now_ms: int, member_id: str) -> None:
        """Only for members of the classic protocol a commit counts as a heartbeat."""
        member = self._core.members.get(member_id)
        if member is not None and member.is_classic:
            self._core.now_ms = now_ms
            self._core.arm_session(member)

    def describe(self) -> ConsumerGroupDescription:
        core = self._core
        return ConsumerGroupDescription(
            core.group_id,
            self.state,
            core.epoch,
            core.target_epoch,
            assignor_name(core),
            tuple(map(self._describe_member, core.members.values())),
        )

    def _describe_member(self, member: Member) -> MemberDescription:
        metadata = member.metadata
        assigned = {each.topic_id: frozenset(each.partitions) for each in assigned_topics(member)}
        return MemberDescription(
            member.member_id,
            metadata.instance_id,
            metadata.rack_id,
            member.epoch,
            metadata.client_id,
            metadata.client_host,
            metadata.topic_names,
            metadata.topic_regex or "",
            self._named(assigned),
            self._named(self._core.target_for(member.member_id)),
            member.is_classic,
        )

    def _named(self, share: Share) -> tuple[NamedShare, ...]:
        """By name; topics that do not exist any more are left out."""
        found = ((self._core.topics.with_id(topic), share[topic]) for topic in sorted(share))
        return tuple(
            NamedShare(info.topic_id, info.name, tuple(sorted(indexes)))
            for info, indexes in found
            if info is not None
        )


def _at_generation(
    answer: RespondConsumer | e.Respond, generation: int
) -> RespondConsumer | e.Respond:
    """Whoever joins and so makes the group classic is in that group's generation."""
    match answer:
        case e.Respond(request_id, e.JoinResult() as result):
            member_id, protocol = result.member_id, result.protocol
            joined = e.JoinResult(
                result.error, member_id, generation, result.protocol_type, protocol
            )
            return e.Respond(request_id, joined)
        case _:
            return answer
