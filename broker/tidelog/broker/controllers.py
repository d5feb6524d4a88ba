"""The cluster as handlers see it, on top of the client that a broker has for its controllers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.broker.context import ControllerRefused, QuorumDescription, QuorumMember
from tidelog.controller.client.answers import ForwardedRequest
from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.client.controller_client import ControllerClient, NotRegistered
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.metadata.image import MetadataImage
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_NODE,
    NO_OFFSET,
    NO_TIMESTAMP,
    DirectoryId,
    NodeId,
    Offset,
    TimestampMs,
    Uuid,
)
from tidelog.kernel.peers import PeerRefused
from tidelog.v1 import controller_pb2 as pb

_CATCH_UP_MS: Final = 500.0
"""How long an answer waits for the metadata to show what it is about; a moment is enough, unless
this broker hears from no controller that can tell."""


class ControllerCluster:
    """A ``Cluster``."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client

    @property
    def image(self) -> MetadataImage:
        return self._client.feed.image

    def is_in_touch(self) -> bool:
        return self._client.is_in_touch()

    def is_cut_off(self) -> bool:
        return self._client.silence_ms() is not None

    async def forward(self, request: ForwardedRequest, *, timeout_ms: float) -> bytes:
        try:
            answer = await self._client.forward(request, timeout_ms=timeout_ms)
        except (ControllerUnavailable, PeerRefused) as error:
            raise _refused(error) from error
        if isinstance(answer, ApiError):
            raise ControllerRefused(answer.code, answer.message)
        # Who changed something and asks this broker next is shown the change.
        await self._client.catch_up(within_ms=_CATCH_UP_MS)
        return answer

    async def allocate_producer_ids(self, *, timeout_ms: float) -> range:
        try:
            block = await self._client.allocate_producer_ids(timeout_ms=timeout_ms)
        except (ControllerUnavailable, PeerRefused, NotRegistered) as error:
            raise _refused(error) from error
        if block.error.is_error:
            raise ControllerRefused(block.error.code, block.error.message)
        return range(block.first, block.first + block.size)

    async def describe_quorum(self, *, timeout_ms: float) -> QuorumDescription:
        try:
            answer = await self._client.describe_quorum(timeout_ms=timeout_ms)
        except (ControllerUnavailable, PeerRefused) as error:
            raise _refused(error) from error
        if answer.error_code:
            raise ControllerRefused(ErrorCode(answer.error_code), answer.error_message or None)
        return _description(answer)


def _refused(error: ControllerUnavailable | PeerRefused | NotRegistered) -> ControllerRefused:
    match error:
        case ControllerUnavailable():
            return ControllerRefused(ErrorCode.REQUEST_TIMED_OUT, str(error))
        case PeerRefused(reason=reason, detail=detail) if reason in ErrorCode.__members__:
            return ControllerRefused(ErrorCode[reason], detail)
        case PeerRefused():
            return ControllerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        case NotRegistered():
            return ControllerRefused(ErrorCode.BROKER_ID_NOT_REGISTERED, str(error))


def _description(answer: pb.DescribeQuorumResponse) -> QuorumDescription:
    active = answer.active_controller if answer.HasField("active_controller") else None
    return QuorumDescription(
        leader_id=NO_NODE if active is None else NodeId(active.node_id),
        leader_epoch=0 if active is None else active.term,
        high_watermark=Offset(answer.high_watermark),
        voters=tuple(_members(answer.voters)),
        observers=tuple(_members(answer.observers)),
    )


def _members(replicas: Iterable[pb.QuorumReplica]) -> Iterable[QuorumMember]:
    for one in replicas:
        end = one.log_end_offset if one.HasField("log_end_offset") else NO_OFFSET
        fetched = one.last_fetch_timestamp_ms if one.HasField("last_fetch_timestamp_ms") else None
        caught_up = (
            one.last_caught_up_timestamp_ms if one.HasField("last_caught_up_timestamp_ms") else None
        )
        has_address = one.HasField("endpoint")
        yield QuorumMember(
            node_id=NodeId(one.key.node_id),
            directory_id=DirectoryId(Uuid(one.key.directory_id)),
            log_end_offset=Offset(end),
            last_fetch_at=NO_TIMESTAMP if fetched is None else TimestampMs(fetched),
            last_caught_up_at=NO_TIMESTAMP if caught_up is None else TimestampMs(caught_up),
            address=SocketAddress(one.endpoint.host, one.endpoint.port) if has_address else None,
        )
