"""ConsumerGroupDescribe: groups of the consumer protocol with their members and epochs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.described_groups import answer_for_each, not_such, operations_for
from tidelog.broker.handlers.operations import NOT_ASKED
from tidelog.coordinator.classic_group import GroupDescription
from tidelog.coordinator.consumer_group import (
    ConsumerGroupDescription,
    MemberDescription,
    NamedShare,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import to_kio_uuid
from tidelog.wire.protocol.responses import ResponseStructs

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


class ConsumerGroupDescribe:
    api_key = ApiKey.CONSUMER_GROUP_DESCRIBE
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        return answer_for_each(self.api_key, call, request.group_ids, self._describe)

    def _describe(self, call: Call, structs: ResponseStructs, group_id: str) -> Any:
        if not group_id:
            return _nothing(structs, group_id, ErrorCode.INVALID_GROUP_ID, None)
        shard = self._groups.find(group_id)
        if isinstance(shard, ErrorCode):
            return _nothing(structs, group_id, shard, None)
        found = shard.describe_consumer(group_id)
        if isinstance(found, ConsumerGroupDescription):
            return _described(structs, found, operations_for(call))
        other = isinstance(shard.describe(group_id), GroupDescription)
        reason = not_such(group_id, "consumer", is_other_kind=other)
        return _nothing(structs, group_id, found[0], reason)


def _nothing(structs: ResponseStructs, group_id: str, code: ErrorCode, message: str | None) -> Any:
    return structs.struct(
        "DescribedGroup",
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=NOT_ASKED,
    )


def _described(structs: ResponseStructs, found: ConsumerGroupDescription, operations: int) -> Any:
    return structs.struct(
        "DescribedGroup",
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=found.group_id,
        group_state=found.state.value,
        group_epoch=found.epoch,
        assignment_epoch=found.target_epoch,
        assignor_name=found.assignor,
        members=tuple(_member(structs, member) for member in found.members),
        authorized_operations=operations,
    )


def _member(structs: ResponseStructs, member: MemberDescription) -> Any:
    return structs.struct(
        "Member",
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(structs, member.assigned),
        target_assignment=_assignment(structs, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(structs: ResponseStructs, shares: Iterable[NamedShare]) -> Any:
    topics = [
        structs.struct(
            "TopicPartitions",
            topic_id=to_kio_uuid(share.topic_id),
            topic_name=share.topic,
            partitions=share.partitions,
        )
        for share in shares
    ]
    return structs.struct("Assignment", topic_partitions=tuple(topics))
