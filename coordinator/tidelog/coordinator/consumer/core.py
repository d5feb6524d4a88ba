"""The state of one group of the consumer protocol: nothing but what its records say.

Owner: ``ConsumerGroup``, which sets ``now_ms`` and collects the outcome of one step.

Every change goes through ``put``: it takes effect at once, and at the end of the step the records
of all changes go out in one write, with the answers that rely on it. Loading replays records
through the same door. A write that never reached the log is taken back by replaying what stood
there before. So the state is always that of the log plus the writes under way.

Invariants:

- ``statics`` maps an instance id to the one member that holds it.
- ``owners`` has every partition that a member is assigned or is giving up, with one owner each. A
  partition is free for others when the write that took it from its owner is in the log: if that
  write failed, the owner would have it still.
- The group epoch only grows, also past epochs of writes that failed.
- Nobody hears of a state before its records are replicated, or the next coordinator might tell
  others of the same epoch something else. An answer without records of its own waits for the writes
  under way, or is an error if these take so long that nobody waits for them any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.append_errors import group_write_error
from tidelog.coordinator.classic.events import Append
from tidelog.coordinator.classic.history import Cause, CauseKind, RebalanceHistory
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import Answer, Effect, failed
from tidelog.coordinator.consumer.members import (
    NEW,
    NOT_YET,
    Held,
    Member,
    MemberState,
    held_of,
    read_state,
    share_of,
    target_of,
)
from tidelog.coordinator.consumer.topics import Topics
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.coordinator.server_assignors import NOTHING, Share
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid

REPLICATED: Final = frozenset({ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""After these the records count, whatever the client is told."""


class TimerKind(Enum):
    SESSION = auto()
    REBALANCE = auto()
    """A member gives up partitions."""
    JOIN = auto()
    """A classic member was told to join again."""
    SYNC = auto()
    """A classic member joined and has not asked for its assignment yet."""


class Timer(NamedTuple):
    kind: TimerKind
    member_id: str


@dataclass(slots=True)
class Write:
    """Records under way: what they replaced, newest change first, and who waits for them."""

    before: list[r.ConsumerRecord]
    answers: list[Answer]
    released: set[tuple[Uuid, int]]
    """Partitions that have no owner any more if the write succeeds."""
    is_slow: bool = False
    """Who waited was sent away; it is in the leader's log, and perhaps in no other."""


@dataclass(slots=True)
class ConsumerCore:
    group_id: str
    context: GroupContext
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    assigned_ms: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Share] = field(default_factory=dict)
    regexes: dict[str, r.ResolvedRegex] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)
    owners: dict[Uuid, dict[int, str]] = field(default_factory=dict)
    timers: dict[Timer, int] = field(default_factory=dict)
    unconfirmed: dict[str, int] = field(default_factory=dict)
    """Members that have not said yet that they have just what they were given, and when they were
    last told."""
    writes: dict[int, Write] = field(default_factory=dict)
    history: RebalanceHistory = field(default_factory=RebalanceHistory)
    highest_epoch: int = 0
    seen_version: int = -1
    """The version of the topics that ``metadata_hash`` was last compared with."""
    dropped: tuple[str, ...] = ()
    """Members that were removed because they did not give up partitions in time."""
    is_closed: bool = False
    # For the length of one step:
    now_ms: int = 0
    lost_members: bool = False
    released: set[tuple[Uuid, int]] = field(default_factory=set)
    effects: list[Effect] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    draft: list[CoordinatorRecord] = field(default_factory=list)
    before: list[r.ConsumerRecord] = field(default_factory=list)

    @property
    def settings(self) -> ConsumerGroupSettings:
        return self.context.settings_of(self.group_id)

    @property
    def topics(self) -> Topics:
        return self.context.topics

    # --- changes -------------------------------------------------------------------------------

    def put(self, key: r.ConsumerKey, value: r.ConsumerValue | None) -> None:
        """The one way in which the state changes."""
        record = r.ConsumerRecord(key, value)
        self.before.append(r.ConsumerRecord(key, self.value_at(key)))
        self.draft.append(record)
        if key.key_type == r.CURRENT_KEY and (member := self.members.get(key.member_id or "")):
            self.released |= member.places()
        self.replay(record)

    def add_foreign(self, records: Iterable[CoordinatorRecord]) -> None:
        """Records that go out with this step's and are not this group's own state."""
        self.draft += records

    def put_member(self, member: Member) -> None:
        """Writes what is new about a member: its metadata, where it stands, or both."""
        known = self.members.get(member.member_id)
        if known is None or known.metadata != member.metadata:
            self.put(self.member_key(r.MEMBER_KEY, member.member_id), member.metadata)
            known = self.members[member.member_id]
        if known != member:
            self.put(self.member_key(r.CURRENT_KEY, member.member_id), member.current())

    def remove_member(self, member_id: str) -> None:
        self.lost_members = True
        for key_type in (r.CURRENT_KEY, r.TARGET_KEY, r.MEMBER_KEY):
            self.put(self.member_key(key_type, member_id), None)
        for kind in TimerKind:
            self.cancel(Timer(kind, member_id))
        self.unconfirmed.pop(member_id, None)

    def put_target(self, member_id: str, share: Share) -> None:
        self.put(self.member_key(r.TARGET_KEY, member_id), target_of(share))

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.put(self.group_key(r.EPOCH_KEY), r.GroupEpoch(epoch, metadata_hash))

    def put_regex(self, regex: str, value: r.ResolvedRegex | None) -> None:
        self.put(r.ConsumerKey(r.REGEX_KEY, self.group_id, None, regex), value)

    def group_key(self, key_type: int) -> r.ConsumerKey:
        return r.ConsumerKey(key_type, self.group_id)

    def member_key(self, key_type: int, member_id: str) -> r.ConsumerKey:
        return r.ConsumerKey(key_type, self.group_id, member_id)

    # --- records to state and back -------------------------------------------------------------

    def value_at(self, key: r.ConsumerKey) -> r.ConsumerValue | None:
        """What the newest record of a key says, None where there is none."""
        member = self.members.get(key.member_id or "")
        match key.key_type:
            case r.EPOCH_KEY:
                return r.GroupEpoch(self.epoch, self.metadata_hash) if self.epoch else None
            case r.TARGET_EPOCH_KEY:
                known = self.target_epoch
                return r.TargetEpoch(known, self.assigned_ms) if known else None
            case r.MEMBER_KEY:
                return None if member is None else member.metadata
            case r.CURRENT_KEY:
                value = None if member is None else member.current()
                return None if value == NOT_YET else value
            case r.TARGET_KEY:
                share = self.targets.get(key.member_id or "")
                return None if share is None else target_of(share)
            case r.REGEX_KEY:
                return self.regexes.get(key.regex or "")
        return None

    def replay(self, record: r.ConsumerRecord) -> None:
        key, value = record.key, record.value
        member_id = key.member_id or ""
        match key.key_type, value:
            case r.EPOCH_KEY, r.GroupEpoch(epoch, number):
                self.epoch, self.metadata_hash = epoch, number
                self.highest_epoch = max(epoch, self.highest_epoch)
            case r.EPOCH_KEY, None:
                self.epoch = self.metadata_hash = 0
            case r.TARGET_EPOCH_KEY, r.TargetEpoch(epoch, assigned_ms):
                self.target_epoch, self.assigned_ms = epoch, assigned_ms
            case r.TARGET_EPOCH_KEY, None:
                self.target_epoch = self.assigned_ms = 0
            case r.MEMBER_KEY, r.ConsumerMember() as metadata:
                self._replay_metadata(member_id, metadata)
            case r.MEMBER_KEY, None:
                self._replay_removal(member_id)
            case r.CURRENT_KEY, r.CurrentAssignment() | None as current:
                self._replay_current(member_id, current or NOT_YET)
            case r.TARGET_KEY, r.TargetAssignment() as target:
                self.targets[member_id] = share_of(target)
            case r.TARGET_KEY, None:
                self.targets.pop(member_id, None)
            case r.REGEX_KEY, r.ResolvedRegex() as resolved:
                self.regexes[key.regex or ""] = resolved
            case r.REGEX_KEY, None:
                self.regexes.pop(key.regex or "", None)

    def _replay_metadata(self, member_id: str, metadata: r.ConsumerMember) -> None:
        known = self.members.get(member_id)
        if known is None:
            self.members[member_id] = Member(member_id, metadata)
        else:
            self._release_instance(known)
            self.members[member_id] = replace(known, metadata=metadata)
        if metadata.instance_id is not None:
            self.statics[metadata.instance_id] = member_id

    def _replay_removal(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release_instance(member)
            self._release(member)

    def _release_instance(self, member: Member) -> None:
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.statics.get(instance_id) == member.member_id:
            del self.statics[instance_id]

    def _replay_current(self, member_id: str, current: r.CurrentAssignment) -> None:
        member = self.members.get(member_id)
        if member is None:
            if current == NOT_YET:
                return  # the rest of a member that is gone
            # In a compacted log the newest metadata of a member may stand behind its assignment.
            member = Member(member_id, NEW)
        self._release(member)
        changed = replace(
            member,
            epoch=current.member_epoch,
            previous_epoch=current.previous_member_epoch,
            state=read_state(current.state),
            assigned=held_of(current.assigned),
            revoking=held_of(current.pending_revocation),
        )
        self.members[member_id] = changed
        for held in (changed.assigned, changed.revoking):
            for topic, indexes in held.items():
                self.owners.setdefault(topic, {}).update(dict.fromkeys(indexes, member_id))

    def _release(self, member: Member) -> None:
        for held in (member.assigned, member.revoking):
            self._release_held(member.member_id, held)

    def _release_held(self, member_id: str, held: Held) -> None:
        for topic, indexes in held.items():
            owners = self.owners.get(topic, {})
            for index in indexes:
                if owners.get(index) == member_id:
                    del owners[index]
            if not owners:
                self.owners.pop(topic, None)

    # --- answers and writes --------------------------------------------------------------------

    def refuse(self, answer: Answer) -> None:
        """An error relies on nothing: it is told at once."""
        self.effects.append(answer)

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def end_step(self) -> list[Effect]:
        """Sends the step's records out, and its answers with them or after the writes before."""
        self._note_progress()
        if self.draft:
            write_id = self.context.new_write_id()
            released = {place for place in self.released if self._owner(*place) is None}
            self.writes[write_id] = Write(self.before[::-1], self.answers, released)
            self.effects.append(Append(self.group_id, write_id, tuple(self.draft)))
        elif self.writes:
            self._answer_after(self.writes[max(self.writes)])
        else:
            self.effects += self.answers
        effects, self.effects = self.effects, []
        self.answers, self.draft, self.before = [], [], []
        self.lost_members, self.released = False, set()
        return effects

    def _answer_after(self, write: Write) -> None:
        write.answers += self.answers
        if write.is_slow:
            self._send_away(write)

    def _send_away(self, write: Write) -> None:
        error = group_write_error(ErrorCode.REQUEST_TIMED_OUT)
        message = "the state of the group is not replicated yet"
        self.effects += (failed(answer, error, message) for answer in write.answers)
        write.answers = []

    def delay_write(self, write_id: int) -> None:
        write = self.writes.get(write_id)
        if write is not None:
            write.is_slow = True
            self._send_away(write)

    def finish_write(self, write_id: int, error: ErrorCode) -> None:
        write = self.writes.pop(write_id, None)
        if write is None:
            return  # of a former life of the group
        if error not in REPLICATED:
            later = [self.writes[each] for each in sorted(self.writes) if each > write_id]
            self._take_back(write, later)
            for heir in later:  # what it was about to tell rests on the lost one
                write.answers += heir.answers
                heir.answers = []
        told = group_write_error(error)
        for answer in write.answers:
            self.effects.append(answer if error is ErrorCode.NONE else failed(answer, told))

    def _take_back(self, lost: Write, later: list[Write]) -> None:
        """As if it had not been: but what a later write replaced again stays as that one says."""
        for record in lost.before:
            heir = _first_change(later, record.key)
            if heir is None:
                self.replay(record)
            else:
                # In the log the later record now follows the one before the lost one.
                heir[0][heir[1]] = record
        for member in self.members.values():
            if Timer(TimerKind.SESSION, member.member_id) not in self.timers:
                self.arm_session(member)
            if Timer(TimerKind.REBALANCE, member.member_id) not in self.timers:
                self.arm_rebalance(member)

    def close(self, error: ErrorCode) -> None:
        for write_id in sorted(self.writes):
            self.effects += (failed(answer, error) for answer in self.writes[write_id].answers)
        self.writes.clear()
        self.timers.clear()
        self.is_closed = True

    # --- timers --------------------------------------------------------------------------------

    def arm(self, timer: Timer, timeout_ms: int) -> None:
        self.timers[timer] = self.now_ms + timeout_ms

    def cancel(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def arm_session(self, member: Member) -> None:
        classic = member.metadata.classic
        own_ms = self.settings.session_timeout_ms
        timeout_ms = own_ms if classic is None else classic.session_timeout_ms
        self.arm(Timer(TimerKind.SESSION, member.member_id), timeout_ms)

    def arm_rebalance(self, member: Member) -> None:
        """A member that has to give up partitions has its time for that; others have none.

        Members of the classic protocol are watched while they have to join again.
        """
        timer = Timer(TimerKind.REBALANCE, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            self.arm(timer, member.metadata.rebalance_timeout_ms)
        else:
            self.cancel(timer)

    # --- what is remembered for explanations ---------------------------------------------------

    def note_cause(self, kind: CauseKind, member_id: str) -> None:
        cause = Cause(self.now_ms, kind, member_id)
        if self._is_rebalancing():
            self.history.note(cause)
        else:
            self.dropped = ()
            self.history.start(cause)

    def _is_rebalancing(self) -> bool:
        entries = self.history.entries
        return bool(entries) and entries[-1].ended_ms is None

    def _note_progress(self) -> None:
        if self._is_rebalancing() and (not self.members or self.is_stable):
            self.history.finish_joining(self.now_ms, self.epoch, self.dropped)
            self.history.finish(self.now_ms)

    # --- views ---------------------------------------------------------------------------------

    @property
    def is_stable(self) -> bool:
        return self.target_epoch == self.epoch and all(
            member.is_at(self.target_epoch) for member in self.members.values()
        )

    @property
    def is_blank(self) -> bool:
        """There is no record of it, and none under way."""
        told = self.epoch or self.target_epoch or self.members or self.targets or self.regexes
        return not (told or self.writes)

    def target_for(self, member_id: str) -> Share:
        return self.targets.get(member_id, NOTHING)

    def is_free(self, member_id: str, topic: Uuid, index: int) -> bool:
        owner = self._owner(topic, index)
        if owner is not None:
            return owner == member_id
        return not any((topic, index) in write.released for write in self.writes.values())

    def _owner(self, topic: Uuid, index: int) -> str | None:
        return self.owners.get(topic, {}).get(index)

    def waits_for_others(self, member: Member) -> bool:
        """Whether some partition of its target is with somebody else."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            not self.is_free(member.member_id, topic, index)
            for topic, indexes in self.target_for(member.member_id).items()
            for index in indexes
        )


def _first_change(
    writes: Iterable[Write], key: r.ConsumerKey
) -> tuple[list[r.ConsumerRecord], int] | None:
    for write in writes:
        # Newest first: the last one found is the first change of the key in that write.
        places = [at for at, record in enumerate(write.before) if record.key == key]
        if places:
            return write.before, places[-1]
    return None
