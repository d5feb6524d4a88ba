"""What DescribeGroups and ConsumerGroupDescribe have in common: an entry for each group asked for.

The two tell of different kinds of groups in different words, and one refuses the groups of the
other by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tidelog.broker.calls import Call
from tidelog.broker.handlers.operations import GROUP_OPERATIONS, NOT_ASKED
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import ResponseStructs, encode_response, response_structs

Describe: TypeAlias = Callable[[Call, ResponseStructs, str], Any]


def answer_for_each(
    api_key: ApiKey, call: Call, group_ids: Iterable[str], describe: Describe
) -> ResponseFrame:
    structs = response_structs(api_key, call.version)
    groups = tuple(describe(call, structs, group_id) for group_id in group_ids)
    message = structs.response(throttle_time=duration_i32(0), groups=groups)
    return encode_response(api_key, call.version, call.correlation_id, message)


def operations_for(call: Call) -> int:
    asked = field_of(call.request, "include_authorized_operations", False)
    return GROUP_OPERATIONS if asked else NOT_ASKED


def not_such(group_id: str, kind: str, *, is_other_kind: bool) -> str:
    """Why a group is not told of, in Kafka's words."""
    return f"Group {group_id} " + (f"is not a {kind} group." if is_other_kind else "not found.")
