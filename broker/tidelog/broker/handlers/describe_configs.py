"""DescribeConfigs: settings with where they come from, what they mean, and what may change them.

Topics, this broker, the cluster's defaults (a broker without a name) and groups are described from
the settings tables. A broker describes only itself: nobody else knows its file and environment.

Synonyms list everything that could have decided a value, strongest first. All that somebody *gave*
is in there; of defaults only the setting's own, as in Kafka, where the default of a remote synonym
(``log.retention.hours`` for ``retention.ms``) would pass for a value.

The response is encoded resource by resource with pauses between: tools ask for all topics at once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.broker import log_levels
from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.decisions.topic_names import check_topic_name
from tidelog.controller.metadata.records import CLUSTER_DEFAULT, ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.settings import Link, Origin, Setting, Settings, topic_chain
from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.group_table import GROUP_SETTINGS
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import InvalidValue, Kind, Update, Value
from tidelog.kernel.settings.values import shown
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import field_of
from tidelog.wire.protocol.primitives import uvarint
from tidelog.wire.protocol.responses import ResponseStructs, response_structs

_RESOURCES_AT_A_TIME: Final = 16
_THROTTLE_COUNT: Final = struct.Struct(">ii")
_UNKNOWN_TYPE: Final = 0


@dataclass(frozen=True, slots=True)
class Described:
    """One setting of a resource."""

    name: str
    value: str | None
    origin: Origin
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[Link, ...]
    kind: int
    doc: str | None


class DescribeConfigs:
    api_key = ApiKey.DESCRIBE_CONFIGS
    is_pipelined = False

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def begin(self, call: Call) -> Awaitable[ResponseFrame]:
        return self._answer(call)

    async def _answer(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        results: list[bytes] = []
        for resource in request.resources:
            results.append(kio_bytes(self._result(structs, request, resource)))
            if len(results) % _RESOURCES_AT_A_TIME == 0:
                await asyncio.sleep(0)
        body = _body(results, is_flexible=call.api.is_flexible(call.version))
        return frame_response(call.api, call.version, call.correlation_id, body)

    def _result(self, structs: ResponseStructs, request: Any, resource: Any) -> Any:
        code, message, described = ErrorCode.NONE, "", list[Described]()
        try:
            described = self._described(resource.resource_type, resource.resource_name)
        except Refused as refused:
            code, message = refused.error.code, refused.error.message or ""
        wanted = resource.configuration_keys
        return structs.struct(
            "DescribeConfigsResult",
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(
                _config(structs, request, one)
                for one in described
                if not wanted or one.name in wanted
            ),
        )

    def _described(self, resource_type: int, name: str) -> list[Described]:
        match resource_type:
            case ResourceType.TOPIC:
                return self._topic(name)
            case ResourceType.BROKER if name == CLUSTER_DEFAULT:
                return self._cluster_default()
            case ResourceType.BROKER:
                self._check_own_id(name, " or empty string")
                return self._broker()
            case ResourceType.BROKER_LOGGER:
                self._check_own_id(name, "")
                return _loggers()
            case ResourceType.CLIENT_METRICS:
                raise _invalid("Client metrics subscriptions are not available here.")
            case ResourceType.GROUP:
                return self._group(name)
            case _:
                raise _invalid(_MALFORMED)

    def _topic(self, name: str) -> list[Described]:
        check_topic_name(name)
        if name not in self._context.image.topics.by_name:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        own = self._context.image.config(ResourceType.TOPIC, name)
        settings = self._context.settings
        return [
            _inheriting(row, _readable(row, own), settings, Origin.TOPIC)
            for row in TOPIC_SETTINGS.values()
            if not row.hidden or row.name in own
        ]

    def _group(self, name: str) -> list[Described]:
        if not name:
            raise _invalid("Group name must not be empty")
        own = self._context.image.config(ResourceType.GROUP, name)
        settings = self._context.settings
        return [
            _inheriting(row, _readable(row, own), settings, Origin.GROUP)
            for row in GROUP_SETTINGS.values()
        ]

    def _broker(self) -> list[Described]:
        settings = self._context.settings
        image = self._context.image
        names = {
            *image.config(ResourceType.BROKER, CLUSTER_DEFAULT),
            *image.config(ResourceType.BROKER, str(self._context.node_id)),
        }
        rows = [row for row in BROKER_SETTINGS.values() if not row.hidden]
        return [_of_broker(row, settings) for row in rows] + _unknown(names, Origin.DYNAMIC_BROKER)

    def _cluster_default(self) -> list[Described]:
        """Only what was set for all brokers."""
        own = self._context.image.config(ResourceType.BROKER, CLUSTER_DEFAULT)
        settings = self._context.settings
        known = [_of_cluster(BROKER_SETTINGS[n], settings) for n in own if n in BROKER_SETTINGS]
        described = known + _unknown(own, Origin.DYNAMIC_DEFAULT)
        return sorted(described, key=lambda one: one.name)

    def _check_own_id(self, name: str, besides: str) -> None:
        if not name.isascii() or not name.isdigit():
            raise _invalid(f"Broker id must be an integer, but it is: {name}")
        if name != str(self._context.node_id):
            own = self._context.node_id
            raise _invalid(f"Unexpected broker id, expected {own}{besides}, but received {name}")


def _loggers() -> list[Described]:
    """The levels in effect; as in Kafka without synonyms, and not said to be read-only."""
    origin, kind = Origin.LOGGER, Kind.STRING.value
    return [
        Described(name, log_levels.level_of(name), origin, False, False, (), kind, None)
        for name in log_levels.logger_names()
    ]


_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the"
    " message was sent to an incompatible broker. See the broker logs for more details."
)


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _readable(row: Setting, own: Mapping[str, str]) -> Mapping[str, str]:
    """The resource's own value of this row; none if a newer node wrote what we cannot read."""
    text = own.get(row.name)
    if text is None:
        return {}
    try:
        row.parse(text)
    except InvalidValue:
        return {}
    return {row.name: text}


def _inheriting(
    row: Setting, own: Mapping[str, str], settings: Settings, origin: Origin
) -> Described:
    """A setting of a topic or a group, which falls back to the broker's."""
    links = topic_chain(row, own, settings)
    if own:
        links = (Link(row.name, links[0].text, origin), *links[1:])
    inherited = settings.first_given(row.synonyms)
    value = row.parse(own[row.name]) if own else row.default if inherited is None else inherited[0]
    synonym = row.synonyms[0].name if row.synonyms else None
    return entry(row, value, _telling(links, synonym), read_only=False)


def _of_broker(row: Setting, settings: Settings) -> Described:
    links = _telling(settings.chain(row.name), row.name)
    read_only = row.update is Update.READ_ONLY
    return entry(row, settings.own(row.name), links, read_only=read_only)


def _of_cluster(row: Setting, settings: Settings) -> Described:
    links = [
        link
        for link in settings.chain(row.name)
        if link.name == row.name and link.origin is Origin.DYNAMIC_DEFAULT
    ]
    value = row.parse(links[0].text) if links and links[0].text is not None else None
    return entry(row, value, tuple(links), read_only=row.update is Update.READ_ONLY)


def _telling(links: Iterable[Link], name: str | None) -> tuple[Link, ...]:
    return tuple(link for link in links if link.origin is not Origin.DEFAULT or link.name == name)


def entry(row: Setting, value: Value, links: tuple[Link, ...], *, read_only: bool) -> Described:
    return Described(
        name=row.name,
        value=shown(row, value),
        origin=links[0].origin if links else Origin.DEFAULT,
        read_only=read_only,
        is_sensitive=row.sensitive,
        synonyms=links,
        kind=row.kind.value,
        doc=row.doc,
    )


def _unknown(names: Iterable[str], origin: Origin) -> list[Described]:
    """Names that no table has. Their values may be secrets for all we know."""
    return [
        Described(name, None, origin, True, True, (), _UNKNOWN_TYPE, None)
        for name in sorted(names)
        if name not in BROKER_SETTINGS
    ]


def _config(structs: ResponseStructs, request: Any, one: Described) -> Any:
    synonyms = one.synonyms if field_of(request, "include_synonyms", False) else ()
    return structs.struct(
        "DescribeConfigsResourceResult",
        name=one.name,
        value=one.value,
        read_only=one.read_only,
        config_source=one.origin.config_source,
        is_sensitive=one.is_sensitive,
        synonyms=tuple(
            structs.struct(
                "DescribeConfigsSynonym",
                name=link.name,
                value=link.text,
                source=link.origin.config_source,
            )
            for link in synonyms
        ),
        config_type=one.kind,
        documentation=one.doc if field_of(request, "include_documentation", False) else None,
    )


def _body(results: list[bytes], *, is_flexible: bool) -> bytes:
    """A throttle time of 0, then the results as an array."""
    if is_flexible:
        return b"".join((bytes(4), uvarint(len(results) + 1), *results, b"\0"))
    return b"".join((_THROTTLE_COUNT.pack(0, len(results)), *results))
