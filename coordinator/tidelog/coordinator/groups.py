"""All groups of one partition of the offsets topic, of both protocols.

A group id is of one kind at a time. An empty group takes the kind of whoever joins first. A group
with members changes its kind while they go on (``consumer.conversion``), if the setting
``group.consumer.migration.policy`` allows it; otherwise those of the other kind are refused.

A change of kind is in force at once, as all changes are, and taken back if its write fails: until
then the group's former self is kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.classic_group import (
    ClassicGroup,
    GroupDescription,
    GroupSettings,
    GroupState,
)
from tidelog.coordinator.classic_groups import ClassicGroups
from tidelog.coordinator.classic_groups import Request as ClassicRequest
from tidelog.coordinator.consumer.context import FIRST_WRITE_ID, GroupContext
from tidelog.coordinator.consumer.conversion import (
    ClassicSnapshot,
    NotConvertible,
    check_upgrade,
    upgraded_members,
)
from tidelog.coordinator.consumer.core import REPLICATED
from tidelog.coordinator.consumer.events import AppendDelayed, ConsumerHeartbeat, Effect, refused
from tidelog.coordinator.consumer.heartbeat_checks import Refusal
from tidelog.coordinator.consumer.members import JOINING
from tidelog.coordinator.consumer.topics import Topics
from tidelog.coordinator.consumer_group import (
    ConsumerGroup,
    ConsumerGroupDescription,
    ConsumerGroupState,
)
from tidelog.coordinator.consumer_groups import ConsumerGroups
from tidelog.coordinator.consumer_records import ConsumerRecord
from tidelog.coordinator.records import CoordinatorRecord, GroupKey, GroupRecord
from tidelog.coordinator.subscriptions import CONSUMER
from tidelog.kernel.errors import ErrorCode

Request = ClassicRequest | ConsumerHeartbeat
AnyGroup = ClassicGroup | ConsumerGroup


class GroupKind(Enum):
    """The values are the types that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    kind: GroupKind


@dataclass(slots=True)
class Groups:
    classic: ClassicGroups
    consumer: ConsumerGroups
    _upgrades: dict[int, ClassicSnapshot] = field(default_factory=dict)
    """What groups were before a write that upgrades them and is not done yet."""
    _downgrades: dict[str, tuple[int, ConsumerGroup]] = field(default_factory=dict)
    """Groups that became classic with a write that is not done yet."""

    @classmethod
    def empty(cls, settings: GroupSettings, context: GroupContext | None = None) -> Groups:
        shared = context or GroupContext()
        return cls(ClassicGroups(settings), ConsumerGroups(shared))

    # --- looking up ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[AnyGroup]:
        yield from self.classic
        yield from self.consumer

    def __len__(self) -> int:
        return len(self.classic) + len(self.consumer)

    def get(self, group_id: str) -> AnyGroup | None:
        return self.consumer.get(group_id) or self.classic.get(group_id)

    def ensure(self, group_id: str) -> AnyGroup:
        """The group, created as a simple classic one if it is not there: a commit may do that."""
        return self.consumer.get(group_id) or self.classic.ensure(group_id)

    def listing(self) -> Iterator[ListedGroup]:
        for classic in self.classic:
            kind = GroupKind.CLASSIC
            yield ListedGroup(classic.group_id, classic.protocol_type, classic.state.value, kind)
        for consumer in self.consumer:
            yield ListedGroup(consumer.group_id, CONSUMER, consumer.state.value, GroupKind.CONSUMER)

    def describe_consumer(self, group_id: str) -> ConsumerGroupDescription | Refusal:
        group = self.consumer.get(group_id)
        if group is not None:
            return group.describe()
        known = self.classic.get(group_id) is not None
        reason = "is not of the consumer protocol" if known else "does not exist"
        return ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} {reason}"

    def describe_classic(self, group_id: str) -> GroupDescription | Refusal:
        group = self.classic.get(group_id)
        if group is not None:
            return group.describe()
        known = self.consumer.get(group_id) is not None
        reason = "is not a classic group" if known else "does not exist"
        return ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} {reason}"

    def set_topics(self, topics: Topics) -> None:
        self.consumer.set_topics(topics)

    # --- requests ------------------------------------------------------------------------------

    def handle(self, now_ms: int, group_id: str, request: Request) -> list[Effect]:
        if isinstance(request, ConsumerHeartbeat):
            effects = self._heartbeat(now_ms, group_id, request)
        else:
            effects = self._classic_request(now_ms, group_id, request)
        return effects + self._finish_downgrades(now_ms, effects)

    def _classic_request(self, now_ms: int, group_id: str, request: ClassicRequest) -> list[Effect]:
        group = self.consumer.get(group_id)
        if group is None:
            return [*self.classic.handle(now_ms, group_id, request)]
        if not isinstance(request, e.JoinGroup):
            return self.consumer.handle(now_ms, group_id, request)
        if wrong := self.classic.check_join(group_id, request):
            return [wrong]
        if group.state is not ConsumerGroupState.EMPTY:
            return self.consumer.handle(now_ms, group_id, request)
        if request.member_id:
            unknown = e.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            return [e.Respond(request.request_id, unknown)]
        return self._replace_empty_consumer(now_ms, group_id, request)

    def _replace_empty_consumer(
        self, now_ms: int, group_id: str, request: e.JoinGroup
    ) -> list[Effect]:
        """Nobody is there who minds: the group is a classic one from now on."""
        created = self.classic.handle(now_ms, group_id, request)
        group = self.classic.get(group_id)
        if group is None:
            return [*created]  # refused
        former = self.consumer.get(group_id)
        assert former is not None, "looked up by the caller"
        records, answers = self.consumer.delete(now_ms, group_id)
        write_id = self.consumer.context.new_write_id()
        group.continue_from(former.history, self.consumer.context.new_write_ids())
        return [*answers, e.Append(group_id, write_id, records), *created]

    def _heartbeat(self, now_ms: int, group_id: str, event: ConsumerHeartbeat) -> list[Effect]:
        if wrong := self.consumer.check(group_id, event):
            return wrong
        classic = self.classic.get(group_id)
        if classic is None:
            return self.consumer.handle(now_ms, group_id, event)
        if event.member_epoch != JOINING:
            message = f"group {group_id!r} is not of the consumer protocol"
            return [refused(event.request_id, ErrorCode.GROUP_ID_NOT_FOUND, message)]
        try:
            group = self._successor(now_ms, classic)
        except NotConvertible as error:
            return [refused(event.request_id, ErrorCode.GROUP_ID_NOT_FOUND, str(error))]
        return self._upgrade(now_ms, classic, group, event)

    def _successor(self, now_ms: int, classic: ClassicGroup) -> ConsumerGroup:
        context = self.consumer.context
        if classic.state is GroupState.EMPTY:
            group = ConsumerGroup(classic.group_id, context)
            group.replace_on_write([GroupRecord(GroupKey(classic.group_id), None)])
            return group
        check_upgrade(classic, context.settings_of(classic.group_id))
        members = upgraded_members(classic, context.topics)
        return ConsumerGroup.upgraded(
            classic.group_id, context, members, classic.generation, now_ms
        )

    def _upgrade(
        self, now_ms: int, classic: ClassicGroup, group: ConsumerGroup, event: ConsumerHeartbeat
    ) -> list[Effect]:
        value, protocols = classic.record().value, classic.protocols()
        assert value is not None, "only a deleted group has no value"
        group.history = classic.history
        effects = self.consumer.begin(now_ms, group, event)
        writes = [effect.write_id for effect in effects if isinstance(effect, e.Append)]
        if not writes:
            return effects  # refused: the group stays as it is
        self._upgrades[writes[0]] = ClassicSnapshot(value, protocols)
        # Whoever waits in the classic group joins once more, and finds the new one.
        told = self.classic.close(now_ms, classic.group_id, ErrorCode.REBALANCE_IN_PROGRESS)
        return [*told, *effects]

    # --- writes --------------------------------------------------------------------------------

    def append_finished(
        self, now_ms: int, group_id: str, write_id: int, error: ErrorCode
    ) -> list[Effect]:
        if write_id <= FIRST_WRITE_ID:
            return [*self.classic.append_finished(now_ms, group_id, write_id, error)]
        lost = error not in REPLICATED
        snapshot = self._upgrades.pop(write_id, None)
        if snapshot is not None and lost:
            return self._take_back_upgrade(now_ms, group_id, write_id, error, snapshot)
        former = self._downgrades.get(group_id)
        if former is not None and former[1].awaits(write_id):
            return self._former_append_finished(now_ms, former, write_id, error)
        effects = self.consumer.append_finished(now_ms, group_id, write_id, error)
        if self.classic.get(group_id) is not None:
            effects += self.classic.append_finished(now_ms, group_id, write_id, error)
        return effects

    def append_delayed(self, now_ms: int, group_id: str, write_id: int) -> list[Effect]:
        """Nobody waits for an append any longer; it ends with ``append_late`` or with the shard.

        A classic group gives up what it was about to write, whatever becomes of that: nobody has
        heard of it, and there will be another generation.
        """
        gave_up = ErrorCode.REQUEST_TIMED_OUT
        if write_id <= FIRST_WRITE_ID:
            return [*self.classic.append_finished(now_ms, group_id, write_id, gave_up)]
        former = self._downgrades.get(group_id)
        if former is not None and former[1].awaits(write_id):
            return former[1].step(now_ms, AppendDelayed(write_id))
        effects = self.consumer.append_delayed(now_ms, group_id, write_id)
        return [*effects, *self.classic.append_finished(now_ms, group_id, write_id, gave_up)]

    def append_late(self, now_ms: int, group_id: str, write_id: int) -> list[Effect]:
        """An append that was delayed is replicated after all."""
        if write_id <= FIRST_WRITE_ID:
            return []  # it was given up, and the group's next life may use the id again
        return self.append_finished(now_ms, group_id, write_id, ErrorCode.NONE)

    def _take_back_upgrade(
        self, now_ms: int, group_id: str, write_id: int, error: ErrorCode, old: ClassicSnapshot
    ) -> list[Effect]:
        if self.consumer.get(group_id) is None:
            return []  # it has become a classic group again meanwhile, or is deleted
        failed = self.consumer.release(group_id)
        effects = failed.step(now_ms, e.AppendFinished(write_id, error))
        effects += failed.step(now_ms, e.Closed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._adopt_classic(now_ms, failed, old)
        return effects

    def _former_append_finished(
        self, now_ms: int, former: tuple[int, ConsumerGroup], write_id: int, error: ErrorCode
    ) -> list[Effect]:
        """A write of a group that has become classic meanwhile, perhaps the one that did it."""
        last_write, group = former
        effects = group.step(now_ms, e.AppendFinished(write_id, error))
        if write_id != last_write:
            return effects
        del self._downgrades[group.group_id]
        if error not in REPLICATED:
            if self.classic.get(group.group_id) is not None:
                waiting = ErrorCode.REBALANCE_IN_PROGRESS
                effects += self.classic.close(now_ms, group.group_id, waiting)
            group.became_classic = None
            self.consumer.adopt(group)
        return effects

    def _finish_downgrades(self, now_ms: int, effects: Iterable[Effect]) -> list[Effect]:
        more: list[Effect] = []
        written = {each.group_id: each.write_id for each in effects if isinstance(each, e.Append)}
        for group in self.consumer.take_downgraded():
            snapshot = group.became_classic
            assert snapshot is not None, "that is why it was taken out"
            self._downgrades[group.group_id] = written[group.group_id], group
            classic = self._adopt_classic(now_ms, group, snapshot)
            more += classic.ask_to_rejoin(now_ms, CauseKind.CONVERTED, _last_to_act(group, now_ms))
        return more

    def _adopt_classic(
        self, now_ms: int, former: ConsumerGroup, snapshot: ClassicSnapshot
    ) -> ClassicGroup:
        group = ClassicGroup.rebuild(
            former.group_id, snapshot.value, snapshot.protocols, self.classic.settings, now_ms
        )
        group.continue_from(former.history, self.consumer.context.new_write_ids())
        self.classic.adopt(group)
        return group

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        both = (self.classic.next_deadline_ms(), self.consumer.next_deadline_ms())
        return min((each for each in both if each is not None), default=None)

    def expire(self, now_ms: int) -> list[Effect]:
        """Lets every group whose deadline is reached know the time."""
        effects = [*self.classic.expire(now_ms), *self.consumer.expire(now_ms)]
        return effects + self._finish_downgrades(now_ms, effects)

    # --- loading, deleting ---------------------------------------------------------------------

    def load(self, record: GroupRecord | ConsumerRecord, now_ms: int) -> None:
        """Replays a record: of two kinds of one id the last one that has a value counts."""
        if isinstance(record, GroupRecord):
            if record.value is not None and self.consumer.get(record.key.group) is not None:
                self.consumer.release(record.key.group)
            self.classic.load(record, now_ms)
        else:
            group_id = record.key.group
            if record.value is not None and self.classic.get(group_id) is not None:
                self.classic.load(GroupRecord(GroupKey(group_id), None), now_ms)
            self.consumer.load(record, now_ms)

    def check_deletable(self, group_id: str) -> ErrorCode:
        if self.consumer.get(group_id) is not None:
            return self.consumer.check_deletable(group_id)
        return self.classic.check_deletable(group_id)

    def delete(
        self, now_ms: int, group_id: str
    ) -> tuple[tuple[CoordinatorRecord, ...], list[Effect]]:
        """The tombstones of a deletable group, and the answers to whoever waited for a record."""
        if self.consumer.get(group_id) is not None:
            return self.consumer.delete(now_ms, group_id)
        record, effects = self.classic.delete(now_ms, group_id)
        return (record,), [*effects]

    def unload(self, now_ms: int) -> list[Effect]:
        """Another broker leads the partition now: whoever waits has to find it."""
        effects = [*self.classic.unload(now_ms), *self.consumer.unload(now_ms)]
        for _, group in self._downgrades.values():
            effects += group.step(now_ms, e.Closed(ErrorCode.NOT_COORDINATOR))
        self._downgrades.clear()
        self._upgrades.clear()
        return effects


def _last_to_act(group: ConsumerGroup, now_ms: int) -> str:
    """Who left, if somebody did; else whoever came last, in the place of a static member."""
    causes = group.rebalances[-1].causes if group.rebalances else []
    if causes and causes[-1].at_ms == now_ms:
        return causes[-1].member_id
    snapshot = group.became_classic
    assert snapshot is not None, "asked of groups that became classic"
    return snapshot.value.members[-1].member_id
