"""Events as lines of JSON, and back. Pure.

A line is an object with the event's ``kind`` and its fields under their own names; a field that
has its default is left out, a record that was seen is a list. Reading is strict, since a verdict
over a file that was changed by something else means nothing: an unknown kind or field, a missing
one or one of another type is a ``BadLine`` that says which.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final, NoReturn

from tidelog.chaos.history import (
    Event,
    FaultBand,
    Note,
    Operation,
    Outcome,
    PartitionState,
    Record,
    RunEnd,
    RunHeader,
    Sample,
    Verb,
)


class BadLine(ValueError):
    """The line is no event; the text says why."""


_Read = Callable[[object], Any]
"""Checks a value of JSON and makes it that of a field; raises BadLine."""

_KINDS: dict[str, type[Event]] = {
    "run": RunHeader,
    "operation": Operation,
    "fault": FaultBand,
    "sample": Sample,
    "note": Note,
    "end": RunEnd,
}
_KIND_OF: dict[type[Event], str] = {event: kind for kind, event in _KINDS.items()}


def encode_event(event: Event) -> str:
    """One line, without its end."""
    written: dict[str, object] = {"kind": _KIND_OF[type(event)]}
    for name, default in _DEFAULTS[type(event)]:
        value = getattr(event, name)
        if value != default:
            written[name] = _plain(value)
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode_event(line: str) -> Event:
    try:
        found = _DECODER.decode(line)
    except RecursionError:
        raise BadLine("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"it is not JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of too many digits
        raise BadLine(f"it is not an event: {error}") from None
    if not isinstance(found, dict):
        raise BadLine("it is not a JSON object")
    kind = found.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BadLine(f"its kind is {kind!r}; it must be one of {', '.join(_KINDS)}")
    event: Event = _made(_KINDS[kind], found)
    return event


def _refuse_constant(name: str) -> NoReturn:
    raise BadLine(f"{name} is no number of a history")


# json.loads would make one for every line, which takes as long as the line itself.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _plain(value: object) -> object:
    match value:
        case float():
            return round(value, 3)
        case Outcome() | Verb():
            return value.value
        case Record():
            return [value.topic, value.partition, value.offset, value.key, value.sequence]
        case PartitionState():
            return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return dict(value)
        case _:
            return value


def _made(event: type[Any], found: Mapping[str, object]) -> Any:
    readers = _READERS[event]
    values = {}
    for name, value in found.items():
        read = readers.get(name)
        if read is None:
            raise BadLine(f"{name!r} is no field of it")
        try:
            values[name] = read(value)
        except BadLine as error:
            raise BadLine(f"its {name} {error}") from None
    try:
        return event(**values)
    except TypeError:
        missing = [name for name in _REQUIRED[event] if name not in values]
        raise BadLine(f"it has no {', '.join(missing)}") from None


def _text(value: object) -> str:
    if type(value) is str:
        return value
    raise BadLine(f"is {_shown(value)}, not a text")


def _whole(value: object) -> int:
    if type(value) is int:
        return value
    raise BadLine(f"is {_shown(value)}, not a whole number")


def _number(value: object) -> float:
    if type(value) is float or type(value) is int:
        if math.isfinite(value):
            return float(value)
        raise BadLine("is no finite number")
    raise BadLine(f"is {_shown(value)}, not a number")


def _flag(value: object) -> bool:
    if type(value) is bool:
        return value
    raise BadLine(f"is {_shown(value)}, neither true nor false")


def _or_none(read: _Read) -> _Read:
    return lambda value: None if value is None else read(value)


def _each(read: _Read) -> _Read:
    def read_each(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise BadLine(f"is {_shown(value)}, not a list")
        return tuple([read(item) for item in value])

    return read_each


def _member(kind: type[Outcome] | type[Verb]) -> _Read:
    members = {member.value: member for member in kind}

    def read(value: object) -> object:
        member = members.get(value) if isinstance(value, str) else None
        if member is None:
            raise BadLine(f"is {_shown(value)}; it must be one of {', '.join(members)}")
        return member

    return read


def _record(value: object) -> Record:
    if not isinstance(value, list) or len(value) != 5:
        raise BadLine(f"has {_shown(value)} where topic, partition, offset, key, sequence belong")
    topic, partition, offset, key, sequence = value
    # There are more of these than of anything else: a call for each field would take half the time.
    if (
        type(topic) is str
        and type(partition) is int
        and type(offset) is int
        and type(key) is str
        and (sequence is None or type(sequence) is int)
    ):
        return Record(topic, partition, offset, key, sequence)
    return Record(
        _text(topic), _whole(partition), _whole(offset), _text(key), _or_none(_whole)(sequence)
    )


def _state(value: object) -> PartitionState:
    if not isinstance(value, dict):
        raise BadLine(f"has {_shown(value)} where the state of a partition belongs")
    try:
        state: PartitionState = _made(PartitionState, value)
    except BadLine as error:
        raise BadLine(f"are not right: {error}") from None
    return state


def _texts_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadLine(f"is {_shown(value)}, not an object")
    return {name: _text(item) for name, item in value.items()}


def _shown(value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 40 else shown[:39] + "…"


_READERS: dict[type[Any], dict[str, _Read]] = {
    RunHeader: {
        "seed": _whole,
        "command": _text,
        "target": _text,
        "workload": _text,
        "faults": _each(_text),
        "duration_s": _number,
        "started_at": _text,
        "environment": _texts_by_name,
        "compacted_topics": _each(_text),
    },
    Operation: {
        "number": _whole,
        "client": _text,
        "verb": _member(Verb),
        "invoked_ms": _number,
        "ended_ms": _or_none(_number),
        "outcome": _member(Outcome),
        "topic": _text,
        "partition": _whole,
        "offset": _or_none(_whole),
        "key": _text,
        "sequence": _or_none(_whole),
        "group": _text,
        "transaction": _text,
        "is_commit": _flag,
        "seen": _each(_record),
        "error": _text,
    },
    FaultBand: {
        "number": _whole,
        "name": _text,
        "detail": _text,
        "nodes": _each(_whole),
        "began_ms": _number,
        "ended_ms": _or_none(_number),
        "failure": _text,
    },
    PartitionState: {
        "topic": _text,
        "partition": _whole,
        "leader": _or_none(_whole),
        "leader_epoch": _whole,
        "replicas": _each(_whole),
        "isr": _each(_whole),
    },
    Sample: {
        "at_ms": _number,
        "controller": _or_none(_whole),
        "alive": _each(_whole),
        "partitions": _each(_state),
    },
    Note: {"at_ms": _number, "text": _text},
    RunEnd: {"at_ms": _number, "was_interrupted": _flag, "divergences": _each(_text)},
}


def _default(item: Field[Any]) -> object:
    if item.default is not MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not MISSING else MISSING


_DEFAULTS = {
    event: tuple((item.name, _default(item)) for item in fields(event)) for event in _KIND_OF
}
_REQUIRED: dict[type[Any], tuple[str, ...]] = {
    event: tuple(item.name for item in fields(event) if _default(item) is MISSING)
    for event in _READERS
}
