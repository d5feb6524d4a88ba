"""AlterConfigs: all settings that a resource shall have, instead of those it has."""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.config_resources import ConfigForwarder, judge_resource
from tidelog.broker.handlers.forwarding import Forwarder
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame


class AlterConfigs:
    api_key = ApiKey.ALTER_CONFIGS
    is_pipelined = False

    def __init__(self, context: BrokerContext, forwarder: Forwarder) -> None:
        self._configs = ConfigForwarder(context, forwarder, judge_resource)

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._configs.answer(call)
