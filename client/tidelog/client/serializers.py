"""Keys and values to bytes and back, as plain functions.

A serializer takes a value and gives bytes, a deserializer the other way round; any function of that
shape will do. None never reaches one: a record without a key, and a tombstone, stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tidelog.client.errors import WrongType

T = TypeVar("T")

Serializer: TypeAlias = Callable[[T], bytes]
Deserializer: TypeAlias = Callable[[bytes], T]


def bytes_serializer(value: bytes) -> bytes:
    """Bytes as they are; what every client does unless told otherwise."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise WrongType(
        f"bytes are wanted and {type(value).__name__} was given; give bytes, or a serializer that "
        "takes it (tidelog.client has str_serializer, json_serializer and msgpack_serializer)"
    )


def bytes_deserializer(data: bytes) -> bytes:
    return data


def str_serializer(value: str) -> bytes:
    """Text as UTF-8."""
    if not isinstance(value, str):
        raise WrongType(f"str is wanted and {type(value).__name__} was given")
    return value.encode()


def str_deserializer(data: bytes) -> str:
    return data.decode()


def json_serializer(value: Any) -> bytes:
    """Compact JSON in UTF-8; NaN and infinities, which JSON does not have, are refused."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def json_deserializer(data: bytes) -> Any:
    return json.loads(data)


def msgpack_serializer(value: Any) -> bytes:
    import msgpack  # type: ignore[import-untyped]

    packed: bytes = msgpack.packb(value)
    return packed


def msgpack_deserializer(data: bytes) -> Any:
    import msgpack

    return msgpack.unpackb(data)
