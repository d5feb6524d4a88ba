"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings (KIP-339)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Container
from typing import Any, Final

from tidelog.broker import log_levels
from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.config_resources import ConfigForwarder, judge_resource, other_broker
from tidelog.broker.handlers.forwarding import Forwarder, Refusal
from tidelog.controller.decisions.configs import Operation
from tidelog.controller.metadata.records import ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame

log = logging.getLogger(__name__)

_LIST_OPERATIONS: Final = (Operation.APPEND, Operation.SUBTRACT)


class IncrementalAlterConfigs:
    api_key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    is_pipelined = False

    def __init__(self, context: BrokerContext, forwarder: Forwarder) -> None:
        self._configs = ConfigForwarder(context, forwarder, _judge, _change_levels)

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._configs.answer(call)


def _judge(context: BrokerContext, resource: Any) -> Refusal | None:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return _judge_loggers(context, resource)
    return judge_resource(context, resource)


def _judge_loggers(context: BrokerContext, resource: Any) -> Refusal:
    """Log levels are this process's own; all changes of a request are made, or none."""
    elsewhere = other_broker(context, resource.resource_name)
    if elsewhere is not None:
        return elsewhere
    known = set(log_levels.logger_names())
    objections = (_objection(config, known) for config in resource.configs)
    return next(filter(None, objections), Refusal(ErrorCode.NONE))


def _objection(config: Any, known: Container[str]) -> Refusal | None:
    operation, name = config.config_operation, config.name
    if operation not in (Operation.SET, Operation.DELETE):
        words = {one.value: one.name for one in _LIST_OPERATIONS}.get(operation, str(operation))
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{words} operation is not allowed for the BROKER_LOGGER resource",
        )
    if name not in known:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == Operation.DELETE:
        if name == log_levels.ROOT:
            message = f"Removing the log level of the {name} logger is not allowed"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    elif config.value not in log_levels.LEVELS:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {config.value} as it is not a supported log"
            f" level. Valid log levels are {', '.join(log_levels.LEVELS)}",
        )
    return None


def _change_levels(resource: Any) -> None:
    if resource.resource_type != ResourceType.BROKER_LOGGER:
        return
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            log_levels.clear_level(config.name)
        else:
            log_levels.set_level(config.name, config.value)
        log.info("the log level of %s is %s now", config.name, log_levels.level_of(config.name))
