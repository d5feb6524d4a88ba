"""DescribeGroups: classic groups with their members."""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.described_groups import answer_for_each, not_such, operations_for
from tidelog.broker.handlers.operations import NOT_ASKED
from tidelog.coordinator.classic_group import GroupDescription
from tidelog.coordinator.consumer_group import ConsumerGroupDescription
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.responses import ResponseStructs

_FIRST_WITH_NOT_FOUND: Final = 6
_DEAD: Final = "Dead"


class DescribeGroups:
    api_key = ApiKey.DESCRIBE_GROUPS
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        return answer_for_each(self.api_key, call, request.groups, self._describe)

    def _describe(self, call: Call, structs: ResponseStructs, group_id: str) -> Any:
        shard = self._groups.find(group_id)
        if isinstance(shard, ErrorCode):
            return _nothing(structs, group_id, shard, None, state="")
        found = shard.describe(group_id)
        if isinstance(found, GroupDescription):
            return _described(structs, found, operations_for(call))
        if call.version < _FIRST_WITH_NOT_FOUND:
            return _nothing(structs, group_id, ErrorCode.NONE, None)
        other = isinstance(shard.describe_consumer(group_id), ConsumerGroupDescription)
        reason = not_such(group_id, "classic", is_other_kind=other)
        return _nothing(structs, group_id, found[0], reason)


def _nothing(
    structs: ResponseStructs,
    group_id: str,
    code: ErrorCode,
    message: str | None,
    *,
    state: str = _DEAD,
) -> Any:
    return structs.struct(
        "DescribedGroup",
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=NOT_ASKED,
    )


def _described(structs: ResponseStructs, found: GroupDescription, operations: int) -> Any:
    return structs.struct(
        "DescribedGroup",
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=found.group_id,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol or "",
        members=tuple(
            structs.struct(
                "DescribedGroupMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in found.members
        ),
        authorized_operations=operations,
    )
