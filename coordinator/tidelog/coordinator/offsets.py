"""The offsets that groups have committed, and those that wait for the end of a transaction.

Owner: the coordinator of one partition of the offsets topic. The state is what the records say:
``plan_*`` functions check and return records to write, and ``replay`` applies a record once it is
replicated, the same way at run time and at load. Nothing changes on any other path, and no answer
that carries an error carries an offset.

Invariants: an offset is visible only after its record is replicated; a transactional one only
after the COMMIT marker; of two offsets of a partition the one later in the log wins, whenever its
transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinator.records import OffsetKey, OffsetRecord, OffsetValue
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_ID, ZERO_UUID, ProducerId, Uuid

Place = tuple[str, int]
"""A topic's name and the index of a partition."""

NO_COMMITTED_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetSettings:
    metadata_max_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One error per partition in the order asked; records only for those without one."""

    errors: tuple[ErrorCode, ...]
    records: tuple[OffsetRecord, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What OffsetFetch says of one partition; an offset only where there is no error."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    offset: int = NO_COMMITTED_OFFSET
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class _Stored:
    value: OffsetValue
    position: int
    """Where in the log of the offsets topic the record stands."""


@dataclass(slots=True)
class CommittedOffsets:
    settings: OffsetSettings
    _committed: dict[str, dict[Place, _Stored]] = field(default_factory=dict)
    _pending: dict[ProducerId, dict[str, dict[Place, _Stored]]] = field(default_factory=dict)
    _producers: dict[str, set[ProducerId]] = field(default_factory=dict)
    """Whose open transactions have offsets of a group; a shard may have thousands of others."""
    _places: dict[Place, Place] = field(default_factory=dict)
    """One object for each partition, however many groups have an offset of it."""

    # --- plans ---------------------------------------------------------------------------------

    def plan_commit(
        self,
        now_ms: int,
        group: str,
        offsets: Iterable[OffsetToCommit],
        exists: Callable[[str, int], bool],
        retention_ms: int | None = None,
    ) -> CommitPlan:
        """Checks each partition by itself; ``retention_ms`` is what clients of old may ask for."""
        errors: list[ErrorCode] = []
        records: list[OffsetRecord] = []
        for asked in offsets:
            error = self._check(asked, exists)
            errors.append(error)
            if error is ErrorCode.NONE:
                records.append(_record(now_ms, group, asked, retention_ms))
        return CommitPlan(tuple(errors), tuple(records))

    def _check(self, asked: OffsetToCommit, exists: Callable[[str, int], bool]) -> ErrorCode:
        if not exists(asked.topic, asked.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        size = len((asked.metadata or "").encode("utf-8", "surrogatepass"))
        if size > self.settings.metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def plan_delete(
        self,
        group: str,
        places: Iterable[Place],
        exists: Callable[[str, int], bool],
        subscribed: Callable[[str], bool],
    ) -> tuple[tuple[ErrorCode, ...], tuple[OffsetRecord, ...]]:
        """Tombstones for what exists and is not in use; deleting nothing is no error."""
        errors: list[ErrorCode] = []
        records: list[OffsetRecord] = []
        for place in places:
            error = ErrorCode.NONE
            if not exists(*place):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed(place[0]):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            errors.append(error)
            if error is ErrorCode.NONE and self._holds(group, place):
                records.append(_tombstone(group, place))
        return tuple(errors), tuple(records)

    def tombstones(self, group: str) -> tuple[OffsetRecord, ...]:
        """What deletes a group's offsets, those of open transactions included."""
        return tuple(_tombstone(group, place) for place in sorted(self._all_places(group)))

    def tombstones_of_topic(self, is_gone: Callable[[str, int], bool]) -> tuple[OffsetRecord, ...]:
        """What deletes the offsets of partitions that exist no more, in all groups."""
        groups = self._committed.keys() | self._producers.keys()
        return tuple(
            _tombstone(group, place)
            for group in sorted(groups)
            for place in sorted(self._all_places(group))
            if is_gone(*place)
        )

    # --- the only ways the state changes -------------------------------------------------------

    def replay(
        self, record: OffsetRecord, position: int, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Applies a replicated record; a producer's are kept apart until its marker."""
        group, place = record.key.group, (record.key.topic, record.key.partition)
        place = self._places.setdefault(place, place)
        if record.value is None:
            self._remove(group, place)
            return
        stored = _Stored(record.value, position)
        if producer_id != NO_PRODUCER_ID:
            self._pending.setdefault(producer_id, {}).setdefault(group, {})[place] = stored
            self._producers.setdefault(group, set()).add(producer_id)
        else:
            self._committed.setdefault(group, {})[place] = stored

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """A COMMIT marker makes the producer's offsets count, an ABORT marker drops them."""
        for group, offsets in self._pending.pop(producer_id, {}).items():
            self._disconnect(group, producer_id)
            if not committed:
                continue
            known = self._committed.setdefault(group, {})
            for place, stored in offsets.items():
                if place not in known or known[place].position < stored.position:
                    known[place] = stored

    def _remove(self, group: str, place: Place) -> None:
        _discard(self._committed, group, place)
        for producer_id in tuple(self._producers.get(group, ())):
            groups = self._pending[producer_id]
            _discard(groups, group, place)
            if group not in groups:
                self._disconnect(group, producer_id)
            if not groups:
                del self._pending[producer_id]

    def _disconnect(self, group: str, producer_id: ProducerId) -> None:
        producers = self._producers[group]
        producers.discard(producer_id)
        if not producers:
            del self._producers[group]

    # --- views ---------------------------------------------------------------------------------

    def fetch(
        self, group: str, places: Iterable[Place] | None, *, require_stable: bool
    ) -> tuple[Fetched, ...]:
        """The offsets asked for, or all.

        Whoever must not see an offset that may still change gets an error to try again with, and
        no offset: the one before it would make it process records twice (KIP-447).
        """
        known = self._committed.get(group, {})
        wanted = sorted(self._all_places(group)) if places is None else places
        return tuple(
            self._fetch_one(group, known, place, require_stable)
            for place in wanted
            if places is not None or place in known or require_stable
        )

    def _fetch_one(
        self, group: str, known: dict[Place, _Stored], place: Place, require_stable: bool
    ) -> Fetched:
        topic, partition = place
        if require_stable and self.is_pending(group, place):
            return Fetched(topic, partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        stored = known.get(place)
        if stored is None:
            return Fetched(topic, partition)
        value = stored.value
        return Fetched(
            topic, partition, ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata
        )

    def is_pending(self, group: str, place: Place) -> bool:
        return any(place in offsets for offsets in self._pending_of(group))

    def has_pending(self, group: str) -> bool:
        return group in self._producers

    def has_offsets(self, group: str) -> bool:
        return bool(self._committed.get(group)) or self.has_pending(group)

    def groups_of(self, producer_id: ProducerId) -> tuple[str, ...]:
        """The groups that a producer's open transaction has offsets of."""
        return tuple(self._pending.get(producer_id, ()))

    def groups(self) -> Iterator[str]:
        return iter(self._committed)

    def committed(self, group: str) -> Iterator[tuple[Place, OffsetValue]]:
        return ((place, each.value) for place, each in self._committed.get(group, {}).items())

    def _holds(self, group: str, place: Place) -> bool:
        return place in self._committed.get(group, {}) or self.is_pending(group, place)

    def _all_places(self, group: str) -> set[Place]:
        return set(self._committed.get(group, {})).union(*self._pending_of(group))

    def _pending_of(self, group: str) -> Iterator[dict[Place, _Stored]]:
        return (self._pending[each][group] for each in self._producers.get(group, ()))


def _record(
    now_ms: int, group: str, asked: OffsetToCommit, retention_ms: int | None
) -> OffsetRecord:
    expire_ms = None if retention_ms is None else now_ms + retention_ms
    metadata = asked.metadata or ""
    # The old version that has room for an expiry has none for the epoch and the topic's id.
    epoch = -1 if expire_ms is not None else asked.leader_epoch
    topic_id = ZERO_UUID if expire_ms is not None else asked.topic_id
    value = OffsetValue(asked.offset, epoch, metadata, now_ms, expire_ms, topic_id)
    return OffsetRecord(OffsetKey(group, asked.topic, asked.partition), value)


def _tombstone(group: str, place: Place) -> OffsetRecord:
    return OffsetRecord(OffsetKey(group, *place), None)


def _discard(groups: dict[str, dict[Place, _Stored]], group: str, place: Place) -> None:
    offsets = groups.get(group)
    if offsets is not None:
        offsets.pop(place, None)
        if not offsets:
            del groups[group]
