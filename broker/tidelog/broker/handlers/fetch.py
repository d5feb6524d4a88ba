"""Fetch: records for consumers, now or when there are enough of them.

A request is read for at once. If that gives too little, the fetch waits in the partitions' waiting
rooms and is read for again when they have grown or its time is over. Records go out as slices of
files; nothing here looks into a batch.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, NamedTuple

from tidelog.broker.calls import Answer, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.fetch_sessions import (
    FetchPlan,
    FetchSessions,
    PartitionKey,
    Result,
    grouped_by_topic,
)
from tidelog.broker.partitions import LeaderHints, PartitionFinder, Replicas
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID
from tidelog.kernel.ports import Clock
from tidelog.kernel.settings.refusals import RACK_AWARE_SELECTOR
from tidelog.replication.outcomes import ClientMetadata, ConsumerRead, IsolationLevel
from tidelog.replication.partition import Partition
from tidelog.replication.waiting import FetchWaiter, Want
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.hot_requests.fetch import FetchPartition, FetchRequest
from tidelog.wire.protocol.hot_responses.fetch import (
    NO_DIVERGENCE,
    AbortedTransaction,
    DivergingEpoch,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch,
)
from tidelog.wire.protocol.hot_responses.leaders import UNKNOWN_LEADER

_FIRST_FROM_FOLLOWERS: Final = 12
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_LEADERS: Final = 16
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_WRONG_NODE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Row(NamedTuple):
    """One partition of a fetch, as it was read last."""

    key: PartitionKey
    wanted: FetchPartition
    partition: Partition | None
    read: ConsumerRead


class Fetch:
    api_key = ApiKey.FETCH
    is_pipelined = True

    def __init__(
        self, context: BrokerContext, replicas: Replicas, sessions: FetchSessions, clock: Clock
    ) -> None:
        self._context = context
        self._finder = PartitionFinder(context, replicas)
        self._sessions = sessions
        self._clock = clock

    def begin(self, call: Call) -> ResponseFrame | Awaitable[Answer]:
        request = call.request
        assert isinstance(request, FetchRequest)
        plan = self._sessions.begin(
            self._clock.monotonic_ms(), request, uses_topic_ids=call.version >= _FIRST_WITH_IDS
        )
        if isinstance(plan, ErrorCode):
            return encode_fetch(call.version, call.correlation_id, FetchResponse((), plan))
        rows = self._read(call, request, plan)
        if _is_enough(rows, request):
            return self._answer(call, plan, rows)
        return self._wait(call, request, plan, rows)

    async def _wait(
        self, call: Call, request: FetchRequest, plan: FetchPlan, rows: list[_Row]
    ) -> ResponseFrame:
        waiter = FetchWaiter(request.min_bytes)
        isolation = _isolation(request)
        for row in rows:
            if row.partition is not None:
                want = Want(
                    row.wanted.fetch_offset,
                    isolation,
                    row.wanted.partition_max_bytes,
                    row.read.size,
                )
                waiter.attach(row.partition, want)
        await waiter.wait(request.max_wait_ms)
        return self._answer(call, plan, self._read(call, request, plan))

    # --- reading -----------------------------------------------------------------------

    def _read(self, call: Call, request: FetchRequest, plan: FetchPlan) -> list[_Row]:
        """Partitions in order, each within what the ones before left of the size limit.

        Only the first records of a response may exceed it, so that a consumer gets on however
        large a batch is (KIP-74).
        """
        settings = self._context.settings
        left = min(request.max_bytes, settings.get_int("fetch.max.bytes"))
        client = ClientMetadata(request.rack_id) if call.version >= _FIRST_FROM_FOLLOWERS else None
        is_rack_aware = settings.get_optional_str("replica.selector.class") == RACK_AWARE_SELECTOR
        isolation = _isolation(request)
        rows: list[_Row] = []
        is_empty = True
        for key, wanted in plan.wanted:
            found = self._find(call, request, key)
            if isinstance(found, ErrorCode):
                rows.append(_Row(key, wanted, None, ConsumerRead(found)))
                continue
            read = found.read_for_consumer(
                wanted.fetch_offset,
                max(0, min(wanted.partition_max_bytes, left)),
                isolation,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                client=client,
                is_rack_aware=is_rack_aware,
                whole_first=is_empty,
            )
            if self._may_be_stale(found, wanted, read):
                read = ConsumerRead(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if read.size:
                is_empty = False
                left -= read.size
            rows.append(_Row(key, wanted, found, read))
        return rows

    def _may_be_stale(
        self, partition: Partition, wanted: FetchPartition, read: ConsumerRead
    ) -> bool:
        """Whether an offset may lie behind the end only because another broker leads by now.

        A consumer would take OFFSET_OUT_OF_RANGE for a loss and begin elsewhere, so a broker that
        is out of touch with the controllers sends it to look for the leader instead.
        """
        return (
            read.code is ErrorCode.OFFSET_OUT_OF_RANGE
            and wanted.fetch_offset > partition.log.end_offset
            and not self._context.cluster.is_in_touch()
        )

    def _find(self, call: Call, request: FetchRequest, key: PartitionKey) -> Partition | ErrorCode:
        topic, index = key
        if request.isolation_level not in tuple(IsolationLevel):
            return ErrorCode.INVALID_REQUEST
        if request.replica_id >= 0:
            # Replicas of this cluster fetch over gRPC; whoever claims to be one here is not.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if call.version >= _FIRST_WITH_IDS and topic.topic_id == ZERO_UUID:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._finder.find(topic.name, topic.topic_id, index)

    # --- answering ---------------------------------------------------------------------

    def _answer(self, call: Call, plan: FetchPlan, rows: list[_Row]) -> ResponseFrame:
        request = call.request
        assert isinstance(request, FetchRequest)
        is_committed = _isolation(request) is IsolationLevel.READ_COMMITTED
        for row in rows:
            if row.partition is not None:
                row.partition.meter.bytes_out += row.read.size
        hints = LeaderHints(self._context, self._finder, call.client.listener_name)
        results = [Result(row.key, self._partition(call, row, is_committed, hints)) for row in rows]
        topics = [
            FetchTopicResponse(topic.name, topic.topic_id, partitions)
            for topic, partitions in grouped_by_topic(self._sessions.tell(plan, results)).items()
        ]
        response = FetchResponse(
            topics, session_id=plan.session_id, node_endpoints=hints.endpoints()
        )
        return encode_fetch(call.version, call.correlation_id, response)

    def _partition(
        self, call: Call, row: _Row, is_committed: bool, hints: LeaderHints
    ) -> FetchPartitionResponse:
        read = row.read
        topic, index = row.key
        if read.code is not ErrorCode.NONE:
            self._context.requests.failed(call.api, read.code)
            leader = None
            if read.code in _WRONG_NODE and call.version >= _FIRST_WITH_LEADERS:
                leader = hints.of(topic.name, topic.topic_id, index)
            return FetchPartitionResponse(
                index,
                read.code,
                aborted_transactions=() if read.code in _UNKNOWN else None,
                current_leader=UNKNOWN_LEADER if leader is None else leader,
            )
        aborted = [AbortedTransaction(txn.producer_id, txn.first_offset) for txn in read.aborted]
        return FetchPartitionResponse(
            index,
            ErrorCode.NONE,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start,
            aborted if is_committed else None,
            read.preferred_read_replica,
            b"" if read.records is None else read.records,
            NO_DIVERGENCE if read.diverging is None else DivergingEpoch(*read.diverging),
        )


def _isolation(request: FetchRequest) -> IsolationLevel:
    is_committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    return IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED


def _is_enough(rows: list[_Row], request: FetchRequest) -> bool:
    """Whether to answer now: time, bytes, or something the client must hear at once."""
    return (
        request.max_wait_ms <= 0
        or not rows
        or sum(row.read.size for row in rows) >= request.min_bytes
        or any(row.read.is_urgent for row in rows)
    )
