"""The transaction coordinator of this broker: a shard per partition of ``__transaction_state``.

Handlers find the shard of a transactional id here, partition leaders ask here whether a partition
is part of a transaction, wherever that is coordinated. Shards follow the roles of the replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import TRANSACTION_STATE
from tidelog.broker.handlers.producer_id_blocks import ProducerIdBlocks
from tidelog.broker.leader_calls import LeaderCalls, LeaderReplaced, Leadership
from tidelog.broker.ports import NodePorts
from tidelog.broker.shard_partition import LeaderPartition
from tidelog.broker.transaction_markers import MarkerSender
from tidelog.broker.transaction_messages import (
    ADD_PARTITIONS_TO_TXN,
    Question,
    question_codes,
    question_request,
    question_response,
    questions,
)
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet, ShardSettings
from tidelog.coordinator.runtime.transaction_shard import TransactionPorts, TransactionShard
from tidelog.coordinator.transactions.events import AddPartitions, PartitionsResult
from tidelog.coordinator.transactions.transaction import TransactionSettings
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition
from tidelog.kernel.peers import CallContext, PeerError, PeerRefused
from tidelog.kernel.settings import Settings
from tidelog.replication.replicas import ReplicaSet
from tidelog.v1 import coordinator_pb2 as pb

FEATURE: Final = "transaction.version"
IMPLICIT_ADDING: Final = 2
"""From this level on the leader of a partition adds it to the transaction (KIP-890)."""


class Transactions:
    """Owner: the broker role, which calls ``close``."""

    def __init__(
        self,
        context: BrokerContext,
        replicas: ReplicaSet,
        ports: NodePorts,
        producer_ids: ProducerIdBlocks,
        markers: MarkerSender,
        calls: LeaderCalls,
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._calls = calls
        self._offload = ports.offload
        self._ports = TransactionPorts(
            lambda: _settings(context.settings),
            self.feature_level,
            producer_ids.take,
            markers.send,
            context.cluster.is_in_touch,
        )
        self._led: dict[PartitionIndex, PartitionRef] = {}
        self._shards: ShardSet[TransactionShard] = ShardSet(
            TRANSACTION_STATE,
            self._make_shard,
            CoordinatorClock(ports.clock),
            ShardSettings(
                lambda: context.settings.get_int("request.timeout.ms"),
                lambda: context.settings.get_int("transaction.state.log.load.buffer.size"),
                context.cluster.is_cut_off,
            ),
        )
        replicas.role_listeners.append(self._role_changed)

    def feature_level(self) -> int:
        return self._context.image.features.get(FEATURE, 0)

    # --- looking up --------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """The shard of an id, or why it is not served here and now."""
        found = self._partition_of(transactional_id)
        return ErrorCode.NOT_COORDINATOR if found is None else self._shards.find(found[0].partition)

    def shards(self) -> Iterator[TransactionShard | ErrorCode]:
        """All that are here; an error in place of one that loads."""
        return self._shards.all()

    def _partition_of(self, transactional_id: str) -> tuple[PartitionRef, PartitionState] | None:
        topic = self._context.image.topics.named(TRANSACTION_STATE)
        if topic is None or not topic.partitions:
            return None
        index = coordinator_partition(transactional_id, len(topic.partitions))
        state = topic.partitions.get(index)
        return None if state is None else (PartitionRef(topic.topic_id, index), state)

    # --- questions of partition leaders ------------------------------------------------

    async def ask(self, question: Question, *, timeout_ms: float) -> Sequence[ErrorCode]:
        """The coordinator's answer for each partition, wherever it is."""
        found = self._partition_of(question.transactional_id)
        if found is None or not found[1].has_leader:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(question.refs)
        ref, state = found
        if state.leader == self._context.node_id:
            return await self.answer(question)
        try:
            answer = await self._calls.call(
                Leadership(state.leader, {ref: state.leader_epoch}),
                ADD_PARTITIONS_TO_TXN,
                question_request(question),
                timeout_ms=max(timeout_ms, 1),
            )
        except LeaderReplaced:
            return [ErrorCode.NOT_COORDINATOR] * len(question.refs)
        except PeerError:
            return [ErrorCode.NETWORK_EXCEPTION] * len(question.refs)
        return question_codes(question, answer)

    async def answer(self, question: Question) -> Sequence[ErrorCode]:
        """As the coordinator."""
        count = len(question.refs)
        shard = self.find(question.transactional_id)
        if isinstance(shard, ErrorCode):
            return [shard] * count
        places = [self._place(ref) for ref in question.refs]
        known = tuple(place for place in places if place is not None)
        if len(known) < count:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            skipped = ErrorCode.OPERATION_NOT_ATTEMPTED
            return [unknown if place is None else skipped for place in places]
        result = await shard.ask(
            question.transactional_id,
            AddPartitions(
                0,
                question.producer_id,
                question.producer_epoch,
                known,
                0 if question.verify_only else IMPLICIT_ADDING,
                question.verify_only,
            ),
        )
        assert isinstance(result, PartitionsResult)
        return result.errors or (result.error,) * count

    def _place(self, ref: PartitionRef) -> TopicPartition | None:
        topic = self._context.image.topics.by_id.get(ref.topic_id)
        if topic is None or ref.partition not in topic.partitions:
            return None
        return TopicPartition(topic.name, ref.partition)

    async def serve(
        self, context: CallContext, request: pb.AddPartitionsToTxnRequest
    ) -> pb.AddPartitionsToTxnResponse:
        asked = questions(request)
        if not asked:
            raise PeerRefused(ErrorCode.INVALID_REQUEST.name, "no transaction was named")
        codes = await asyncio.gather(*map(self.answer, asked))
        return question_response(asked, codes)

    # --- shards ------------------------------------------------------------------------

    def update_settings(self, settings: Settings) -> None:
        for shard in self._shards.active():
            shard.update_settings()

    def close(self) -> None:
        self._shards.close()

    def _role_changed(self, ref: PartitionRef) -> None:
        partition = self._replicas.partitions.get(ref)
        if partition is None or partition.leader is None:
            if self._led.get(ref.partition) == ref:
                del self._led[ref.partition]
                self._shards.resign(ref.partition)
        elif self._replicas.image.topics.by_name.get(TRANSACTION_STATE) == ref.topic_id:
            self._led[ref.partition] = ref
            led = LeaderPartition(partition, self._offload)
            self._shards.lead(ref.partition, led, partition.leader.leader_epoch)

    def _make_shard(self, writer: ShardLog, watch: Callable[[], None]) -> TransactionShard:
        return TransactionShard(writer, watch, self._ports)


def _settings(settings: Settings) -> TransactionSettings:
    get = settings.get_int
    return TransactionSettings(
        max_timeout_ms=get("transaction.max.timeout.ms"),
        id_expiration_ms=get("transactional.id.expiration.ms"),
        abort_retry_ms=get("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        removal_retry_ms=get("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )
