"""Records as JSON, one object per line, both ways.

Keys, values and header values are strings where they are UTF-8, ``{"base64": "…"}`` where not, and
null. So whatever one command prints another can read, byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from tidelog.cli.records import BadRecord, Headers, NewRecord, ReadRecord

_USED: Final = {"key", "value", "headers", "partition", "timestamp"}
_IGNORED: Final = {"topic", "offset", "timestamp_type", "leader_epoch"}


def to_json(record: ReadRecord) -> str:
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": record.timestamp_type,
            "leader_epoch": record.leader_epoch,
            "key": _encoded(record.key),
            "value": _encoded(record.value),
            "headers": [[name, _encoded(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def from_json(line: bytes, number: int) -> NewRecord:
    """The record in a line; what only a stored record has (its offset) is passed over."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadRecord(f"line number {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadRecord(f"line number {number} is not a JSON object")
    if unknown := sorted(fields.keys() - _USED - _IGNORED):
        known = ", ".join(sorted(_USED))
        raise BadRecord(f"line number {number}: unknown field {unknown[0]!r}; there are {known}")
    return NewRecord(
        value=_decoded(fields.get("value"), "value", number),
        key=_decoded(fields.get("key"), "key", number),
        headers=_headers(fields.get("headers"), number),
        partition=_natural(fields.get("partition"), "partition", number),
        timestamp_ms=_natural(fields.get("timestamp"), "timestamp", number),
    )


def _encoded(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _decoded(value: Any, what: str, number: int) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadRecord(f"line number {number}: {what} is not base64") from None
    raise BadRecord(f'line number {number}: {what} must be a string, null or {{"base64": "…"}}')


def _headers(value: Any, number: int) -> Headers:
    """A list of [name, value], which keeps order and doubles, or an object."""
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise BadRecord(f"line number {number}: headers must be a list of [name, value]")
    return tuple((name, _decoded(data, f"header {name!r}", number)) for name, data in pairs)


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _natural(value: Any, what: str, number: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise BadRecord(f"line number {number}: {what} must be a number from 0")
    return value
