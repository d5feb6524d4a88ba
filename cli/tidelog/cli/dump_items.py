"""What a dump is made of, and how it is written: as kafka-dump-log's lines or as JSON lines.

The functions that read files yield items and know nothing of output. The fields of a line have
Kafka's names in Kafka's order, so that both forms come from one source.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, Final, TypeAlias, assert_never

Value: TypeAlias = "str | int | bool | bytes | OptionalLong | list[str] | list[bytes | None]"


@dataclass(frozen=True, slots=True)
class OptionalLong:
    """A number that may be absent, which Kafka prints the way Java does."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of a file."""

    kind: str
    fields: dict[str, Value]
    indent: str = ""
    hidden: dict[str, Value] = field(default_factory=dict)
    """Fields that only JSON shows."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence about the file; no fault."""

    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the file. It goes to standard error and makes the exit code 1."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Worth knowing and no fault; it goes to standard error, away from the entries."""

    text: str


Item: TypeAlias = Line | Remark | Notice | Problem

_COMPACT: Final = (",", ":")
_REPLACE_AS_JAVA_DOES: Final = "tidelog.replace-as-java-does"


def _replace_malformed(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each malformed sequence, cut where Java cuts it.

    Java and Python differ for encoded surrogates (ED A0…BF and one byte more) only: Java takes
    them for one sequence, Python for one per byte.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    sequence = error.object[error.start : error.start + 3]
    if sequence[0] == 0xED and sequence[1:2] >= b"\xa0" and _is_continuation(sequence[1:2]):
        return "\ufffd", error.start + (3 if _is_continuation(sequence[2:3]) else 2)
    return "\ufffd", error.end


def _is_continuation(byte: bytes) -> bool:
    return b"\x80" <= byte <= b"\xbf"


codecs.register_error(_REPLACE_AS_JAVA_DOES, _replace_malformed)


def write_text(path: str, items: Iterable[Item], out: BinaryIO, err: BinaryIO) -> int:
    """Write one file's items; returns how many problems there were."""
    problems = 0
    out.write(f"Dumping {path}\n".encode(errors="surrogateescape"))
    for item in items:
        match item:
            case Line(fields=fields, indent=indent):
                out.write(indent.encode() + b" ".join(map(_text, fields.items())) + b"\n")
            case Remark(text):
                out.write(text.encode(errors="surrogateescape") + b"\n")
            case Notice(text):
                _say(text, out, err)
            case Problem(text):
                problems += 1
                _say(text, out, err)
            case _:
                assert_never(item)
    return problems


def write_json(path: str, items: Iterable[Item], out: BinaryIO, err: BinaryIO) -> int:
    """The same as one JSON object per line; each names its file and its type."""
    problems = 0
    for item in items:
        match item:
            case Line(kind=kind, fields=fields, hidden=hidden):
                _write_object(out, {"file": path, "type": kind, **fields, **hidden})
            case Remark(text):
                _write_object(out, {"file": path, "type": "remark", "text": text})
            case Notice(text):
                _write_object(out, {"file": path, "type": "notice", "text": text})
            case Problem(text):
                problems += 1
                _write_object(out, {"file": path, "type": "problem", "text": text})
                _say(text, out, err)
            case _:
                assert_never(item)
    return problems


def _say(text: str, out: BinaryIO, err: BinaryIO) -> None:
    out.flush()  # so that on a terminal the sentence stands behind what it is about
    err.write(text.encode(errors="surrogateescape") + b"\n")
    err.flush()


def _write_object(out: BinaryIO, fields: dict[str, Value]) -> None:
    text = json.dumps(fields, default=_jsonable, ensure_ascii=False, separators=_COMPACT)
    out.write(text.encode(errors="backslashreplace") + b"\n")


def _jsonable(value: object) -> object:
    """Bytes that are UTF-8 become a string, others an object that cannot be taken for one."""
    if isinstance(value, OptionalLong):
        return value.value
    assert isinstance(value, bytes)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _text(field: tuple[str, Value]) -> bytes:
    name, value = field
    return f"{name}: {_value_text(value)}".encode()


def _value_text(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode(errors=_REPLACE_AS_JAVA_DOES)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)
