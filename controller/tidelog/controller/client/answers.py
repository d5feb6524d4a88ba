"""What the controller's answers mean to a broker."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import LEADERLESS, NodeIds
from tidelog.controller.service.contract import partition_ref
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, PartitionEpoch
from tidelog.v1 import controller_pb2 as pb


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The partition as the controller now has it; meaningless but for the error if there is one."""

    partition: PartitionRef
    error: ErrorCode
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: NodeIds
    is_recovering: bool


def altered_partitions(answer: pb.AlterPartitionResponse) -> tuple[AlteredPartition, ...]:
    return tuple(
        AlteredPartition(
            partition=partition_ref(one.partition),
            error=ErrorCode(one.error_code),
            leader=NodeId(one.leader_id) if one.HasField("leader_id") else LEADERLESS,
            leader_epoch=LeaderEpoch(one.leader_epoch),
            partition_epoch=PartitionEpoch(one.partition_epoch),
            isr=tuple(map(NodeId, one.isr)),
            is_recovering=one.is_recovering,
        )
        for one in answer.partitions
    )


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A client's request without its header, and who the client is."""

    api_key: int
    api_version: int
    body: bytes
    principal_type: str = "User"
    principal_name: str = "ANONYMOUS"
    client_address: str = ""
    client_id: str | None = None
    listener_name: str = ""


def forward_message(request: ForwardedRequest) -> pb.ForwardRequest:
    return pb.ForwardRequest(
        api_key=request.api_key,
        api_version=request.api_version,
        request=request.body,
        principal_type=request.principal_type,
        principal_name=request.principal_name,
        client_address=request.client_address,
        client_id=request.client_id,
        listener_name=request.listener_name,
    )
