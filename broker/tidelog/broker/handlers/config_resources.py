"""What the broker itself judges of a request to change settings, before the controller sees it.

A setting of one broker is changed at that broker, because only it knows what it runs with; log
levels live in a process and not in the metadata. The rest of such a request goes to the controller,
and the answers come back in the order of the request.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.forwarding import Forwarder, Refusal
from tidelog.controller.metadata.records import CLUSTER_DEFAULT, ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import (
    ResponseStructs,
    decode_response,
    encode_response,
    response_structs,
)

CarryOut: TypeAlias = Callable[[Any], None]
"""Makes the changes of a resource that is this broker's alone, after nothing was found wrong."""

Judge: TypeAlias = Callable[[BrokerContext, Any], Refusal | None]
"""What this broker has against a resource's changes; None leaves it to the controller."""


class ConfigForwarder:
    """Shared by the two APIs that change settings; they differ in what a change looks like."""

    def __init__(
        self,
        context: BrokerContext,
        forwarder: Forwarder,
        judge: Judge,
        carry_out: CarryOut = lambda resource: None,
    ) -> None:
        self._context = context
        self._forwarder = forwarder
        self._judge = judge
        self._carry_out = carry_out

    async def answer(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        verdicts = self._verdicts(request.resources)
        if not any(verdicts):
            return await self._forwarder.forward(call, _refused_all)
        for resource, verdict in zip(request.resources, verdicts, strict=True):
            if verdict is not None and verdict.code is ErrorCode.NONE and not request.validate_only:
                self._carry_out(resource)
        structs = response_structs(call.api.key, call.version)
        rest = tuple(r for r, v in zip(request.resources, verdicts, strict=True) if v is None)
        answered = iter(await self._ask(call, structs, rest) if rest else ())
        results = [
            next(answered) if verdict is None else _result(structs, resource, verdict)
            for resource, verdict in zip(request.resources, verdicts, strict=True)
        ]
        message = structs.response(throttle_time=duration_i32(0), responses=tuple(results))
        return encode_response(call.api.key, call.version, call.correlation_id, message)

    def _verdicts(self, resources: Sequence[Any]) -> list[Refusal | None]:
        times = Counter((one.resource_type, one.resource_name) for one in resources)
        return [
            Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if times[one.resource_type, one.resource_name] > 1
            else self._judge(self._context, one)
            for one in resources
        ]

    async def _ask(
        self, call: Call, structs: ResponseStructs, rest: tuple[Any, ...]
    ) -> Sequence[Any]:
        """The controller's answers for some of the resources, in their order."""
        request = dataclasses.replace(cast(Any, call.request), resources=rest)
        answer = await self._forwarder.ask(call, kio_bytes(request))
        if isinstance(answer, Refusal):
            return [_result(structs, resource, answer) for resource in rest]
        response: Any = decode_response(call.api.key, call.version, memoryview(answer))
        results: Sequence[Any] = response.responses
        return results


def _refused_all(structs: ResponseStructs, request: Any, refusal: Refusal) -> Any:
    results = tuple(_result(structs, resource, refusal) for resource in request.resources)
    return structs.response(throttle_time=duration_i32(0), responses=results)


def _result(structs: ResponseStructs, resource: Any, refusal: Refusal) -> Any:
    return structs.struct(
        "AlterConfigsResourceResponse",
        error_code=refusal.code,
        error_message=refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def other_broker(context: BrokerContext, name: str) -> Refusal | None:
    """Why a broker's settings cannot be changed here, if they cannot."""
    if not name.isascii() or not name.isdigit():
        return _invalid(f"Node id must be an integer, but it is: {name}")
    if name != str(context.node_id):
        own = context.node_id
        return _invalid(f"Unexpected broker id, expected {own}, but received {name}")
    return None


def judge_resource(context: BrokerContext, resource: Any) -> Refusal | None:
    """What holds for both ways to change settings."""
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        return _invalid("Error due to duplicate config keys")
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.BROKER and name != CLUSTER_DEFAULT:
        return other_broker(context, name)
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
