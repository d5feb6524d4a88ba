"""The groups of one partition of ``__consumer_offsets``: machines and offsets behind one front.

A request goes to the machine of its group; the effects are carried out here: answers complete the
future of whoever waits, records are written through the shard's log, and the machine hears when
that is done. Offsets, and the removal of groups, change only when their records are replicated
(``replay``), the same way at run time and at load.

A group that is to be deleted goes when its tombstone is replicated, unless somebody joined or
committed meanwhile: what they wrote stands behind the tombstone in the log, and so it counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tidelog.coordinator.append_errors import group_write_error, offset_write_error
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.classic_group import ClassicGroup, GroupDescription, GroupSettings
from tidelog.coordinator.classic_groups import ClassicGroups, Request
from tidelog.coordinator.commit_checks import (
    Committer,
    check_commit,
    check_transactional_commit,
)
from tidelog.coordinator.offset_expiry import expire_offsets
from tidelog.coordinator.offsets import (
    CommittedOffsets,
    Fetched,
    OffsetSettings,
    OffsetToCommit,
    Place,
)
from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.records import (
    CoordinatorRecord,
    GroupKey,
    GroupRecord,
    OffsetRecord,
    UnsupportedRecord,
    decode_record,
    encode_record,
)
from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.ports import LogEntry
from tidelog.coordinator.runtime.shard_log import NOBODY, Producer, ShardLog
from tidelog.coordinator.subscriptions import CONSUMER, subscribed_topics
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_ID, ProducerId

log = logging.getLogger(__name__)

_GROUPS_AT_A_TIME: Final = 100
"""Made or swept without a pause: a few milliseconds."""

Codes = tuple[ErrorCode, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """An error of the whole request, or one for each partition in the order asked."""

    error: ErrorCode
    codes: Codes = ()


class GroupShard:
    """A ``ShardMachine``."""

    def __init__(
        self,
        writer: ShardLog,
        watch: Callable[[], None],
        groups: Callable[[], GroupSettings],
        offsets: Callable[[], OffsetSettings],
        exists: Callable[[str, int], bool],
    ) -> None:
        self._writer = writer
        self._clock: CoordinatorClock = writer.clock
        self._watch = watch
        self._group_settings = groups
        self._offset_settings = offsets
        self._exists = exists
        self._classic = ClassicGroups(groups())
        self._offsets = CommittedOffsets(offsets())
        self._waiting: dict[int, asyncio.Future[e.Result]] = {}
        self._next_request = 0
        self._loaded_groups: dict[str, GroupRecord] = {}
        self._skipped = 0

    # --- loading -----------------------------------------------------------------------

    def replay(self, entry: LogEntry) -> None:
        try:
            record = decode_record(entry.key, entry.value)
        except MalformedRecord as error:
            log.error("the record at offset %d of the offsets topic: %s", entry.offset, error)
            return
        match record:
            case OffsetRecord():
                self._offsets.replay(record, entry.offset, entry.producer_id)
            case GroupRecord(key, None):
                self._loaded_groups.pop(key.group, None)
            case GroupRecord(key):
                self._loaded_groups[key.group] = record
            case UnsupportedRecord():
                self._skipped += 1
            case _:
                self._skipped += 1

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        self._offsets.end_transaction(producer_id, committed=committed)
        self._ensure_groups(list(self._offsets.groups()) if committed else ())

    def finish_loading(self) -> Iterator[None]:
        """Sessions run from now on: the members had nobody to send heartbeats to."""
        for count, record in enumerate(self._loaded_groups.values()):
            self._classic.load(record, self._clock.now_ms())
            if count % _GROUPS_AT_A_TIME == 0:
                yield
        self._loaded_groups.clear()
        self._ensure_groups(list(self._offsets.groups()))
        if self._skipped:
            log.info("%d records of unknown kinds were skipped", self._skipped)

    def _ensure_groups(self, names: Iterable[str]) -> None:
        """Whoever has offsets is a group, though nobody ever joined."""
        for name in names:
            self._classic.ensure(name)

    # --- time --------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._classic.next_deadline_ms()

    def expire(self) -> None:
        self._carry_out(self._classic.expire(self._clock.now_ms()))

    def close(self) -> None:
        self._carry_out(self._classic.unload(self._clock.now_ms()))

    def update_settings(self) -> None:
        """Groups that exist keep the limits they were made with."""
        self._classic.settings = self._group_settings()
        self._offsets.settings = self._offset_settings()

    # --- membership --------------------------------------------------------------------

    def ask(
        self, group_id: str, make_request: Callable[[int], Request]
    ) -> asyncio.Future[e.Result]:
        """The answer to a request about membership; ``make_request`` gets its id."""
        request_id = self._next_request
        self._next_request += 1
        answer: asyncio.Future[e.Result] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        request = make_request(request_id)
        self._carry_out(self._classic.handle(self._clock.now_ms(), group_id, request))
        self._watch()
        return answer

    def _carry_out(self, effects: Iterable[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case e.Respond(request_id, result):
                    answer = self._waiting.pop(request_id, None)
                    if answer is not None and not answer.done():
                        answer.set_result(result)
                case e.Append():
                    self._append(effect)

    def _append(self, effect: e.Append) -> None:
        written = self._write(effect.records)
        written.add_done_callback(
            lambda done: self._append_finished(effect.group_id, effect.write_id, done.result())
        )

    def _append_finished(self, group_id: str, write_id: int, code: ErrorCode) -> None:
        now_ms = self._clock.now_ms()
        self._carry_out(self._classic.append_finished(now_ms, group_id, write_id, code))
        self._watch()

    def _write(
        self,
        records: Sequence[CoordinatorRecord],
        apply: Callable[[int], None] = lambda position: None,
        producer: Producer = NOBODY,
    ) -> asyncio.Future[ErrorCode]:
        return self._writer.write([encode_record(record) for record in records], apply, producer)

    # --- offsets -----------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        sender: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        version: int,
        retention_ms: int | None = None,
    ) -> asyncio.Future[Codes] | Codes:
        """One error for each partition in the order asked."""
        group = self._classic.get(group_id)
        refused = check_commit(group, sender, version)
        if refused is not ErrorCode.NONE:
            return (refused,) * len(offsets)
        if group is not None:
            group.keep_alive(self._clock.now_ms(), sender.member_id)
        plan = self._offsets.plan_commit(
            self._clock.wall_ms(), group_id, offsets, self._exists, retention_ms
        )
        if not plan.records:
            return plan.errors
        written = self._write(plan.records, lambda position: self._apply(plan.records, position))
        return _then(written, lambda code: _outcomes(plan.errors, offset_write_error(code)))

    def commit_in_transaction(
        self,
        group_id: str,
        sender: Committer,
        offsets: Sequence[OffsetToCommit],
        producer: Producer,
    ) -> asyncio.Future[Codes] | Codes:
        """As ``commit``; the offsets count when the producer's transaction commits (KIP-447)."""
        refused = check_transactional_commit(self._classic.get(group_id), sender)
        if refused is not ErrorCode.NONE:
            return (refused,) * len(offsets)
        plan = self._offsets.plan_commit(self._clock.wall_ms(), group_id, offsets, self._exists)
        if not plan.records:
            return plan.errors
        written = self._write(
            plan.records,
            lambda position: self._apply(plan.records, position, producer.producer_id),
            producer,
        )
        return _then(written, lambda code: _outcomes(plan.errors, offset_write_error(code)))

    def _apply(
        self,
        records: Iterable[CoordinatorRecord],
        first_position: int,
        producer_id: ProducerId = NO_PRODUCER_ID,
    ) -> None:
        """Records of ours that are replicated now."""
        for position, record in enumerate(records, first_position):
            match record:
                case OffsetRecord():
                    self._offsets.replay(record, position, producer_id)
                    if record.value is not None:
                        self._ensure_groups((record.key.group,))
                case GroupRecord(key, None):
                    self._forget_if_unused(key.group)
                case _:
                    pass

    def _forget_if_unused(self, group_id: str) -> None:
        deletable = self._classic.check_deletable(group_id) is ErrorCode.NONE
        if deletable and not self._offsets.has_offsets(group_id):
            _, effects = self._classic.delete(self._clock.now_ms(), group_id)
            self._carry_out(effects)

    def fetch(
        self, group_id: str, places: Sequence[Place] | None, *, require_stable: bool
    ) -> tuple[Fetched, ...]:
        return self._offsets.fetch(group_id, places, require_stable=require_stable)

    def delete_offsets(
        self, group_id: str, places: Sequence[Place]
    ) -> asyncio.Future[OffsetsDeleted] | OffsetsDeleted:
        group = self._classic.get(group_id)
        if group is None:
            return OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed = _subscription_test(group)
        if subscribed is None:
            return OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)
        codes, records = self._offsets.plan_delete(group_id, places, self._exists, subscribed)
        if not records:
            return OffsetsDeleted(ErrorCode.NONE, codes)
        written = self._write(records, lambda position: self._apply(records, position))
        return _then(written, lambda code: _deleted(codes, group_write_error(code)))

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Topics were deleted: nobody can use offsets of them any more."""
        records = self._offsets.tombstones_of_topic(lambda topic, _: topic in topics)
        for start in range(0, len(records), _GROUPS_AT_A_TIME):
            self._write_tombstones(records[start : start + _GROUPS_AT_A_TIME])

    def _write_tombstones(
        self, records: tuple[CoordinatorRecord, ...]
    ) -> asyncio.Future[ErrorCode]:
        return self._write(records, lambda position: self._apply(records, position))

    # --- groups ------------------------------------------------------------------------

    def delete_group(self, group_id: str) -> asyncio.Future[ErrorCode] | ErrorCode:
        refused = self._classic.check_deletable(group_id)
        if refused is not ErrorCode.NONE:
            return refused
        tombstone = GroupRecord(GroupKey(group_id), None)
        records: tuple[CoordinatorRecord, ...] = (*self._offsets.tombstones(group_id), tombstone)
        return _then(self._write_tombstones(records), group_write_error)

    def groups(self) -> Iterator[GroupListing]:
        for group in self._classic:
            yield GroupListing(group.group_id, group.protocol_type, group.state.value)

    def describe(self, group_id: str) -> GroupDescription | None:
        group = self._classic.get(group_id)
        return None if group is None else group.describe()

    def why_not_classic(self, group_id: str) -> str:
        return f"Group {group_id} not found."

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...]:
        """The last rebalances with their causes, oldest first."""
        group = self._classic.get(group_id)
        return () if group is None else group.rebalances

    def sweep(self) -> Iterator[None]:
        """Forget offsets and groups that nobody has used for the time of retention."""
        now_ms = self._clock.wall_ms()
        for count, group in enumerate(list(self._classic)):
            expiry = expire_offsets(now_ms, group, self._offsets)
            tombstones: tuple[CoordinatorRecord, ...] = expiry.offsets
            if expiry.group is not None:
                tombstones = (*tombstones, expiry.group)
            if tombstones:
                log.info("group %r: %d records expired", group.group_id, len(tombstones))
                self._write_tombstones(tombstones)
            if count % _GROUPS_AT_A_TIME == 0:
                yield


def _subscription_test(group: ClassicGroup) -> Callable[[str], bool] | None:
    """Whether members use a topic; None: offsets of this group are not to be deleted now."""
    members = group.subscriptions()
    if members and group.protocol_type != CONSUMER:
        return None
    topics = subscribed_topics(members)
    return lambda topic: topics is None or topic in topics


def _outcomes(errors: Codes, written: ErrorCode) -> Codes:
    return tuple(written if error is ErrorCode.NONE else error for error in errors)


def _deleted(codes: Codes, written: ErrorCode) -> OffsetsDeleted:
    failed = written is not ErrorCode.NONE
    return OffsetsDeleted(written) if failed else OffsetsDeleted(ErrorCode.NONE, codes)


def _then(
    written: asyncio.Future[ErrorCode], outcome: Callable[[ErrorCode], T]
) -> asyncio.Future[T]:
    """The answer to whoever waits for a write; it may hang up, the write goes on."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def finish(done: asyncio.Future[ErrorCode]) -> None:
        if not answer.done():
            answer.set_result(outcome(done.result()))

    written.add_done_callback(finish)
    return answer
