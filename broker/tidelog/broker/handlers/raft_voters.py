"""AddRaftVoter and RemoveRaftVoter: whether this cluster is meant is judged here, the rest by the
active controller (KIP-853)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.forwarding import ForwardedApi, Forwarder, Refusal
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs, encode_response, response_structs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class _VoterChange(ForwardedApi):
    def __init__(self, context: BrokerContext, forwarder: Forwarder) -> None:
        super().__init__(forwarder)
        self._context = context

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._answer(call)

    async def _answer(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        own = self._context.cluster_id
        if request.cluster_id is None or request.cluster_id == own:
            return await self._forwarder.forward(call, self.refused)
        text = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{own}"'
        structs = response_structs(self.api_key, call.version)
        message = self.refused(structs, request, Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, text))
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def refused(self, structs: ResponseStructs, _: Any, refusal: Refusal) -> ResponsePayload:
        return structs.response(
            throttle_time=duration_i32(0), error_code=refusal.code, error_message=refusal.message
        )


class AddRaftVoter(_VoterChange):
    api_key = ApiKey.ADD_RAFT_VOTER


class RemoveRaftVoter(_VoterChange):
    api_key = ApiKey.REMOVE_RAFT_VOTER
