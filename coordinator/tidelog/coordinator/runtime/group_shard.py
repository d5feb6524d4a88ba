"""The groups of one partition of ``__consumer_offsets``: machines and offsets behind one front.

A request goes to the machine of its group; the effects are carried out here: answers complete the
future of whoever waits, records are written through the shard's log, and the machine hears when
that is done. Offsets change only when their records are replicated (``replay``), the same way at
run time and at load.

A group that is deleted goes at once; whoever joins or commits then writes behind its tombstones.
If these cannot be written the shard starts over from its log, where the group still is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tidelog.coordinator.append_errors import group_write_error, offset_write_error
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.classic_group import ClassicGroup, GroupDescription, GroupSettings
from tidelog.coordinator.commit_checks import (
    Committer,
    check_commit,
    check_transactional_commit,
)
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import (
    ConsumerHeartbeatResult,
    Effect,
    RespondConsumer,
)
from tidelog.coordinator.consumer.heartbeat_checks import Refusal
from tidelog.coordinator.consumer.topics import Topics
from tidelog.coordinator.consumer_commit_checks import (
    check_consumer_commit,
    check_consumer_fetch,
    check_consumer_transactional_commit,
)
from tidelog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupDescription
from tidelog.coordinator.consumer_offset_expiry import expire_consumer_offsets
from tidelog.coordinator.groups import AnyGroup, Groups, ListedGroup, Request
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
    GroupRecord,
    OffsetRecord,
    UnsupportedRecord,
    decode_record,
    encode_record,
)
from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.former_rebalances import FormerRebalances
from tidelog.coordinator.runtime.pending_append import PendingAppend
from tidelog.coordinator.runtime.ports import LogEntry
from tidelog.coordinator.runtime.rebalance_log import RebalanceLog
from tidelog.coordinator.runtime.shard_log import NOBODY, Producer, ShardLog
from tidelog.coordinator.subscriptions import CONSUMER, subscribed_topics
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_ID, ProducerId

log = logging.getLogger(__name__)

_GROUPS_AT_A_TIME: Final = 100
"""Made or swept without a pause: a few milliseconds."""

NONE: Final = ErrorCode.NONE
_REPLICATED: Final = (NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_MAY_BE_IN_THE_LOG: Final = (*_REPLICATED, ErrorCode.REQUEST_TIMED_OUT)

Codes = tuple[ErrorCode, ...]
Answer = e.Result | ConsumerHeartbeatResult
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """An error of the whole request, or one for each partition in the order asked."""

    error: ErrorCode
    codes: Codes = ()


@dataclass(frozen=True, slots=True)
class GroupShardSettings:
    groups: GroupSettings
    consumer_groups: ConsumerGroupSettings
    offsets: OffsetSettings
    of_single_groups: Mapping[str, ConsumerGroupSettings] = field(default_factory=dict)


class GroupShard:
    """A ``ShardMachine``."""

    def __init__(
        self,
        writer: ShardLog,
        watch: Callable[[], None],
        settings: GroupShardSettings,
        topics: Topics,
        former: FormerRebalances | None = None,
    ) -> None:
        """``former`` is where the memories of groups go that another broker takes over."""
        self._writer = writer
        self._clock: CoordinatorClock = writer.clock
        self._watch = watch
        self._context = GroupContext(settings.consumer_groups, topics)
        self._context.overrides.update(settings.of_single_groups)
        self._groups = Groups.empty(settings.groups, self._context)
        self._offsets = CommittedOffsets(settings.offsets)
        self._former = FormerRebalances() if former is None else former
        self._rebalance_log = RebalanceLog()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._next_request = 0
        self._loaded_classic: dict[str, GroupRecord] = {}
        self._is_loaded = False
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
                self._loaded_classic.pop(key.group, None)
            case GroupRecord(key):
                # Only the last one of a group counts; a group of the other kind ends here.
                if self._groups.consumer.get(key.group) is not None:
                    self._groups.consumer.release(key.group)
                self._loaded_classic[key.group] = record
            case UnsupportedRecord():
                self._skipped += 1
            case _:
                if record.value is not None:
                    self._loaded_classic.pop(record.key.group, None)
                self._groups.load(record, self._clock.now_ms())

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        groups = self._offsets.groups_of(producer_id) if committed and self._is_loaded else ()
        self._offsets.end_transaction(producer_id, committed=committed)
        self._ensure_groups(groups)

    def finish_loading(self) -> Iterator[None]:
        """Sessions run from now on: the members had nobody to send heartbeats to."""
        for count, record in enumerate(self._loaded_classic.values()):
            self._groups.load(record, self._clock.now_ms())
            if count % _GROUPS_AT_A_TIME == 0:
                yield
        self._loaded_classic.clear()
        self._ensure_groups(list(self._offsets.groups()))
        self._is_loaded = True
        if self._skipped:
            log.info("%d records of unknown kinds were skipped", self._skipped)

    def _has(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition."""
        found = self._context.topics.named(topic)
        return found is not None and 0 <= partition < found.partitions

    def _ensure_groups(self, names: Iterable[str]) -> None:
        """Whoever has offsets is a group, though nobody ever joined."""
        for name in names:
            self._groups.ensure(name)

    # --- time --------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._groups.next_deadline_ms()

    def expire(self) -> None:
        self._carry_out(self._groups.expire(self._clock.now_ms()))

    def close(self) -> None:
        for group in self._groups:
            self._former.keep(group.group_id, group.rebalances)
        self._carry_out(self._groups.unload(self._clock.now_ms()))

    def update_settings(self, settings: GroupShardSettings) -> None:
        """Classic groups that exist keep the limits they were made with."""
        self._groups.classic.settings = settings.groups
        self._offsets.settings = settings.offsets
        self._context.settings = settings.consumer_groups
        self._context.overrides.clear()
        self._context.overrides.update(settings.of_single_groups)

    def set_topics(self, topics: Topics) -> None:
        """The metadata changed."""
        self._groups.set_topics(topics)

    # --- membership --------------------------------------------------------------------

    def ask(self, group_id: str, make_request: Callable[[int], Request]) -> asyncio.Future[Answer]:
        """The answer to a request about membership; ``make_request`` gets its id."""
        request_id = self._next_request
        self._next_request += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        request = make_request(request_id)
        self._go_on(group_id, self._groups.handle(self._clock.now_ms(), group_id, request))
        return answer

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case e.Respond(request_id, result) | RespondConsumer(request_id, result):
                    answer = self._waiting.pop(request_id, None)
                    if answer is not None and not answer.done():
                        answer.set_result(result)
                case e.Append():
                    self._append(effect)

    def _append(self, effect: e.Append) -> None:
        groups, at = self._groups, (effect.group_id, effect.write_id)
        now_ms = self._clock.now_ms
        pending = PendingAppend(
            lambda code: self._go_on(at[0], groups.append_finished(now_ms(), *at, code)),
            lambda: self._go_on(at[0], groups.append_delayed(now_ms(), *at)),
            lambda: self._go_on(at[0], groups.append_late(now_ms(), *at)),
        )
        written = self._write(effect.records, pending.replicated)
        written.add_done_callback(lambda done: pending.answered(done.result()))

    def _go_on(self, group_id: str, effects: Iterable[Effect]) -> None:
        self._carry_out(effects)
        self._rebalance_log.look(group_id, self.rebalances(group_id))
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
        group = self._groups.get(group_id)
        refused = _check_commit(group, sender, version, offsets)
        if refused is not ErrorCode.NONE:
            return (refused,) * len(offsets)
        if group is not None:
            group.keep_alive(self._clock.now_ms(), sender.member_id)
        plan = self._offsets.plan_commit(
            self._clock.wall_ms(), group_id, offsets, self._has, retention_ms
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
        refused = _check_transactional(self._groups.get(group_id), sender, offsets)
        if refused is not ErrorCode.NONE:
            return (refused,) * len(offsets)
        plan = self._offsets.plan_commit(self._clock.wall_ms(), group_id, offsets, self._has)
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
                case _:
                    pass

    def fetch(
        self,
        group_id: str,
        places: Sequence[Place] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[Fetched, ...] | ErrorCode:
        """Members of the consumer protocol say who they are (KIP-848); others may see all."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            refused = check_consumer_fetch(group, member_id, member_epoch)
            if refused is not ErrorCode.NONE:
                return refused
        return self._offsets.fetch(group_id, places, require_stable=require_stable)

    def settled(self) -> asyncio.Future[ErrorCode] | None:
        """When commits that were accepted are visible or lost; None: all are.

        Whoever takes a partition over must not start from an offset that is about to be replaced:
        its own commits would set the group back (KIP-447).
        """
        under_way = self._writer.under_way()
        if under_way is None:
            return None
        return _then(
            under_way, lambda code: NONE if code in _REPLICATED else group_write_error(code)
        )

    def delete_offsets(
        self, group_id: str, places: Sequence[Place]
    ) -> asyncio.Future[OffsetsDeleted] | OffsetsDeleted:
        group = self._groups.get(group_id)
        if group is None:
            return OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed = _subscription_test(group)
        if subscribed is None:
            return OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)
        codes, records = self._offsets.plan_delete(group_id, places, self._has, subscribed)
        if not records:
            return OffsetsDeleted(ErrorCode.NONE, codes)
        written = self._write(records, lambda position: self._apply(records, position))
        return _then(written, lambda code: _deleted(codes, group_write_error(code)))

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Topics were deleted: nobody can use offsets of them any more."""
        records = self._offsets.tombstones_of_topic(lambda topic, _: topic in topics)
        for start in range(0, len(records), _GROUPS_AT_A_TIME):
            self._write_tombstones(records[start : start + _GROUPS_AT_A_TIME])

    def _write_tombstones(self, records: Sequence[CoordinatorRecord]) -> asyncio.Future[ErrorCode]:
        return self._write(records, lambda position: self._apply(records, position))

    # --- groups ------------------------------------------------------------------------

    def delete_group(self, group_id: str) -> asyncio.Future[ErrorCode] | ErrorCode:
        refused = self._groups.check_deletable(group_id)
        if refused is not ErrorCode.NONE:
            return refused
        return _then(self._delete(group_id), group_write_error)

    def _delete(self, group_id: str) -> asyncio.Future[ErrorCode]:
        records, effects = self._groups.delete(self._clock.now_ms(), group_id)
        self._carry_out(effects)
        self._rebalance_log.forget(group_id)
        written = self._write_tombstones((*self._offsets.tombstones(group_id), *records))
        written.add_done_callback(self._check_deleted)
        return written

    def _check_deleted(self, written: asyncio.Future[ErrorCode]) -> None:
        if written.result() not in _MAY_BE_IN_THE_LOG:
            self._writer.start_over()

    def groups(self) -> Iterator[ListedGroup]:
        return self._groups.listing()

    def describe(self, group_id: str) -> GroupDescription | Refusal:
        return self._groups.describe_classic(group_id)

    def describe_consumer(self, group_id: str) -> ConsumerGroupDescription | Refusal:
        return self._groups.describe_consumer(group_id)

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...]:
        """The last rebalances with their causes, oldest first."""
        group = self._groups.get(group_id)
        return () if group is None else group.rebalances

    def sweep(self) -> Iterator[None]:
        """Forget offsets and groups that nobody has used for the time of retention."""
        for count, group in enumerate(list(self._groups)):
            if self._groups.get(group.group_id) is group:
                self._expire_offsets(group)
            if count % _GROUPS_AT_A_TIME == 0:
                yield

    def _expire_offsets(self, group: AnyGroup) -> None:
        now_ms = self._clock.wall_ms()
        if isinstance(group, ClassicGroup):
            classic = expire_offsets(now_ms, group, self._offsets)
            expired, is_abandoned = classic.offsets, classic.group is not None
        else:
            consumer = expire_consumer_offsets(now_ms, group, self._offsets)
            expired, is_abandoned = consumer.offsets, consumer.is_abandoned
        if is_abandoned:
            log.info("group %r: its last offsets expired, and the group with them", group.group_id)
            self._delete(group.group_id)
        elif expired:
            log.info("group %r: %d offsets expired", group.group_id, len(expired))
            self._write_tombstones(expired)


def _places(offsets: Iterable[OffsetToCommit]) -> list[Place]:
    return [(each.topic, each.partition) for each in offsets]


def _check_commit(
    group: AnyGroup | None, sender: Committer, version: int, offsets: Iterable[OffsetToCommit]
) -> ErrorCode:
    if isinstance(group, ConsumerGroup):
        return check_consumer_commit(group, sender, version, _places(offsets))
    return check_commit(group, sender, version)


def _check_transactional(
    group: AnyGroup | None, sender: Committer, offsets: Iterable[OffsetToCommit]
) -> ErrorCode:
    if isinstance(group, ConsumerGroup):
        return check_consumer_transactional_commit(group, sender, _places(offsets))
    return check_transactional_commit(group, sender)


def _subscription_test(group: AnyGroup) -> Callable[[str], bool] | None:
    """Whether members use a topic; None: offsets of this group are not to be deleted now."""
    if isinstance(group, ConsumerGroup):
        in_use = group.subscribed_topics()
        return lambda topic: topic in in_use
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
