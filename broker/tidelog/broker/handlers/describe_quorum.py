"""DescribeQuorum: the replicas of the metadata log and how far they are, as its leader sees them.

The metadata log has one partition; every other partition asked for is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.context import (
    BrokerContext,
    ControllerRefused,
    QuorumDescription,
    QuorumMember,
)
from tidelog.broker.handlers.forwarding import Refusal
from tidelog.controller.decisions.topic_names import METADATA_TOPIC
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import to_kio_uuid
from tidelog.wire.protocol.responses import ResponseStructs, encode_response, response_structs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload

_FIRST_WITH_NODES: Final = 2
_NOT_HOSTED: Final = "This server does not host this topic-partition."


class DescribeQuorum:
    api_key = ApiKey.DESCRIBE_QUORUM
    is_pipelined = False

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._answer(call)

    async def _answer(self, call: Call) -> ResponseFrame:
        structs = response_structs(self.api_key, call.version)
        known = await self._ask() if _wants_metadata(call.request) else None
        if isinstance(known, Refusal):
            words = known.message or known.code.message
            message = structs.response(
                error_code=known.code, error_message=words, topics=(), nodes=()
            )
        else:
            has_nodes = call.version >= _FIRST_WITH_NODES
            nodes = _nodes(structs, known, self._listener) if known and has_nodes else ()
            message = _described(structs, call.request, known, nodes)
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    @property
    def _listener(self) -> str:
        """Voters are known by their addresses; all nodes call where they listen the same."""
        return self._context.settings.get_list("controller.listener.names")[0].upper()

    async def _ask(self) -> QuorumDescription | Refusal:
        timeout_ms = self._context.settings.get_int("request.timeout.ms")
        try:
            return await self._context.cluster.describe_quorum(timeout_ms=timeout_ms)
        except ControllerRefused as refused:
            return Refusal(refused.code, refused.message)


def _is_metadata(topic: str, partition: int) -> bool:
    return topic == METADATA_TOPIC and partition == 0


def _wants_metadata(request: Any) -> bool:
    return any(
        _is_metadata(topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )


def _described(
    structs: ResponseStructs,
    request: Any,
    quorum: QuorumDescription | None,
    nodes: tuple[Any, ...],
) -> ResponsePayload:
    def partition(topic: str, index: int) -> Any:
        if quorum is not None and _is_metadata(topic, index):
            return _partition(structs, quorum)
        return _unknown_partition(structs, index)

    topics = (
        structs.struct(
            "TopicData",
            topic_name=topic.topic_name,
            partitions=tuple(
                partition(topic.topic_name, one.partition_index) for one in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return structs.response(
        error_code=ErrorCode.NONE, error_message="", topics=tuple(topics), nodes=nodes
    )


def _partition(structs: ResponseStructs, quorum: QuorumDescription) -> Any:
    return structs.struct(
        "PartitionData",
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=tuple(_replica(structs, member) for member in quorum.voters),
        observers=tuple(_replica(structs, member) for member in quorum.observers),
    )


def _unknown_partition(structs: ResponseStructs, index: int) -> Any:
    return structs.struct(
        "PartitionData",
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=_NOT_HOSTED,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def _replica(structs: ResponseStructs, member: QuorumMember) -> Any:
    return structs.struct(
        "ReplicaState",
        replica_id=member.node_id,
        replica_directory_id=to_kio_uuid(member.directory_id),
        log_end_offset=member.log_end_offset,
        last_fetch_timestamp=member.last_fetch_at,
        last_caught_up_timestamp=member.last_caught_up_at,
    )


def _nodes(structs: ResponseStructs, quorum: QuorumDescription, listener: str) -> tuple[Any, ...]:
    return tuple(
        structs.struct(
            "Node",
            node_id=member.node_id,
            listeners=(
                structs.struct(
                    "Listener",
                    name=listener,
                    host=member.address.host,
                    port=member.address.port,
                ),
            ),
        )
        for member in quorum.voters
        if member.address is not None
    )
