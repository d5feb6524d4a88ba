"""What the controller's answers mean to a broker."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tidelog.controller.decisions.alter_partition import AlterPartitionAnswer, PartitionVerdict
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import LEADERLESS, LeaderRecovery
from tidelog.controller.service.contract import partition_ref
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, PartitionEpoch
from tidelog.v1 import controller_pb2 as pb


def alter_partition_answer(
    answer: pb.AlterPartitionResponse, image: MetadataImage
) -> AlterPartitionAnswer:
    """What leaders may change is in the answer; the rest of a partition's state is the image's.

    A partition that the image does not have (any more) comes without a state.
    """
    error = api_error(answer.error_code, answer.error_message)
    verdicts = tuple(_verdict(one, image) for one in answer.partitions)
    return AlterPartitionAnswer(error, verdicts)


def _verdict(altered: pb.AlteredPartition, image: MetadataImage) -> PartitionVerdict:
    ref = partition_ref(altered.partition)
    error = api_error(altered.error_code, "")
    known = image.topics.partition(ref)
    if error.is_error or known is None:
        return PartitionVerdict(ref, error)
    recovering = altered.is_recovering
    state = dataclasses.replace(
        known,
        leader=NodeId(altered.leader_id) if altered.HasField("leader_id") else LEADERLESS,
        leader_epoch=LeaderEpoch(altered.leader_epoch),
        partition_epoch=PartitionEpoch(altered.partition_epoch),
        isr=tuple(map(NodeId, altered.isr)),
        leader_recovery=LeaderRecovery.RECOVERING if recovering else LeaderRecovery.RECOVERED,
    )
    return PartitionVerdict(ref, error, state)


def api_error(code: int, message: str) -> ApiError:
    return ApiError(ErrorCode(code), message or None)


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
