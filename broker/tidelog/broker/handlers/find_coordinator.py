"""FindCoordinator: which broker coordinates a group, one or (from version 4 on) many at a time.

It is the leader of the partition of an internal topic that the key belongs to. The topic is made
when the first client asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topic_creation import InternalTopicCreation
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_NODE
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.hot_responses.leaders import NodeEndpoint
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
TOPICS: Final[Mapping[int, str]] = MappingProxyType(
    {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
)
"""The kinds of coordinators there are, and where each keeps its state."""

_FIRST_WITH_KEYS: Final = 4
_FIRST_WITH_SHARES: Final = 6
_KEY_TYPES: Final = (GROUP, TRANSACTION, SHARE)
_SHARE_KEY_PARTS: Final = 3


class _Found(NamedTuple):
    code: ErrorCode
    message: str
    node: NodeEndpoint = NodeEndpoint(NO_NODE, "", -1, None)


class FindCoordinator:
    api_key = ApiKey.FIND_COORDINATOR
    is_pipelined = False

    def __init__(
        self,
        context: BrokerContext,
        creation: InternalTopicCreation,
        topics: Mapping[int, str] = TOPICS,
    ) -> None:
        self._context = context
        self._creation = creation
        self._topics = topics

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        key_type = field_of(request, "key_type", GROUP)
        if call.version < _FIRST_WITH_KEYS:
            found = self._find(call, key_type, request.key)
            message = structs.response(**_fields(found), error_message=_old_message(found))
        else:
            rows = [(key, self._find(call, key_type, key)) for key in request.coordinator_keys]
            message = structs.response(
                throttle_time=duration_i32(0),
                coordinators=tuple(
                    structs.struct(
                        "Coordinator", key=key, error_message=found.message, **_fields(found)
                    )
                    for key, found in rows
                ),
            )
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _find(self, call: Call, key_type: int, key: str) -> _Found:
        if key_type not in _KEY_TYPES:
            return _Found(ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.message)
        if key_type == SHARE:
            return _Found(_share_error(call.version, key), "")
        topic_name = self._topics.get(key_type)
        if topic_name is None:
            return _Found(ErrorCode.INVALID_REQUEST, "there is no coordinator of this type")
        topic = self._context.image.topics.named(topic_name)
        if topic is None or not topic.partitions:
            self._creation.request(topic_name, call)
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        state = topic.partitions.get(coordinator_partition(key, len(topic.partitions)))
        view = self._context.view(call.client.listener_name)
        leader = NO_NODE if state is None else state.leader
        if not view.is_live(leader):
            return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        return _Found(ErrorCode.NONE, "", view.registered[leader])


def _fields(found: _Found) -> dict[str, Any]:
    return {
        "throttle_time": duration_i32(0),
        "error_code": found.code,
        "node_id": found.node.node_id,
        "host": found.node.host,
        "port": found.node.port,
    }


def _old_message(found: _Found) -> str:
    """Before version 4 the words for the code are always there, even for no error."""
    return "NONE" if found.code is ErrorCode.NONE else found.code.message


def _share_error(version: int, key: str) -> ErrorCode:
    """There are no share coordinators; a key is group, topic id and partition (KIP-932)."""
    is_right = version >= _FIRST_WITH_SHARES and len(key.split(":")) == _SHARE_KEY_PARTS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_right else ErrorCode.INVALID_REQUEST
