"""All classic groups of one partition of the offsets topic.

Looks a group up, creates it when somebody may, refuses what needs no group at all, and keeps one
queue of deadlines. What happens inside a group is decided by ``ClassicGroup``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import ClassicGroup, GroupSettings, GroupState
from tidelog.coordinator.records import GroupKey, GroupRecord
from tidelog.kernel.errors import ErrorCode

Request = e.JoinGroup | e.SyncGroup | e.Heartbeat | e.LeaveGroup


@dataclass(slots=True)
class ClassicGroups:
    settings: GroupSettings
    _groups: dict[str, ClassicGroup] = field(default_factory=dict)
    _queue: list[tuple[int, str]] = field(default_factory=list)
    _queued: dict[str, int] = field(default_factory=dict)
    """The deadline under which a group stands in the queue; other entries are out of date."""

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def handle(self, now_ms: int, group_id: str, request: Request) -> list[e.Effect]:
        refused = self._refuse(group_id, request)
        if refused is not None:
            return [e.Respond(request.request_id, refused)]
        group = self._groups.get(group_id)
        if group is None:
            assert isinstance(request, e.JoinGroup), "only a join creates a group"
            return self._create(now_ms, group_id, request)
        return self._step(now_ms, group, request)

    def check_join(self, group_id: str, request: e.JoinGroup) -> e.Respond | None:
        """What is wrong with a join to a group of whatever kind that exists, or None."""
        error = self._join_error(group_id, request, missing=False)
        result = None if error is None else e.JoinResult(error, request.member_id)
        return None if result is None else e.Respond(request.request_id, result)

    def append_finished(
        self, now_ms: int, group_id: str, write_id: int, error: ErrorCode
    ) -> list[e.Effect]:
        group = self._groups.get(group_id)
        return self._step(now_ms, group, e.AppendFinished(write_id, error)) if group else []

    def next_deadline_ms(self) -> int | None:
        while self._queue and self._queued.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def expire(self, now_ms: int) -> list[e.Effect]:
        """Lets every group whose deadline is reached know the time."""
        effects: list[e.Effect] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, group_id = heapq.heappop(self._queue)
            del self._queued[group_id]
            group = self._groups[group_id]
            effects += self._step(now_ms, group, e.TimePassed())
        return effects

    def ensure(self, group_id: str) -> ClassicGroup:
        """The group, created as a simple one if it is not there: a commit may do that."""
        return self._groups.setdefault(group_id, ClassicGroup(group_id, self.settings))

    def adopt(self, group: ClassicGroup) -> None:
        """Takes in a group that was of the consumer protocol until now."""
        self._groups[group.group_id] = group
        self._queue_deadline(group)

    def close(self, now_ms: int, group_id: str, error: ErrorCode) -> list[e.Effect]:
        """Lets a group go without a record of its own; whoever waits is told the error."""
        return self._close(now_ms, group_id, error)

    def load(self, record: GroupRecord, now_ms: int) -> None:
        """Replays a record: the last one of a group counts, a tombstone removes it."""
        group_id = record.key.group
        self._forget(group_id)
        if record.value is not None:
            group = ClassicGroup.load(group_id, record.value, self.settings, now_ms)
            self._groups[group_id] = group
            self._queue_deadline(group)

    def check_deletable(self, group_id: str) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        empty = group.state is GroupState.EMPTY
        return ErrorCode.NONE if empty else ErrorCode.NON_EMPTY_GROUP

    def delete(self, now_ms: int, group_id: str) -> tuple[GroupRecord, list[e.Effect]]:
        """The tombstone of a deletable group, and the answers to whoever waited for a record."""
        if self.check_deletable(group_id) is not ErrorCode.NONE:
            raise ValueError(f"group {group_id!r} is missing or has members: it stays")
        effects = self._close(now_ms, group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        return GroupRecord(GroupKey(group_id), None), effects

    def unload(self, now_ms: int) -> list[e.Effect]:
        """Another broker leads the partition now: whoever waits has to find it."""
        effects: list[e.Effect] = []
        for group_id in list(self._groups):
            effects += self._close(now_ms, group_id, ErrorCode.NOT_COORDINATOR)
        return effects

    def _close(self, now_ms: int, group_id: str, error: ErrorCode) -> list[e.Effect]:
        effects = self._groups[group_id].step(now_ms, e.Closed(error))
        self._forget(group_id)
        return effects

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._queued.pop(group_id, None)

    def _create(self, now_ms: int, group_id: str, request: e.JoinGroup) -> list[e.Effect]:
        group = ClassicGroup(group_id, self.settings)
        unwritten = group.record()
        effects = group.step(now_ms, request)
        if group.is_unused:
            return effects  # refused: nothing of it remains
        self._groups[group_id] = group
        self._queue_deadline(group)
        answers = tuple(effect for effect in effects if isinstance(effect, e.Respond))
        return [group.hold_for_record(answers, _stamped(unwritten, now_ms))]

    def _step(self, now_ms: int, group: ClassicGroup, event: e.Event) -> list[e.Effect]:
        effects = group.step(now_ms, event)
        self._queue_deadline(group)
        return effects

    def _queue_deadline(self, group: ClassicGroup) -> None:
        deadline_ms = group.next_deadline_ms
        if deadline_ms is None:
            self._queued.pop(group.group_id, None)
        elif self._queued.get(group.group_id) != deadline_ms:
            self._queued[group.group_id] = deadline_ms
            heapq.heappush(self._queue, (deadline_ms, group.group_id))

    def _refuse(self, group_id: str, request: Request) -> e.Result | None:
        """What is wrong without a look into the group, or None."""
        missing = group_id not in self._groups
        match request:
            case e.JoinGroup():
                error = self._join_error(group_id, request, missing)
                return None if error is None else e.JoinResult(error, request.member_id)
            case e.SyncGroup():
                error = _lookup_error(group_id, missing)
                return None if error is None else e.SyncResult(error)
            case e.Heartbeat():
                error = _lookup_error(group_id, missing)
                return None if error is None else e.HeartbeatResult(error)
            case e.LeaveGroup():
                return _leave_refusal(group_id, request, missing)
            case other:
                assert_never(other)

    def _join_error(self, group_id: str, request: e.JoinGroup, missing: bool) -> ErrorCode | None:
        shortest_ms = self.settings.min_session_timeout_ms
        longest_ms = self.settings.max_session_timeout_ms
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if missing and request.member_id != e.UNKNOWN_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None


def _lookup_error(group_id: str, missing: bool) -> ErrorCode | None:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.UNKNOWN_MEMBER_ID if missing else None


def _leave_refusal(group_id: str, request: e.LeaveGroup, missing: bool) -> e.LeaveResult | None:
    if not group_id:
        return e.LeaveResult(ErrorCode.INVALID_GROUP_ID)
    if not missing:
        return None
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    left = (e.LeftMember(each.member_id, each.instance_id, unknown) for each in request.members)
    return e.LeaveResult(ErrorCode.NONE, tuple(left))


def _stamped(record: GroupRecord, now_ms: int) -> GroupRecord:
    value = record.value
    assert value is not None, "a group that is created has a value"
    return GroupRecord(record.key, replace(value, state_changed_ms=now_ms))
