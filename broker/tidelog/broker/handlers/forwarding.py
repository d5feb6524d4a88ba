"""Passing a client's request on to the active controller.

The controller decides with the same schemas, so the bytes go there and back untouched, in whatever
version they came. What is decided here is how long to wait, and what to say when no answer came:
that has the shape of the API's own response, and each handler knows it (``refused``).

A request that changes something may have been carried out although no answer came in time. Kafka's
clients know that of REQUEST_TIMED_OUT and look before they repeat it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext, ControllerRefused
from tidelog.controller.client.answers import ForwardedRequest
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.kio_values import field_of, milliseconds
from tidelog.wire.protocol.responses import ResponseStructs, encode_response, response_structs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class Refusal(NamedTuple):
    """An error with words for people, for everything a request asked for."""

    code: ErrorCode
    message: str | None = None


Refuse: TypeAlias = "Callable[[ResponseStructs, Any, Refusal], ResponsePayload]"

TIMED_OUT: Final = Refusal(ErrorCode.REQUEST_TIMED_OUT)


class Forwarder:
    """Shared by all handlers whose work the controller does."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def forward(self, call: Call, refuse: Refuse) -> ResponseFrame:
        """The controller's answer as a frame, or a refusal when there is none in time."""
        answer = await self.ask(call, bytes(call.body))
        if isinstance(answer, Refusal):
            message = refuse(response_structs(call.api.key, call.version), call.request, answer)
            return encode_response(call.api.key, call.version, call.correlation_id, message)
        return frame_response(call.api, call.version, call.correlation_id, answer)

    async def ask(self, call: Call, body: bytes) -> bytes | Refusal:
        """Send this body in the call's name; the body of the answer."""
        timeout_ms = self._timeout_ms(call.request)
        if timeout_ms <= 0:
            return TIMED_OUT
        request = ForwardedRequest(
            call.api.key,
            call.version,
            body,
            client_address=str(call.client.address),
            client_id=call.client_id,
            listener_name=call.client.listener_name,
        )
        try:
            return await self._context.cluster.forward(request, timeout_ms=timeout_ms)
        except ControllerRefused as refused:
            return Refusal(refused.code, refused.message)

    def _timeout_ms(self, request: object) -> int:
        """As long as the client says it waits; some requests do not say it."""
        given = field_of(request, "timeout", None)
        if given is None:
            return self._context.settings.get_int("request.timeout.ms")
        return milliseconds(given)


class ForwardedApi(ABC):
    """The handler of an API that is the controller's from beginning to end."""

    api_key: ClassVar[ApiKey]
    is_pipelined = False

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._forwarder.forward(call, self.refused)

    @abstractmethod
    def refused(self, structs: ResponseStructs, request: Any, refusal: Refusal) -> ResponsePayload:
        """The response that says of every part of the request that it was refused."""
