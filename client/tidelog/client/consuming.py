"""A consumer without the waiting: records fetched and not yet handed out, and how far one has come.

Theory: ``fill`` blocks for one slice of time at most and puts what librdkafka has into a buffer;
``take`` hands records out of the buffer and moves the position. A poll is a fill and a take. As
positions move only in ``take``, a poll that is cancelled in between has lost nothing.

What was handed out counts as done when the program comes back for more, as with Java's consumer:
then, and not before, automatic commits see it. So a program that dies over a record gets it again.

Invariants: whatever is in the buffer belongs to a partition that is assigned and not paused; the
position of a partition is the offset after the last record handed out, or where it was sought to.

Owner: one program; ``fill`` by one thread at a time, all else by any. ``_fetching`` is held while
librdkafka may hand over a message, so that nobody seeks between that and the buffer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaException,
)
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Message as RdMessage
from confluent_kafka import TopicPartition as RdTopicPartition

from tidelog.client.checks import (
    checked_function,
    checked_number,
    checked_offsets,
    checked_partition,
    checked_partitions,
)
from tidelog.client.config import read_config
from tidelog.client.errors import (
    KEY_DESERIALIZATION,
    WRONG_STATE,
    ClientClosed,
    ClientError,
    DeserializationFailed,
    RequestFailed,
    WrongState,
    WrongType,
    from_exception,
    not_made,
    request_failed,
    timed_out,
)
from tidelog.client.records import (
    AtTime,
    ConsumerRecord,
    Edge,
    GivenOffsets,
    Headers,
    K,
    OffsetAndMetadata,
    Position,
    TimestampType,
    TopicPartition,
    V,
)
from tidelog.client.serializers import Deserializer
from tidelog.client.settings import Role, Value
from tidelog.client.transacting import GroupMetadata, rd_offsets
from tidelog.client.troubles import LOGGER, Troubles

SLICE_S: Final = 0.2
"""How long ``fill`` blocks at most; so long do others wait to seek, and a consumer to be closed."""
_STORE_S: Final = 1.0
_RETRY_S: Final = 0.01
_MEETING_S: Final = 0.3
_PASSING: Final = frozenset({
    -195, -193, -192, -187, -185, -180, -147,  # connections, time-outs, the poll interval
    3, 5, 6, 14, 15, 16,  # topics that are not there (yet), leaders and coordinators on the move
})  # fmt: skip
"""What librdkafka reports and goes on about by itself: logged, as Java's consumer does."""

_TIMESTAMP_TYPES: Final = {
    TIMESTAMP_CREATE_TIME: TimestampType.CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}


class ConsumerCore(Generic[K, V]):
    def __init__(
        self,
        config: Mapping[str, Value],
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
    ) -> None:
        self.config = read_config(Role.CONSUMER, config)
        self.troubles = Troubles(self.config)
        self.group_id = self.config.text("group.id")
        self.max_poll_records = self.config.number("max.poll.records")
        self.timeout_s = self.config.seconds("default.api.timeout.ms")
        try:
            self.rd = RdConsumer({**self.config.librdkafka, **self.troubles.options()})
        except KafkaException as error:
            raise not_made(error, "the consumer could not be made") from None
        self.is_closed = False
        self.arriving: dict[TopicPartition, int] | None = None
        """While a listener is told of new partitions: where each is to begin."""
        self.paused: set[TopicPartition] = set()
        self._key: Deserializer[K] = checked_function("key_deserializer", key_deserializer)
        self._value: Deserializer[V] = checked_function("value_deserializer", value_deserializer)
        self._buffer: deque[RdMessage] = deque()
        self._failure: RequestFailed | None = None
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self._stored: dict[TopicPartition, int] = {}
        self._stored_at_s = 0.0
        self._state = threading.RLock()
        self._fetching = threading.Lock()
        self.listening_thread: int | None = None
        """Where a listener is told, inside of ``fill`` or of ``close``."""

    # --- records ----------------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        return bool(self._buffer) or self._failure is not None

    def fill(self, timeout_s: float) -> None:
        """Wait for records for one slice at most, unless some are there; runs callbacks."""
        self.require_open()
        if self.has_records:
            return
        self.store_done()
        with self._fetching:
            try:
                first = self.rd.poll(min(SLICE_S, max(0.0, timeout_s)))
                rest = self.max_poll_records - 1
                more = self.rd.consume(rest, 0) if first is not None and rest else []
            except KafkaException as error:
                raise self.failed(error, "records could not be fetched") from None
            except RuntimeError as error:
                raise ClientClosed(f"the consumer is closed: {error}") from None
            with self._state:
                self._admit([first, *more] if first is not None else more)

    def _admit(self, messages: Sequence[RdMessage]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self._buffer.append(message)
            elif not error.fatal() and error.code() in _PASSING:
                LOGGER.warning("%s", error.str())
            elif self._failure is None:  # raised after the records that came before it
                self._failure = request_failed(error, "consuming failed", self.troubles.tried)

    def take(self, limit: int) -> list[ConsumerRecord[K, V]]:
        """Hand out records that are there, and move the positions past them."""
        taken: list[ConsumerRecord[K, V]] = []
        with self._state:
            while self._buffer and len(taken) < limit:
                message = self._buffer[0]
                try:
                    record = self._read(message)
                except DeserializationFailed:
                    if taken:
                        break  # first those before it; it is still there next time
                    raise
                self._buffer.popleft()
                taken.append(record)
                self._positions[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(
                    record.offset + 1, leader_epoch=record.leader_epoch
                )
            if not taken and not self._buffer and self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
        return taken

    def _read(self, message: RdMessage) -> ConsumerRecord[K, V]:
        raw_key, raw_value = message.key(), message.value()
        kind, timestamp_ms = message.timestamp()
        return ConsumerRecord(
            message.topic() or "",
            _number(message.partition()),
            _number(message.offset()),
            None if raw_key is None else self._deserialize(message, "key", self._key, raw_key),
            None
            if raw_value is None
            else self._deserialize(message, "value", self._value, raw_value),
            self._headers(message),
            timestamp_ms,
            _TIMESTAMP_TYPES.get(kind, TimestampType.NONE),
            message.leader_epoch(),
        )

    def _deserialize(
        self, message: RdMessage, what: str, deserializer: Deserializer[Any], data: bytes
    ) -> Any:
        try:
            return deserializer(data)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            failure = _unreadable(message, what, error)
            if what == "key":
                failure.code, failure.name = KEY_DESERIALIZATION, "_KEY_DESERIALIZATION"
            raise failure from error

    def _headers(self, message: RdMessage) -> Headers:
        """Their names are text; the binding stumbles over those that other clients wrote else."""
        try:
            headers: Any = message.headers()
        except (ValueError, SystemError) as error:
            raise _unreadable(message, "headers", error.__cause__ or error) from error
        return tuple(headers) if headers else ()

    # --- offsets ----------------------------------------------------------------------------

    def store_done(self, *, if_due: bool = False) -> None:
        """Let automatic commits see what was handed out: the program has come back for more."""
        if not self.config.librdkafka["enable.auto.commit"]:
            return
        now_s = time.monotonic()
        if if_due and now_s - self._stored_at_s < _STORE_S:
            return
        self._stored_at_s = now_s
        with self._state:
            new = {
                partition: position
                for partition, position in self._positions.items()
                if self._stored.get(partition) != position.offset
            }
            if not new:
                return
            try:
                self.rd.store_offsets(offsets=rd_offsets(new))
            except KafkaException as error:
                # Of partitions that another member has by now: that one's offsets count.
                LOGGER.debug("offsets were not stored: %s", error)
                return
            self._stored.update({partition: one.offset for partition, one in new.items()})

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next record of each partition that records were handed out of, or sought in."""
        with self._state:
            return dict(self._positions)

    def commit(self, offsets: GivenOffsets | None) -> None:
        self.require_group("commit")
        wanted = self.positions() if offsets is None else checked_offsets(offsets)
        if not wanted:
            return
        what = f"group {self.group_id!r} could not commit"
        try:
            answers = self.rd.commit(offsets=rd_offsets(wanted), asynchronous=False)
        except KafkaException as error:
            raise self.failed(error, what) from None
        for one in answers or ():
            if one.error is not None:
                where = f"{what} offset {one.offset} of {one.topic}-{one.partition}"
                raise request_failed(one.error, where, self.troubles.look)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self.require_group("ask what is committed")
        wanted = [RdTopicPartition(*one) for one in checked_partitions(partitions)]
        what = f"what group {self.group_id!r} committed is not known"
        with self.troubles.answered(what, self.timeout_s):
            answers = self.rd.committed(wanted, self.timeout_s)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for one in answers:
            if one.error is not None:
                raise request_failed(one.error, what, self.troubles.look)
            found[TopicPartition(one.topic, one.partition)] = (
                OffsetAndMetadata(one.offset, one.metadata or "", _epoch(one))
                if one.offset >= 0
                else None
            )
        return found

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; asks the brokers if none was read yet."""
        self.require_open()
        partition = checked_partition(partition)
        with self._state:
            known = self._positions.get(partition)
        if known is not None:
            return known.offset
        if partition not in self.assignment():
            raise WrongState(f"{partition} is not assigned to this consumer")
        committed = self.committed([partition])[partition] if self.group_id else None
        if committed is not None:
            return committed.offset
        reset = self.config.text("auto.offset.reset")
        if reset == "none":
            raise WrongState(f"{partition} has no position: nothing is committed, no reset is set")
        begin, end = self.watermarks(partition)
        return begin if reset == "earliest" else end

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset there is, and the one after the last that may be read."""
        self.require_open()
        partition = checked_partition(partition)
        what = f"the first and last offsets of {partition} are not known"
        with self.troubles.answered(what, self.timeout_s):
            answer = self.rd.get_watermark_offsets(
                RdTopicPartition(*partition), self.timeout_s, cached=False
            )
        if answer is None:
            raise timed_out(what, self.timeout_s, self.troubles.look())
        return answer

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        self.require_open()
        partition = checked_partition(partition)
        checked_number("timestamp_ms", timestamp_ms)
        what = f"the offset of {partition} at {timestamp_ms} is not known"
        with self.troubles.answered(what, self.timeout_s):
            (answer,) = self.rd.offsets_for_times(
                [RdTopicPartition(*partition, timestamp_ms)], self.timeout_s
            )
        if answer.error is not None:
            raise request_failed(answer.error, what, self.troubles.look)
        return answer.offset if answer.offset >= 0 else None

    # --- where to go on ---------------------------------------------------------------------

    def seek(self, partition: TopicPartition, position: Position) -> None:
        self.require_open()
        partition = checked_partition(partition)
        offset = self._resolve(partition, position)
        arriving = self.arriving
        if arriving is not None and partition in arriving:
            arriving[partition] = offset  # it begins there
            return
        if partition not in self.assignment():
            raise WrongState(f"{partition} is not assigned to this consumer, so it cannot seek")
        with self._nothing_fetched(), self._state:
            self._drop([partition])
            self._rd_seek(partition, offset)
            self._positions[partition] = OffsetAndMetadata(offset)

    def _resolve(self, partition: TopicPartition, position: Position) -> int:
        if isinstance(position, Edge):
            return self.watermarks(partition)[position is Edge.END]
        if isinstance(position, AtTime):
            found = self.offset_at(partition, position.timestamp_ms)
            return self.watermarks(partition)[1] if found is None else found
        if isinstance(position, bool) or not isinstance(position, int) or position < 0:
            raise WrongType(
                f"{position!r} is no position; an offset from 0 on, BEGINNING, END or AtTime is"
            )
        return checked_number("offset", position)

    def _rd_seek(self, partition: TopicPartition, offset: int) -> None:
        """librdkafka refuses while it only starts to fetch a partition, so for a moment."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                self.rd.seek(RdTopicPartition(*partition, offset))
                return
            except KafkaException as error:
                is_early = error.args[0].code() == WRONG_STATE
                if not is_early or time.monotonic() >= deadline:
                    raise self.failed(error, f"{partition} could not seek to {offset}") from None
            time.sleep(_RETRY_S)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing more of these; what was fetched of them is fetched again later."""
        wanted = self._assigned_only(partitions)
        with self._nothing_fetched(), self._state:
            rewound = self._drop(wanted)
            self.paused.update(wanted)
            present = [one for one in wanted if one not in (self.arriving or {})]
            self.rd.pause([RdTopicPartition(*one) for one in present])
            for partition, offset in rewound.items():
                self._rd_seek(partition, offset)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = self._assigned_only(partitions)
        with self._state:
            self.paused.difference_update(wanted)
            self.rd.resume([RdTopicPartition(*one) for one in wanted])

    def _assigned_only(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        self.require_open()
        wanted = checked_partitions(partitions)
        assigned = self.assignment()
        for one in wanted:
            if one not in assigned:
                raise WrongState(f"{one} is not assigned to this consumer")
        return wanted

    def _drop(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Take records out of the buffer; the first offset of each partition that had some."""
        gone = set(partitions)
        first: dict[TopicPartition, int] = {}
        kept: deque[RdMessage] = deque()
        for message in self._buffer:
            partition = TopicPartition(message.topic() or "", _number(message.partition()))
            if partition in gone:
                first.setdefault(partition, _number(message.offset()))
            else:
                kept.append(message)
        self._buffer = kept
        return first

    @contextmanager
    def _nothing_fetched(self) -> Iterator[None]:
        """Between two polls of librdkafka; a listener's own calls are inside of one."""
        if self.is_listener():
            yield
            return
        with self._fetching:
            yield

    # --- what it has ------------------------------------------------------------------------

    def assignment(self) -> frozenset[TopicPartition]:
        self.require_open()
        found = {TopicPartition(one.topic, one.partition) for one in self.rd.assignment()}
        return frozenset(found | set(self.arriving or ()))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are no longer this consumer's."""
        gone = list(partitions)
        with self._state:
            self._drop(gone)
            for partition in gone:
                self._positions.pop(partition, None)
                self._stored.pop(partition, None)
                self.paused.discard(partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """These and no others, without a group's say."""
        self.require_open()
        wanted = {one: self._first_offset() for one in checked_partitions(partitions)}
        self._meet(wanted)
        with self._nothing_fetched():
            self.forget(self.assignment())
            self.rd.assign([RdTopicPartition(*one, offset) for one, offset in wanted.items()])

    def _meet(self, partitions: Iterable[TopicPartition]) -> None:
        """librdkafka asks where a partition begins at once, and else after half a second."""
        for topic in {one.topic for one in partitions}:
            with suppress(KafkaException):  # whoever is not there now may be later
                self.rd.list_topics(topic, timeout=_MEETING_S)
            return

    def unsubscribe(self) -> None:
        """Leave the group; a listener is told by the next poll, which hands out nothing more."""
        self.require_open()
        with self._nothing_fetched(), self._state:
            self._drop(self.assignment())
            self.rd.unsubscribe()

    def _first_offset(self) -> int:
        """Where a partition begins; without a group there is nothing committed to ask for."""
        if self.group_id:
            return OFFSET_INVALID
        match self.config.text("auto.offset.reset"):
            case "earliest":
                return OFFSET_BEGINNING
            case "latest":
                return OFFSET_END
            case _:
                return OFFSET_INVALID

    def begin_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Partitions that a listener sought in before they were fetched at all."""
        with self._state:
            for partition, offset in offsets.items():
                if offset >= 0:
                    self._positions[partition] = OffsetAndMetadata(offset)

    def group_metadata(self) -> GroupMetadata:
        self.require_open()
        self.require_group("give its group's metadata")
        return GroupMetadata(self.group_id or "", self.rd.consumer_group_metadata())

    def close(self) -> None:
        """Commit what is done, if commits are automatic, and leave the group."""
        with self._fetching:
            if self.is_closed:
                return
            self.store_done()
            try:
                self.rd.close()  # a listener may commit what it is about to lose
            finally:
                self.is_closed = True

    # --- asking -----------------------------------------------------------------------------

    def is_listener(self) -> bool:
        """Whether a listener asks, or the thread that waits for it does so on its behalf."""
        return self.listening_thread == threading.get_ident()

    def require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed("the consumer is closed")

    def require_group(self, what: str) -> None:
        self.require_open()
        if not self.group_id:
            raise WrongState(f"a consumer without group.id cannot {what}")

    def failed(self, error: KafkaException, what: str) -> ClientError:
        return from_exception(error, what, self.troubles.look)


def _unreadable(message: RdMessage, what: str, error: BaseException) -> DeserializationFailed:
    topic, partition = message.topic() or "", _number(message.partition())
    offset = _number(message.offset())
    return DeserializationFailed(
        f"the {what} of the record at offset {offset} of {topic}-{partition} cannot be "
        f"read: {type(error).__name__}: {error}; seek to {offset + 1} to leave it out",
        topic,
        partition,
        offset,
    )


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _epoch(one: RdTopicPartition) -> int | None:
    return one.leader_epoch if one.leader_epoch is not None and one.leader_epoch >= 0 else None
