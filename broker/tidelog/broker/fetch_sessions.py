"""Incremental fetch sessions (KIP-227): a consumer states only what changed since its last fetch.

Pure. The cache remembers what each session asks for and what it was last told. A request is turned
into the partitions to read, in order, and the results into what is worth telling: partitions with
records, with news about their bounds, or with an error. A partition that gave records goes to the
end of the order, so that a busy one cannot starve the others.

Epochs make a session safe against lost and repeated requests: each request carries the number of
the one before plus one, and anything else is refused, whereupon the client starts afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_NODE, NO_OFFSET, Offset, PartitionIndex, TopicId
from tidelog.kernel.ports import Random
from tidelog.wire.protocol.hot_requests.fetch import FetchPartition, FetchRequest
from tidelog.wire.protocol.hot_responses.fetch import NO_DIVERGENCE, FetchPartitionResponse

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_EVICTION_MS: Final = 120_000


class TopicKey(NamedTuple):
    """As the client named it: by name up to version 12, by id afterwards."""

    name: str
    topic_id: TopicId


PartitionKey: TypeAlias = tuple[TopicKey, PartitionIndex]


@dataclass(slots=True)
class _Told:
    """A partition in a session: what is asked, and the bounds that were last told."""

    wanted: FetchPartition
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET


@dataclass(slots=True)
class _Session:
    session_id: int
    uses_topic_ids: bool
    created_ms: float
    used_ms: float
    next_epoch: int = 1
    partitions: dict[PartitionKey, _Told] = field(default_factory=dict)


class Result(NamedTuple):
    key: PartitionKey
    response: FetchPartitionResponse


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to read, in this order; give the results to ``FetchSessions.tell``."""

    wanted: tuple[tuple[PartitionKey, FetchPartition], ...]
    session: _Session | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """The cache of one node, bounded by ``max.incremental.fetch.session.cache.slots``."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, now_ms: float, request: FetchRequest, *, uses_topic_ids: bool
    ) -> FetchPlan | ErrorCode:
        """The plan of a request, or the error that makes the client start a new session."""
        asked = _partitions_of(request)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return FetchPlan(tuple(asked.items()), None, is_incremental=False)
            session = self._open(now_ms, asked, uses_topic_ids)
            return FetchPlan(tuple(asked.items()), session, is_incremental=False)
        return self._continue(now_ms, request, asked, uses_topic_ids)

    def _continue(
        self,
        now_ms: float,
        request: FetchRequest,
        asked: dict[PartitionKey, FetchPartition],
        uses_topic_ids: bool,
    ) -> FetchPlan | ErrorCode:
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.next_epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.next_epoch = 1 if session.next_epoch == _MAX_EPOCH else session.next_epoch + 1
        session.used_ms = now_ms
        self._update(session, request, asked)
        wanted = tuple((key, told.wanted) for key, told in session.partitions.items())
        if not wanted:
            del self._sessions[session.session_id]
            return FetchPlan((), None, is_incremental=False)
        return FetchPlan(wanted, session, is_incremental=True)

    @staticmethod
    def _update(
        session: _Session, request: FetchRequest, asked: dict[PartitionKey, FetchPartition]
    ) -> None:
        for key, wanted in asked.items():
            told = session.partitions.get(key)
            if told is None:
                session.partitions[key] = _Told(wanted)
            else:
                told.wanted = wanted
        for topic in request.forgotten:
            for index in topic.partitions:
                session.partitions.pop((TopicKey(topic.name, topic.topic_id), index), None)

    # --- answering ---------------------------------------------------------------------

    def tell(self, plan: FetchPlan, results: Sequence[Result]) -> list[Result]:
        """Which results the client has to be told; the session remembers that it was."""
        session = plan.session
        if session is None:
            return list(results)
        news = [result for result in results if _note(session, result) or not plan.is_incremental]
        for key, response in news:
            if _has_records(response) and key in session.partitions:
                session.partitions[key] = session.partitions.pop(key)
        return news

    # --- the cache ---------------------------------------------------------------------

    def _open(
        self, now_ms: float, asked: dict[PartitionKey, FetchPartition], uses_topic_ids: bool
    ) -> _Session | None:
        """None if the cache is full of sessions that deserve their place more."""
        if len(self._sessions) >= self._slots and not self._evict(now_ms, len(asked)):
            return None
        session = _Session(self._new_id(), uses_topic_ids, now_ms, now_ms)
        session.partitions = {key: _Told(wanted) for key, wanted in asked.items()}
        self._sessions[session.session_id] = session
        return session

    def _evict(self, now_ms: float, partitions: int) -> bool:
        """Make room: the least recently used if it is stale, else an old one that is smaller."""
        if not self._sessions:
            return False
        stale = min(self._sessions.values(), key=lambda s: s.used_ms)
        small = min(self._sessions.values(), key=lambda s: (len(s.partitions), s.created_ms))
        if now_ms - stale.used_ms > _EVICTION_MS:
            victim = stale
        elif len(small.partitions) < partitions and now_ms - small.created_ms > _EVICTION_MS:
            victim = small
        else:
            return False
        del self._sessions[victim.session_id]
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, _MAX_EPOCH)
            if session_id not in self._sessions:
                return session_id


def _partitions_of(request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
    return {
        (TopicKey(topic.name, topic.topic_id), wanted.partition): wanted
        for topic in request.topics
        for wanted in topic.partitions
    }


def _has_records(response: FetchPartitionResponse) -> bool:
    records = response.records
    if records is None:
        return False
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records) > 0
    return records.length > 0


def _note(session: _Session, result: Result) -> bool:
    """Remember what this result says; True if it says anything new."""
    told = session.partitions.get(result.key)
    response = result.response
    if told is None:
        return True
    if response.error_code is not ErrorCode.NONE:
        told.high_watermark = NO_OFFSET  # so that the bounds are told again when it is over
        return True
    is_news = (
        _has_records(response)
        or told.high_watermark != response.high_watermark
        or told.log_start_offset != response.log_start_offset
        or response.preferred_read_replica != NO_NODE
        or response.diverging_epoch != NO_DIVERGENCE
    )
    told.high_watermark = response.high_watermark
    told.log_start_offset = response.log_start_offset
    return is_news


def grouped_by_topic(results: Iterable[Result]) -> dict[TopicKey, list[FetchPartitionResponse]]:
    """Runs of partitions under their topics, in order."""
    topics: dict[TopicKey, list[FetchPartitionResponse]] = {}
    for (topic, _), response in results:
        topics.setdefault(topic, []).append(response)
    return topics
