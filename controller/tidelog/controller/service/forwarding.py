"""Administrative requests of clients, passed on by the broker that got them.

One table says which APIs are handled and by what. A handler gets the decoded request and the
builder of its response, and returns the bytes for the client once the decision is committed. Who
may do what was judged by the broker, which knows the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.decisions.registration import decide_unregistration
from tidelog.controller.quorum.interface import NotController
from tidelog.controller.service import admin_configs, admin_partitions, admin_quorum, admin_topics
from tidelog.controller.service.admin_codec import (
    VERSIONS,
    Reply,
    decode_body,
    load_codec,
)
from tidelog.controller.service.controller import Cause, Controller
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.kernel.ports import Offload
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.errors import MalformedRequest

MAX_REQUEST_BYTES: Final = 4 << 20
"""So that the records of one request always fit into one batch of the metadata log."""

Handler: TypeAlias = Callable[[Controller, Any, Reply, str], Awaitable[bytes]]
"""Controller, request, response builder, who asked."""


async def unregister_broker(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    broker = NodeId(int(request.broker_id))
    error = await controller.change(
        Cause(f"unregister broker {broker}", f"{who} asked for it"),
        lambda basis: decide_unregistration(basis.image, basis.policy, broker),
    )
    return reply.body(error=error)


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.CREATE_TOPICS: admin_topics.create_topics,
    ApiKey.DELETE_TOPICS: admin_topics.delete_topics,
    ApiKey.CREATE_PARTITIONS: admin_topics.create_partitions,
    ApiKey.ALTER_CONFIGS: admin_configs.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: admin_configs.incremental_alter_configs,
    ApiKey.UPDATE_FEATURES: admin_configs.update_features,
    ApiKey.ELECT_LEADERS: admin_partitions.elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: admin_partitions.alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: admin_partitions.list_reassignments,
    ApiKey.UNREGISTER_BROKER: unregister_broker,
    ApiKey.ADD_RAFT_VOTER: admin_quorum.add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: admin_quorum.remove_raft_voter,
}


class Forwarding:
    """With an ``Offload`` the first request does not hold up the event loop while kio loads."""

    def __init__(self, controller: Controller, offload: Offload | None = None) -> None:
        self._controller = controller
        self._unused_offload = offload

    async def handle(self, message: pb.ForwardRequest) -> bytes | ApiError:
        """The response's body, or why there is none."""
        key, version = message.api_key, message.api_version
        if version not in VERSIONS.get(key, ()):
            words = f"API {key} version {version} is not forwarded"
            return ApiError(ErrorCode.UNSUPPORTED_VERSION, words)
        if len(message.request) > MAX_REQUEST_BYTES:
            words = f"{len(message.request)} bytes are too many: at most {MAX_REQUEST_BYTES}"
            return ApiError(ErrorCode.POLICY_VIOLATION, words)
        controller = self._controller
        if self._unused_offload is not None:
            await self._unused_offload.run(load_codec())
            self._unused_offload = None
        if not controller.is_active:
            raise NotController(controller.quorum.leader_id, "this node is not active")
        try:
            request = decode_body(key, version, message.request)
        except MalformedRequest as error:
            return ApiError(ErrorCode.INVALID_REQUEST, str(error))
        who = _who(message)
        return await HANDLERS[key](controller, request, Reply(key, version), who)


def _who(message: pb.ForwardRequest) -> str:
    principal = f"{message.principal_type or 'User'}:{message.principal_name or 'ANONYMOUS'}"
    return f"{principal} at {message.client_address or 'an unknown address'}"
