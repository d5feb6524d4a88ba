"""Markers on their way: from the coordinator to the leaders, and there into the logs.

``MarkerSender`` finds who leads each partition now and sends what goes to one node in one turn of
the loop in one call. It remembers nothing: whatever became of a marker is told to the transaction,
which sends again what was not written, to whoever leads by then. A call to a leader that has been
replaced meanwhile is given up.

``MarkerWriter`` is the other end. A marker in the offsets topic also decides about the offsets that
were committed in the transaction.

A call that was given up may still be under way, and arrive when the producer has begun its next
transaction under the same epoch: what it says must not end that one. So every marker tells which
decision it stands for and which leadership it was meant for. A later leadership refuses it, and
within one the writer remembers each producer's last decision.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS
from tidelog.broker.leader_calls import LeaderCalls, Leadership
from tidelog.broker.partitions import Replicas
from tidelog.broker.transaction_messages import (
    WRITE_TXN_MARKERS,
    Marker,
    MarkerOrder,
    marker_codes,
    marker_orders,
    markers_request,
    markers_response,
)
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.coordinator.runtime.transaction_shard import TellOutcome
from tidelog.coordinator.transactions.events import MarkersAnswered, SendMarkers
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, ProducerId, TopicPartition
from tidelog.kernel.peers import CallContext, PeerError
from tidelog.replication.outcomes import Produced
from tidelog.replication.partition import Partition
from tidelog.v1 import coordinator_pb2 as pb
from tidelog.wire.control import ControlType, EndTxnMarker

_WRITE_TIMEOUT_MS: Final = 10_000.0
_CALL_TIMEOUT_MS: Final = _WRITE_TIMEOUT_MS + 2_000.0
_MARKERS_PER_CALL: Final = 10_000
_DECISIONS_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Decided:
    """The last decision about a producer's transactions that a partition has heard of."""

    leader_epoch: LeaderEpoch
    order: tuple[int, int]
    """The coordinator's epoch, and the number of the decision within it."""
    answer: asyncio.Future[ErrorCode]

    @property
    def is_written_or_will_be(self) -> bool:
        return not self.answer.done() or self.answer.result() is ErrorCode.NONE


class MarkerWriter:
    """On the leader of partitions."""

    def __init__(self, replicas: Replicas, groups: Groups) -> None:
        self._replicas = replicas
        self._groups = groups
        self._decided: OrderedDict[tuple[PartitionRef, ProducerId], _Decided] = OrderedDict()

    async def serve(
        self, context: CallContext, request: pb.WriteTxnMarkersRequest
    ) -> pb.WriteTxnMarkersResponse:
        orders = marker_orders(request)
        return markers_response(orders, await self.write_all(orders))

    async def write_all(self, orders: Sequence[MarkerOrder]) -> list[list[ErrorCode]]:
        """Everything is appended at once, and waited for together.

        Whoever gives this up does not take the answers with him: the marker may have been written,
        and who asks again is told by the same answer.
        """
        begun = [self._write_order(order) for order in orders]
        return [[await asyncio.shield(one) for one in row] for row in begun]

    def _write_order(self, order: MarkerOrder) -> list[asyncio.Future[ErrorCode]]:
        epochs = order.leader_epochs or (None,) * len(order.refs)
        return [
            self.write(order.marker, ref, epoch)
            for ref, epoch in zip(order.refs, epochs, strict=True)
        ]

    def write(
        self, marker: Marker, ref: PartitionRef, leader_epoch: LeaderEpoch | None = None
    ) -> asyncio.Future[ErrorCode]:
        """Append now; done when the marker is replicated, or was not written."""
        found = self._replicas.lookup_ref(ref)
        if isinstance(found, ErrorCode):
            return _answered(found)
        if leader_epoch is None or marker.decision == 0:
            return self._append(marker, found)
        fenced = found.fence(leader_epoch, leader_only=True)
        if fenced is not ErrorCode.NONE:
            return _answered(fenced)
        return self._append_once(marker, found, leader_epoch)

    def _append_once(
        self, marker: Marker, partition: Partition, leader_epoch: LeaderEpoch
    ) -> asyncio.Future[ErrorCode]:
        key, order = (
            (partition.ref, marker.producer_id),
            (marker.coordinator_epoch, marker.decision),
        )
        known = self._decided.get(key)
        if known is not None and known.leader_epoch == leader_epoch:
            if order < known.order:
                return _answered(ErrorCode.INVALID_TXN_STATE)
            if order == known.order and known.is_written_or_will_be:
                return known.answer
        answer = self._append(marker, partition)
        self._decided[key] = _Decided(leader_epoch, order, answer)
        self._decided.move_to_end(key)
        if len(self._decided) > _DECISIONS_REMEMBERED:
            self._decided.popitem(last=False)
        return answer

    def _append(self, marker: Marker, found: Partition) -> asyncio.Future[ErrorCode]:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        appended = found.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            EndTxnMarker(
                ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
                marker.coordinator_epoch,
            ),
            timeout_ms=_WRITE_TIMEOUT_MS,
            begins_epoch=marker.begins_epoch,
        )
        appended.add_done_callback(lambda done: self._appended(marker, found, done, answer))
        return answer

    def _appended(
        self,
        marker: Marker,
        partition: Partition,
        done: asyncio.Future[Produced],
        answer: asyncio.Future[ErrorCode],
    ) -> None:
        code = done.result().code
        if code is ErrorCode.NONE and partition.log.tp.topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(
                partition.ref.partition, marker.producer_id, committed=marker.is_commit
            )
        if not answer.done():
            answer.set_result(code)


def _answered(code: ErrorCode) -> asyncio.Future[ErrorCode]:
    answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    answer.set_result(code)
    return answer


@dataclass(frozen=True, slots=True)
class _Item:
    """The part of an effect that goes to one node."""

    order: MarkerOrder
    places: tuple[TopicPartition, ...]
    tell: Callable[[Sequence[ErrorCode]], None]


class _Place(NamedTuple):
    place: TopicPartition
    ref: PartitionRef
    leader_epoch: LeaderEpoch


class MarkerSender:
    """On the coordinator. Owner: the broker role, which calls ``close``."""

    def __init__(self, context: BrokerContext, calls: LeaderCalls, writer: MarkerWriter) -> None:
        self._context = context
        self._calls = calls
        self._writer = writer
        self._queues: dict[NodeId, list[_Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, effect: SendMarkers, tell: TellOutcome) -> None:
        def tell_about(places: Sequence[TopicPartition], codes: Sequence[ErrorCode]) -> None:
            outcomes = tuple(zip(places, codes, strict=True))
            tell(MarkersAnswered(effect.producer_id, effect.producer_epoch, outcomes))

        by_node: dict[NodeId, list[_Place]] = {}
        settled: list[tuple[TopicPartition, ErrorCode]] = []
        for place in effect.partitions:
            found = self._leader_of(place)
            if isinstance(found, ErrorCode):
                settled.append((place, found))
            else:
                by_node.setdefault(found[0], []).append(found[1])
        if settled:
            places, codes = zip(*settled, strict=True)
            asyncio.get_running_loop().call_soon(tell_about, places, codes)
        for node, rows in by_node.items():
            here = tuple(row.place for row in rows)
            order = MarkerOrder(
                _marker_of(effect),
                tuple(row.ref for row in rows),
                tuple(row.leader_epoch for row in rows),
            )
            self._enqueue(
                node,
                _Item(order, here, lambda codes, here=here: tell_about(here, codes)),  # type: ignore[misc]
            )

    def _leader_of(self, place: TopicPartition) -> tuple[NodeId, _Place] | ErrorCode:
        """Who writes the marker; NONE if there is nothing left to write it to."""
        topic = self._context.image.topics.named(place.topic)
        state = None if topic is None else topic.partitions.get(place.partition)
        if topic is None or state is None:
            return ErrorCode.NONE
        if not state.has_leader:
            return ErrorCode.LEADER_NOT_AVAILABLE
        ref = PartitionRef(topic.topic_id, place.partition)
        return state.leader, _Place(place, ref, state.leader_epoch)

    def _enqueue(self, node: NodeId, item: _Item) -> None:
        queue = self._queues.setdefault(node, [])
        queue.append(item)
        if len(queue) == 1:
            asyncio.get_running_loop().call_soon(self._flush, node)

    def _flush(self, node: NodeId) -> None:
        items = self._queues.pop(node, [])
        for start in range(0, len(items), _MARKERS_PER_CALL):
            part = items[start : start + _MARKERS_PER_CALL]
            task = asyncio.get_running_loop().create_task(
                self._call(node, part), name=f"markers to {node}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call(self, node: NodeId, items: Sequence[_Item]) -> None:
        orders = [item.order for item in items]
        try:
            if node == self._context.node_id:
                codes = await self._writer.write_all(orders)
            else:
                answer = await self._calls.call(
                    Leadership(node, _epochs(orders)),
                    WRITE_TXN_MARKERS,
                    markers_request(orders),
                    timeout_ms=_CALL_TIMEOUT_MS,
                    is_awaited=False,
                )
                codes = marker_codes(orders, answer)
        except PeerError:
            codes = [[ErrorCode.NETWORK_EXCEPTION] * len(order.refs) for order in orders]
        for item, of_item in zip(items, codes, strict=True):
            item.tell(of_item)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _epochs(orders: Sequence[MarkerOrder]) -> dict[PartitionRef, LeaderEpoch]:
    return {
        ref: epoch
        for order in orders
        for ref, epoch in zip(order.refs, order.leader_epochs, strict=True)
    }


def _marker_of(effect: SendMarkers) -> Marker:
    return Marker(
        effect.producer_id,
        effect.producer_epoch,
        effect.committed,
        effect.coordinator_epoch,
        effect.client_version,
        effect.decision,
    )
