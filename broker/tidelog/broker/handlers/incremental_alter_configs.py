"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings (KIP-339)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.config_resources import ConfigForwarder, judge_resource, other_broker
from tidelog.broker.handlers.forwarding import Forwarder, Refusal
from tidelog.controller.decisions.configs import Operation
from tidelog.controller.metadata.records import ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame

_LIST_OPERATIONS: Final = (Operation.APPEND, Operation.SUBTRACT)


class IncrementalAlterConfigs:
    api_key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    is_pipelined = False

    def __init__(self, context: BrokerContext, forwarder: Forwarder) -> None:
        self._configs = ConfigForwarder(context, forwarder, _judge)

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._configs.answer(call)


def _judge(context: BrokerContext, resource: Any) -> Refusal | None:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return _judge_loggers(context, resource)
    return judge_resource(context, resource)


def _judge_loggers(context: BrokerContext, resource: Any) -> Refusal:
    """Log levels are set when a node is started; no logger can be changed by clients."""
    elsewhere = other_broker(context, resource.resource_name)
    if elsewhere is not None:
        return elsewhere
    for config in resource.configs:
        if config.config_operation in _LIST_OPERATIONS:
            name = Operation(config.config_operation).name
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{name} operation is not allowed for the BROKER_LOGGER resource",
            )
        return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")
    return Refusal(ErrorCode.NONE)
