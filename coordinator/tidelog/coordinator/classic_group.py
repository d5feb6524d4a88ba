"""One classic consumer group as a pure machine.

``step(now_ms, event)`` changes the group and returns what is to be done: answers, and records to
write. Between steps the owner watches ``next_deadline_ms`` and sends ``TimePassed`` when it is
reached. A group reloaded from its records goes on where the records end.

How members share the work is none of the machine's business: subscriptions and assignments are
bytes. Eager and cooperative clients (KIP-429) differ in what they keep while they rejoin, and in
nothing that can be seen here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, assert_never

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.core import (
    AnswersHeld,
    AssignmentWritten,
    GroupCore,
    GroupSettings,
    Member,
)
from tidelog.coordinator.classic.history import CauseKind, Rebalance, RebalanceHistory
from tidelog.coordinator.classic.joining import join
from tidelog.coordinator.classic.leaving import expire, leave
from tidelog.coordinator.classic.rebalancing import rebalance_or_complete
from tidelog.coordinator.classic.states import GroupState
from tidelog.coordinator.classic.syncing import append_finished, heartbeat, sync
from tidelog.coordinator.records import GroupRecord, GroupValue, StoredMember
from tidelog.kernel.errors import ErrorCode

__all__ = ["ClassicGroup", "GroupDescription", "GroupSettings", "GroupState"]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """What DescribeGroups shows; metadata is shown only where a protocol is agreed upon."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str | None
    generation: int
    leader: str | None
    members: tuple[StoredMember, ...]


class ClassicGroup:
    __slots__ = ("_core",)

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self._core = GroupCore(group_id, settings)

    @classmethod
    def load(cls, group_id: str, value: GroupValue, settings: GroupSettings, now_ms: int) -> Self:
        """The group of a record; its members have one session time-out to show up again."""
        group = cls(group_id, settings)
        core = group._core
        core.now_ms = now_ms
        core.state = GroupState.STABLE if value.members else GroupState.EMPTY
        core.previous_state = core.state
        core.state_changed_ms = value.state_changed_ms
        core.generation = value.generation
        core.protocol_type, core.protocol = value.protocol_type, value.protocol
        for stored in value.members:
            member = _loaded(stored, value.protocol)
            core.add_member(member, value.protocol_type)
            core.arm_session(member)
        if value.leader in core.members:
            core.leader = value.leader
        return group

    @classmethod
    def rebuild(
        cls,
        group_id: str,
        value: GroupValue,
        protocols: Mapping[str, tuple[e.Protocol, ...]],
        settings: GroupSettings,
        now_ms: int,
    ) -> Self:
        """As from its record, but with all that the members offer: it was of the other protocol."""
        group = cls.load(group_id, value, settings, now_ms)
        for member in group._core.members.values():
            member.protocols = protocols[member.member_id]
        return group

    def continue_from(self, history: RebalanceHistory, next_write_id: int) -> None:
        """Takes over what was remembered of it under the other protocol."""
        self._core.history = history
        self._core.next_write_id = next_write_id

    def ask_to_rejoin(self, now_ms: int, kind: CauseKind, member_id: str) -> list[e.Effect]:
        """Starts a rebalance that no request asked for."""
        core = self._core
        core.now_ms = now_ms
        core.effects = []
        rebalance_or_complete(core, core.cause(kind, member_id))
        effects, core.effects = core.effects, []
        return effects

    @property
    def group_id(self) -> str:
        return self._core.group_id

    @property
    def state(self) -> GroupState:
        return self._core.state

    @property
    def state_changed_ms(self) -> int:
        return self._core.state_changed_ms

    @property
    def generation(self) -> int:
        return self._core.generation

    @property
    def protocol_type(self) -> str:
        return self._core.protocol_type

    @property
    def is_simple(self) -> bool:
        """Only holds offsets: somebody commits who never joined."""
        return self.state is GroupState.EMPTY and not self._core.protocol_type

    @property
    def is_unused(self) -> bool:
        """Nobody ever joined, and nobody is about to."""
        core = self._core
        return self.is_simple and not core.pending and not core.writes and core.generation == 0

    @property
    def next_deadline_ms(self) -> int | None:
        return min(self._core.timers.values(), default=None)

    @property
    def pending_count(self) -> int:
        return len(self._core.pending)

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The last rebalances with their causes, oldest first."""
        return self._core.history.entries

    @property
    def history(self) -> RebalanceHistory:
        return self._core.history

    def protocols(self) -> dict[str, tuple[e.Protocol, ...]]:
        """What each member offers, in its order."""
        return {each.member_id: each.protocols for each in self._core.members.values()}

    def record(self) -> GroupRecord:
        """The group as it is, to be stored."""
        return self._core.as_record()

    def describe(self) -> GroupDescription:
        core = self._core
        value = core.as_record().value
        assert value is not None, "only a deleted group has no value"
        agreed = core.state is GroupState.STABLE
        protocol = core.protocol if agreed else None
        members = value.members if agreed else tuple(map(_without_metadata, value.members))
        return GroupDescription(
            core.group_id,
            core.state,
            core.protocol_type,
            protocol,
            core.generation,
            core.leader,
            members,
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        return self._core.check_member(member_id, instance_id)

    def subscriptions(self) -> tuple[bytes, ...]:
        """What the members told the assignor that was chosen."""
        core = self._core
        return tuple(each.metadata_for(core.protocol) for each in core.members.values())

    def keep_alive(self, now_ms: int, member_id: str) -> None:
        """A commit counts as a heartbeat."""
        if member := self._core.members.get(member_id):
            self._core.now_ms = now_ms
            self._core.arm_session(member)

    def hold_for_record(self, answers: tuple[e.Respond, ...], record: GroupRecord) -> e.Append:
        """Writes a record of the group and keeps the answers back until that is done."""
        self._core.append(record, AnswersHeld(answers))
        effect = self._core.effects.pop()
        assert isinstance(effect, e.Append)
        return effect

    def step(self, now_ms: int, event: e.Event) -> list[e.Effect]:
        core = self._core
        core.now_ms = now_ms
        core.effects = []
        match event:
            case e.JoinGroup():
                join(core, event)
            case e.SyncGroup():
                sync(core, event)
            case e.Heartbeat():
                heartbeat(core, event)
            case e.LeaveGroup():
                leave(core, event)
            case e.AppendFinished():
                append_finished(core, event)
            case e.TimePassed():
                expire(core)
            case e.Closed():
                _close(core, event.error)
            case other:
                assert_never(other)
        effects, core.effects = core.effects, []
        return effects


def _close(core: GroupCore, error: ErrorCode) -> None:
    if core.state is GroupState.DEAD:
        return
    for member in core.members.values():
        core.fail_requests(member, error)
    for write_id, write in list(core.writes.items()):
        # Who waits for an assignment has its answer already, and no rebalance is to follow.
        if not isinstance(write, AssignmentWritten):
            append_finished(core, e.AppendFinished(write_id, error))
    core.writes.clear()
    core.members.clear()
    core.statics.clear()
    core.pending.clear()
    core.timers.clear()
    core.not_synced.clear()
    core.leader = None
    core.transition(GroupState.DEAD)


def _loaded(stored: StoredMember, protocol: str | None) -> Member:
    return Member(
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout_ms,
        stored.rebalance_timeout_ms,
        (e.Protocol(protocol or "", stored.subscription),),
        stored.assignment,
        is_new=False,
    )


def _without_metadata(member: StoredMember) -> StoredMember:
    return StoredMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        b"",
        member.assignment,
    )
