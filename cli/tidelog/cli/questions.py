"""Requests of the Kafka protocol from plain values: a dict is a struct, a list an array of them.

kio has a class per struct and version, which makes a request of three levels three imports and
three constructors. Here the classes are found by the fields' types instead. Numbers of
milliseconds become the durations that kio wants.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

from tidelog.wire.protocol.apis import APIS, ApiKey

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload


def question(api_key: ApiKey, version: int, **values: Any) -> RequestPayload:
    """kio's request of this version; a field that is left out must have a default."""
    request_type = APIS[api_key].load_request_type(version)
    return cast("RequestPayload", build(request_type, values))


def build(struct_type: Any, values: Mapping[str, Any]) -> Any:
    """One of kio's structs."""
    types = _field_types(struct_type)
    if unknown := values.keys() - types.keys():
        raise ValueError(f"{struct_type.__name__} has no fields {sorted(unknown)}")
    return struct_type(**{name: _value(types[name], value) for name, value in values.items()})


@cache
def _field_types(struct_type: Any) -> dict[str, Any]:
    return {one.name: _without_none(one.type) for one in fields(struct_type)}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    return kind


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return tuple(_value(element, one) for one in cast("Sequence[Any]", value))
    if isinstance(kind, type) and is_dataclass(kind):
        return build(kind, value)
    if getattr(kind, "__name__", "").endswith("Timedelta"):
        return datetime.timedelta(milliseconds=value)
    return value
