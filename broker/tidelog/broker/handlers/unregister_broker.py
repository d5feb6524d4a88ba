"""UnregisterBroker, decided by the active controller (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class UnregisterBroker(ForwardedApi):
    api_key = ApiKey.UNREGISTER_BROKER

    def refused(self, structs: ResponseStructs, _: Any, refusal: Refusal) -> ResponsePayload:
        return structs.response(
            throttle_time=duration_i32(0), error_code=refusal.code, error_message=refusal.message
        )
