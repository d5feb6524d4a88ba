"""The state of one classic group, and the small steps all parts of the machine share.

Owner: ``ClassicGroup``, which sets ``now_ms`` and collects ``effects`` for the length of one step.

Invariants:

- ``statics`` maps an instance id to the one member that holds it.
- A member id is in ``members`` or in ``pending``, never in both.
- ``leader`` is a member, or None if there are no members.
- ``state`` changes only through ``transition``, along the table in ``states``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from tidelog.coordinator.classic.events import (
    Append,
    Effect,
    JoinedMember,
    JoinResult,
    Protocol,
    Respond,
    Result,
    SyncResult,
)
from tidelog.coordinator.classic.history import Cause, CauseKind, RebalanceHistory
from tidelog.coordinator.classic.states import GroupState, check_transition
from tidelog.coordinator.records import GroupKey, GroupRecord, GroupValue, StoredMember
from tidelog.kernel.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""A new member that waits for its first join expires after this long (KAFKA-7610)."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_pending_members: int = 1_000
    """Ids given out and not used yet; beyond, the oldest are forgotten."""


class TimerKind(Enum):
    SESSION = auto()
    PENDING = auto()
    JOIN_PHASE = auto()
    INITIAL_DELAY = auto()
    SYNC_PHASE = auto()


class Timer(NamedTuple):
    kind: TimerKind
    member_id: str = ""


JOIN_PHASE: Final = Timer(TimerKind.JOIN_PHASE)
INITIAL_DELAY: Final = Timer(TimerKind.INITIAL_DELAY)
SYNC_PHASE: Final = Timer(TimerKind.SYNC_PHASE)


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = True
    """Has not had an answer to a join yet, so that nobody knows whether it is alive."""
    join_request: int | None = None
    sync_request: int | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """A leader's assignment is being written; nobody has it before that is done."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticReplaced:
    """A static member came back under a new id in a stable group; the record of that."""

    request_id: int
    result: JoinResult
    old_member: Member
    new_id: str


@dataclass(frozen=True, slots=True)
class AnswersHeld:
    """Answers that wait for the record of a group that is new or has become empty."""

    answers: tuple[Respond, ...]


Write = AssignmentWritten | StaticReplaced | AnswersHeld


@dataclass(slots=True)
class GroupCore:
    group_id: str
    settings: GroupSettings
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    state_changed_ms: int = -1
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Ids given out under KIP-394, oldest first, with the session time-out asked for."""
    not_synced: set[str] = field(default_factory=set)
    timers: dict[Timer, int] = field(default_factory=dict)
    writes: dict[int, Write] = field(default_factory=dict)
    next_write_id: int = 0
    delay_left_ms: int = 0
    joined_in_delay: bool = False
    history: RebalanceHistory = field(default_factory=RebalanceHistory)
    now_ms: int = 0
    effects: list[Effect] = field(default_factory=list)

    # --- the one place where the state changes -------------------------------------------------

    def transition(self, new: GroupState) -> None:
        check_transition(self.group_id, self.state, new)
        self.previous_state, self.state = self.state, new
        self.state_changed_ms = self.now_ms

    # --- effects -------------------------------------------------------------------------------

    def respond(self, request_id: int, result: Result) -> None:
        self.effects.append(Respond(request_id, result))

    def append(self, record: GroupRecord, write: Write) -> None:
        self.writes[self.next_write_id] = write
        self.effects.append(Append(self.group_id, self.next_write_id, (record,)))
        self.next_write_id += 1

    def answer_join(self, member: Member, result: JoinResult) -> None:
        if member.join_request is not None:
            self.respond(member.join_request, result)
            member.join_request = None

    def answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.sync_request is not None:
            self.respond(member.sync_request, result)
            member.sync_request = None

    def release_syncs(self, error: ErrorCode) -> None:
        """Sends all waiting syncs back; their senders' sessions run again from now."""
        for member in self.members.values():
            if member.sync_request is not None:
                self.answer_sync(member, SyncResult(error))
                self.arm_session(member)

    # --- timers --------------------------------------------------------------------------------

    def arm(self, timer: Timer, delay_ms: int) -> None:
        self.timers[timer] = self.now_ms + delay_ms

    def cancel(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def arm_session(self, member: Member) -> None:
        self.arm(Timer(TimerKind.SESSION, member.member_id), member.session_timeout_ms)

    # --- members -------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether the sender is who it says; an instance id is looked at first (KIP-345)."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add_member(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.drop_pending(member.member_id)
        self.arm(Timer(TimerKind.SESSION, member.member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)

    def remove_member(self, member_id: str) -> Member:
        """Takes a member out; requests of it that wait are told that it is unknown."""
        member = self.members.pop(member_id)
        self.fail_requests(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if member.instance_id is not None:
            self.statics.pop(member.instance_id, None)
        self.not_synced.discard(member_id)
        self.cancel(Timer(TimerKind.SESSION, member_id))
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def fail_requests(self, member: Member, error: ErrorCode) -> None:
        self.answer_join(member, JoinResult(error, member.member_id))
        self.answer_sync(member, SyncResult(error))

    def add_pending(self, member_id: str, session_timeout_ms: int) -> None:
        while len(self.pending) >= self.settings.max_pending_members:
            self.drop_pending(next(iter(self.pending)))
        self.pending[member_id] = session_timeout_ms
        self.arm(Timer(TimerKind.PENDING, member_id), session_timeout_ms)

    def drop_pending(self, member_id: str) -> bool:
        self.cancel(Timer(TimerKind.PENDING, member_id))
        return self.pending.pop(member_id, None) is not None

    @property
    def joining_count(self) -> int:
        return sum(member.join_request is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and self.joining_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the most patient member asks for."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    # --- protocols -----------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        names = {protocol.name for protocol in protocols}
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and bool(names & self._common(names))

    def _common(self, names: set[str]) -> set[str]:
        for member in self.members.values():
            names = names & {protocol.name for protocol in member.protocols}
        return names

    def select_protocol(self) -> str:
        """Every member votes for its first choice among what all support; the most votes win.

        Kafka leaves open who wins a draw; here the leader's order decides.
        """
        assert self.leader is not None, "a group with members has a leader"
        order = [protocol.name for protocol in self.members[self.leader].protocols]
        common = self._common(set(order))
        votes = dict.fromkeys((name for name in order if name in common), 0)
        for member in self.members.values():
            votes[next(each.name for each in member.protocols if each.name in common)] += 1
        return max(votes, key=votes.__getitem__)

    # --- views ---------------------------------------------------------------------------------

    def cause(self, kind: CauseKind, member_id: str) -> Cause:
        return Cause(self.now_ms, kind, member_id)

    def members_for_leader(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata_for(self.protocol))
            for each in self.members.values()
        )

    def current_join_result(self, member: Member) -> JoinResult:
        """The generation as it is; the members only for the leader."""
        leads = member.member_id == self.leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members=self.members_for_leader() if leads else (),
        )

    def sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def as_record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """The group as it would be stored, with new assignments in place of the present ones."""
        members = tuple(
            StoredMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.session_timeout_ms,
                each.metadata_for(self.protocol),
                each.assignment if assignments is None else assignments.get(each.member_id, b""),
            )
            for each in self.members.values()
        )
        leader = self.leader if members else None
        value = GroupValue(
            self.protocol_type,
            self.generation,
            self.protocol,
            leader,
            self.state_changed_ms,
            members,
        )
        return GroupRecord(GroupKey(self.group_id), value)
