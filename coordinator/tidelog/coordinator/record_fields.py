"""The fields that records of the coordinators' topics are made of, read in order and written.

Keys and old values use strings with 16-bit lengths and arrays with 32-bit counts; flexible values
(KIP-482) use compact ones and end with tagged fields. A reader knows which of the two it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from tidelog.kernel.ids import Uuid
from tidelog.wire.protocol import primitives as p
from tidelog.wire.protocol.errors import MalformedRequest

T = TypeVar("T")
_NO_TAGS: Final[dict[int, memoryview]] = {}


class MalformedRecord(ValueError):
    """A record of a coordinator's topic that does not fit the schema of its version."""


@contextmanager
def as_record(what: str) -> Iterator[None]:
    """Turns whatever reading may raise into one error that names the record."""
    try:
        yield
    except (*p.UNREADABLE, MalformedRequest) as error:
        raise MalformedRecord(f"{what}: {error}") from error


class FieldReader:
    """Reads one key or value from its first byte, where the version stands."""

    __slots__ = ("_at", "_view", "flexible", "version")

    def __init__(self, data: bytes | memoryview, flexible_from: int | None = None) -> None:
        self._view = memoryview(data)
        self._at = 0
        self.version = self.i16()
        self.flexible = flexible_from is not None and self.version >= flexible_from

    def i8(self) -> int:
        return int.from_bytes(self._bytes(1), "big", signed=True)

    def i16(self) -> int:
        return int.from_bytes(self._bytes(2), "big", signed=True)

    def i32(self) -> int:
        return int.from_bytes(self._bytes(4), "big", signed=True)

    def i64(self) -> int:
        return int.from_bytes(self._bytes(8), "big", signed=True)

    def uuid(self) -> Uuid:
        return Uuid(bytes(self._bytes(16)))

    def nullable_text(self) -> str | None:
        read = p.read_compact_string if self.flexible else p.read_string
        text, self._at = read(self._view, self._at)
        return text

    def text(self) -> str:
        return p.present(self.nullable_text(), f"the string that ends at byte {self._at}")

    def blob(self) -> bytes:
        length = self._length()
        if length < 0:
            raise MalformedRequest(f"the bytes at byte {self._at} must not be null")
        return bytes(self._bytes(length))

    def raw(self, length: int) -> bytes:
        return bytes(self._bytes(length))

    def array(self, item: Callable[[], T]) -> tuple[T, ...]:
        count = self._length()
        p.checked_count(count, len(self._view) - self._at, 1, p.MAX_ELEMENTS)
        return tuple(item() for _ in range(count))

    def nullable_array(self, item: Callable[[], T]) -> tuple[T, ...] | None:
        start = self._at
        if self._length() < 0:
            return None
        self._at = start
        return self.array(item)

    def tags(self) -> dict[int, memoryview]:
        if not self.flexible:
            return _NO_TAGS
        tags, self._at, _ = p.read_tags(self._view, self._at, p.MAX_ELEMENTS)
        return tags

    def _length(self) -> int:
        if not self.flexible:
            return self.i32()
        length, self._at = p.read_uvarint(self._view, self._at)
        return length - 1

    def _bytes(self, length: int) -> memoryview:
        piece = p.take(self._view, self._at, length)
        self._at += length
        return piece


def i32_array(values: tuple[int, ...]) -> bytes:
    """A compact array of 32-bit numbers."""
    return p.uvarint(len(values) + 1) + b"".join(map(p.I32.pack, values))


def legacy_bytes(data: bytes) -> bytes:
    return p.I32.pack(len(data)) + data
