"""All groups of the consumer protocol of one partition of the offsets topic.

Looks a group up, creates it when somebody joins, and keeps one queue of deadlines. What happens
inside a group is decided by ``ConsumerGroup``. ``groups`` has these and the classic ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import (
    AppendDelayed,
    ConsumerHeartbeat,
    Effect,
    Event,
    Request,
    refused,
)
from tidelog.coordinator.consumer.heartbeat_checks import check_heartbeat
from tidelog.coordinator.consumer.members import JOINING
from tidelog.coordinator.consumer.topics import Topics
from tidelog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from tidelog.coordinator.consumer_records import ConsumerRecord
from tidelog.coordinator.deadlines import Deadlines
from tidelog.kernel.errors import ErrorCode


@dataclass(slots=True)
class ConsumerGroups:
    context: GroupContext = field(default_factory=GroupContext)
    _groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    _deadlines: Deadlines = field(default_factory=Deadlines)
    _downgraded: list[ConsumerGroup] = field(default_factory=list)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def set_topics(self, topics: Topics) -> None:
        """The metadata changed; a group looks at it with its next heartbeat."""
        self.context.topics = topics

    def configure(self, group_id: str, settings: ConsumerGroupSettings | None) -> None:
        """Settings of one group; None is back to those of all."""
        if settings is None:
            self.context.overrides.pop(group_id, None)
        else:
            self.context.overrides[group_id] = settings

    def check(self, group_id: str, event: ConsumerHeartbeat) -> list[Effect]:
        """What is wrong with a heartbeat whatever the group is: nothing, or the answer."""
        wrong = check_heartbeat(group_id, event, self.context.settings_of(group_id))
        return [] if wrong is None else [refused(event.request_id, *wrong)]

    def handle(self, now_ms: int, group_id: str, request: Request) -> list[Effect]:
        """A request for a group that is here, or a heartbeat to a group that is nowhere."""
        if isinstance(request, ConsumerHeartbeat) and (wrong := self.check(group_id, request)):
            return wrong
        group = self._groups.get(group_id)
        if group is not None:
            return self._step(now_ms, group, request)
        assert isinstance(request, ConsumerHeartbeat), "other requests go to groups that exist"
        if request.member_epoch != JOINING:
            message = f"there is no group {group_id!r}"
            return [refused(request.request_id, ErrorCode.GROUP_ID_NOT_FOUND, message)]
        return self.begin(now_ms, ConsumerGroup(group_id, self.context), request)

    def begin(self, now_ms: int, group: ConsumerGroup, request: ConsumerHeartbeat) -> list[Effect]:
        """The first step of a new group; if that is refused nothing of it remains."""
        effects = group.step(now_ms, request)
        if any(isinstance(effect, e.Append) for effect in effects):
            self.adopt(group)
        return effects

    def append_finished(
        self, now_ms: int, group_id: str, write_id: int, error: ErrorCode
    ) -> list[Effect]:
        group = self._groups.get(group_id)
        if group is None:
            return []
        effects = self._step(now_ms, group, e.AppendFinished(write_id, error))
        if group.is_unused:  # its first write failed
            self.release(group_id)
        return effects

    def append_delayed(self, now_ms: int, group_id: str, write_id: int) -> list[Effect]:
        group = self._groups.get(group_id)
        return [] if group is None else self._step(now_ms, group, AppendDelayed(write_id))

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> list[Effect]:
        """Lets every group whose deadline is reached know the time."""
        effects: list[Effect] = []
        while (group_id := self._deadlines.pop_due(now_ms)) is not None:
            effects += self._step(now_ms, self._groups[group_id], e.TimePassed())
        return effects

    def load(self, record: ConsumerRecord, now_ms: int) -> None:
        """Replays a record; a group of which nothing is left is forgotten."""
        group_id = record.key.group
        group = self._groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self._groups[group_id] = ConsumerGroup(group_id, self.context)
        group.replay(record, now_ms)
        if group.is_unused and record.value is None:
            self.release(group_id)
        else:
            self._deadlines.set(group_id, group.next_deadline_ms)

    def check_deletable(self, group_id: str) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        empty = group.state is ConsumerGroupState.EMPTY
        return ErrorCode.NONE if empty else ErrorCode.NON_EMPTY_GROUP

    def delete(self, now_ms: int, group_id: str) -> tuple[tuple[ConsumerRecord, ...], list[Effect]]:
        """The tombstones of a deletable group, and the answers to whoever waited for a record."""
        if self.check_deletable(group_id) is not ErrorCode.NONE:
            raise ValueError(f"group {group_id!r} is missing or has members: it stays")
        group = self.release(group_id)
        records = group.delete(now_ms)
        return records, group.step(now_ms, e.Closed(ErrorCode.GROUP_ID_NOT_FOUND))

    def unload(self, now_ms: int) -> list[Effect]:
        """Another broker leads the partition now: whoever waits has to find it."""
        effects: list[Effect] = []
        for group_id in list(self._groups):
            group = self.release(group_id)
            effects += group.step(now_ms, e.Closed(ErrorCode.NOT_COORDINATOR))
        return effects

    # --- for conversions -----------------------------------------------------------------------

    def adopt(self, group: ConsumerGroup) -> None:
        self._groups[group.group_id] = group
        self._deadlines.set(group.group_id, group.next_deadline_ms)

    def release(self, group_id: str) -> ConsumerGroup:
        self._deadlines.set(group_id, None)
        return self._groups.pop(group_id)

    def take_downgraded(self) -> list[ConsumerGroup]:
        """Groups whose last step left only classic members; they are not among these any more."""
        found, self._downgraded = self._downgraded, []
        return found

    def _step(self, now_ms: int, group: ConsumerGroup, event: Event) -> list[Effect]:
        effects = group.step(now_ms, event)
        if group.became_classic is not None:
            self.release(group.group_id)
            self._downgraded.append(group)
        else:
            self._deadlines.set(group.group_id, group.next_deadline_ms)
        return effects
