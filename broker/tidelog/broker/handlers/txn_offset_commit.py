"""TxnOffsetCommit: offsets of a group that count when the producer's transaction commits.

It goes to the group's coordinator, which asks the transaction's coordinator whether the group was
added to the transaction, unless offsets of the transaction are there already (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.calls import Begun, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS
from tidelog.broker.partitions import Replicas
from tidelog.broker.transaction_gate import COME_AGAIN, TransactionGate, Writer, told_to_client
from tidelog.broker.transactions import IMPLICIT_ADDING
from tidelog.coordinator.commit_checks import Committer
from tidelog.coordinator.offsets import OffsetToCommit
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.runtime.group_shard import Codes
from tidelog.coordinator.runtime.shard_log import Producer
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_SEQUENCE, ZERO_UUID, ProducerEpoch, ProducerId
from tidelog.replication.partition import Partition
from tidelog.storage.txn_verification import Verification
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_WITH_ADDING: Final = 5


class TxnOffsetCommit:
    api_key = ApiKey.TXN_OFFSET_COMMIT
    is_pipelined = False

    def __init__(
        self, context: BrokerContext, replicas: Replicas, groups: Groups, gate: TransactionGate
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._groups = groups
        self._gate = gate

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        offsets = [
            self._offset(topic.name, one) for topic in request.topics for one in topic.partitions
        ]
        if not request.group_id:
            return _response(call, [ErrorCode.INVALID_GROUP_ID] * len(offsets))
        return self._commit(call, offsets)

    def _offset(self, topic: str, one: Any) -> OffsetToCommit:
        found = self._context.image.topics.named(topic)
        return OffsetToCommit(
            topic,
            one.partition_index,
            one.committed_offset,
            field_of(one, "committed_leader_epoch", -1),
            one.committed_metadata,
            ZERO_UUID if found is None else found.topic_id,
        )

    async def _commit(self, call: Call, offsets: Sequence[OffsetToCommit]) -> ResponseFrame:
        request: Any = call.request
        code = await self._verify(call, request)
        if code is not ErrorCode.NONE:
            return _response(call, [code] * len(offsets))
        shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return _response(call, [shard] * len(offsets))
        codes = shard.commit_in_transaction(
            request.group_id,
            Committer(
                field_of(request, "member_id", ""),
                field_of(request, "group_instance_id", None),
                field_of(request, "generation_id", -1),
            ),
            offsets,
            Producer(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        )
        if isinstance(codes, asyncio.Future):
            return _response(call, await codes)
        return _response(call, [self._judged(code) for code in codes])

    def _judged(self, code: ErrorCode) -> ErrorCode:
        """A refusal from memory; the group may have gone on at another coordinator since."""
        if code is ErrorCode.NONE or self._context.cluster.is_in_touch():
            return code
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def _verify(self, call: Call, request: Any) -> ErrorCode:
        """Whether the group is part of the transaction, or is made so."""
        partition = self._partition(request.group_id)
        if isinstance(partition, ErrorCode):
            return ErrorCode.NOT_COORDINATOR
        level = self._context.image.features.get("transaction.version", 0)
        writer = Writer(
            request.transactional_id,
            adds_partitions=call.version >= _FIRST_WITH_ADDING and level >= IMPLICIT_ADDING,
            knows_abortable=call.version >= _FIRST_WITH_ABORTABLE,
        )
        asked = self._gate.request(writer)
        held, verdict = asked.verify(
            partition,
            ProducerId(request.producer_id),
            ProducerEpoch(request.producer_epoch),
            NO_SEQUENCE,
        )
        asked.ask()
        if isinstance(held, ErrorCode):
            return ErrorCode.NOT_COORDINATOR
        if verdict is None:
            return ErrorCode.NONE
        code = await verdict
        if code in COME_AGAIN:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.NOT_COORDINATOR
        if code is ErrorCode.NONE and isinstance(held, Verification):
            held.is_approved = True
        return told_to_client(code, writer)

    def _partition(self, group_id: str) -> Partition | ErrorCode:
        topic = self._context.image.topics.named(CONSUMER_OFFSETS)
        if topic is None or not topic.partitions:
            return ErrorCode.NOT_COORDINATOR
        index = coordinator_partition(group_id, len(topic.partitions))
        return self._replicas.lookup(CONSUMER_OFFSETS, index)


def _response(call: Call, codes: Codes | Sequence[ErrorCode]) -> ResponseFrame:
    request: Any = call.request
    structs = response_structs(call.api.key, call.version)
    given = iter(codes)
    topics = [
        structs.struct(
            "TxnOffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                structs.struct(
                    "TxnOffsetCommitResponsePartition",
                    partition_index=one.partition_index,
                    error_code=next(given),
                )
                for one in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    message = structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
    return encode_response(call.api.key, call.version, call.correlation_id, message)
