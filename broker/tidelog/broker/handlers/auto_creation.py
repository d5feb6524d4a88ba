"""Creating topics because somebody asked for them, behind the asker's back.

The asker is told that there is no such topic yet and comes again; meanwhile the controller creates
it. A topic is asked for once at a time, however many clients want it. Nothing is remembered of a
failure but a line in the log: the next asker starts the next attempt.

Owner: the node, which calls ``close``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from tidelog.broker.calls import Client
from tidelog.broker.context import BrokerContext, ControllerRefused
from tidelog.broker.handlers.internal_topics import TopicPlan, plan_of
from tidelog.controller.client.answers import ForwardedRequest
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import decode_response

log = logging.getLogger(__name__)

_API: Final = APIS[ApiKey.CREATE_TOPICS]
_VERSION: Final = _API.max_version
_MAX_WAITING: Final = 10_000
"""Topics under way at a time; the controller would not create more in one request anyway."""


class TopicAutoCreation:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, topics: Iterable[str], client: Client, client_id: str | None) -> None:
        """Begin to create those that are not under way already. Their names must be legal."""
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._under_way]
        new = new[: _MAX_WAITING - len(self._under_way)]
        if not new:
            return
        self._under_way.update(new)
        task = asyncio.get_running_loop().create_task(self._create(new, client, client_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _create(self, topics: Sequence[str], client: Client, client_id: str | None) -> None:
        settings = self._context.settings
        timeout_ms = settings.get_int("request.timeout.ms")
        brokers = len(self._context.image.brokers)
        plans = [plan_of(topic, settings, brokers) for topic in topics]
        request = ForwardedRequest(
            _API.key,
            _VERSION,
            _encoded(plans, timeout_ms),
            client_address=str(client.address),
            client_id=client_id,
            listener_name=client.listener_name,
        )
        try:
            _log_failures(await self._context.cluster.forward(request, timeout_ms=timeout_ms))
        except (ControllerRefused, MalformedRequest) as error:
            log.warning("could not create %s on demand: %s", ", ".join(topics), error)
        finally:
            self._under_way.difference_update(topics)


def _encoded(plans: Iterable[TopicPlan], timeout_ms: int) -> bytes:
    request_type: Any = _API.load_request_type(_VERSION)
    schema = import_module(request_type.__module__)
    topics = (
        schema.CreatableTopic(
            name=plan.name,
            num_partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            assignments=(),
            configs=tuple(
                schema.CreatableTopicConfig(name=name, value=value)
                for name, value in plan.configs.items()
            ),
        )
        for plan in plans
    )
    return kio_bytes(request_type(topics=tuple(topics), timeout=duration_i32(timeout_ms)))


def _log_failures(body: bytes) -> None:
    response: Any = decode_response(_API.key, _VERSION, memoryview(body))
    for topic in response.topics:
        code = ErrorCode(topic.error_code.value)
        if code is ErrorCode.NONE:
            log.info("created topic %s, because it was asked for", topic.name)
        elif code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            log.warning(
                "could not create topic %s on demand: %s",
                topic.name,
                topic.error_message or code.message,
            )
