"""ListGroups: the groups that this broker coordinates, by state and type if asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.groups import Groups
from tidelog.coordinator.groups import ListedGroup
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs


class ListGroups:
    api_key = ApiKey.LIST_GROUPS
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> ResponseFrame:
        structs = response_structs(self.api_key, call.version)
        shards = list(self._groups.shards())
        # Half a list would look like a whole one.
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in shards
        listed = [] if loading else [one for one in self._listed() if _is_wanted(call, one)]
        message = structs.response(
            throttle_time=duration_i32(0),
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE,
            groups=tuple(
                structs.struct(
                    "ListedGroup",
                    group_id=one.group_id,
                    protocol_type=one.protocol_type,
                    group_state=one.state,
                    group_type=one.kind.value,
                )
                for one in listed
            ),
        )
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _listed(self) -> Iterator[ListedGroup]:
        for shard in self._groups.shards():
            if not isinstance(shard, ErrorCode):
                yield from shard.groups()


def _is_wanted(call: Call, listed: ListedGroup) -> bool:
    request: Any = call.request
    no_names: tuple[str, ...] = ()
    states = {state.lower() for state in field_of(request, "states_filter", no_names)}
    types = {kind.lower() for kind in field_of(request, "types_filter", no_names)}
    return (not states or listed.state.lower() in states) and (
        not types or listed.kind.value in types
    )
