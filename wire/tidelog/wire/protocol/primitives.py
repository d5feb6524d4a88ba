"""The few types that messages are made of, read from a view and written as bytes.

Readers take a position and return the next one. They may raise ``IndexError``, ``struct.error``
and ``UnicodeDecodeError`` where the bytes end or make no sense; ``UNREADABLE`` names the three, so
that a decoder turns them into ``MalformedRequest`` in one place and pays nothing while all is well.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.wire.protocol.errors import MalformedRequest

UNREADABLE: Final = (IndexError, struct.error, UnicodeDecodeError)

MAX_ELEMENTS: Final = 250_000
"""Entries in all arrays of one request together.

A byte or two on the wire can become a hundred in memory, so that a frame within the size limit
could take gigabytes. Real requests stay far below: one entry is a topic, a partition or a setting.
"""

MAX_LEGACY_STRING: Final = 2**15 - 1

I16: Final = struct.Struct(">h")
I32: Final = struct.Struct(">i")
I64: Final = struct.Struct(">q")

read_i16 = I16.unpack_from
read_i32 = I32.unpack_from

_VARINT_BYTES: Final = 5


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most five bytes, not zigzag."""
    byte = view[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for index in range(1, _VARINT_BYTES):
        byte = view[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise MalformedRequest(f"the varint at byte {position} is longer than {_VARINT_BYTES} bytes")


def read_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """A string after its i16 length; any negative length is null, as Kafka reads it."""
    (length,) = read_i16(view, position)
    start = position + 2
    if length < 0:
        return None, start
    return str(take(view, start, length), "utf-8"), start + length


def read_compact_string(view: memoryview, position: int) -> tuple[str | None, int]:
    """A string after a varint of its length plus one; 0 is null."""
    length, start = read_uvarint(view, position)
    if length == 0:
        return None, start
    return str(take(view, start, length - 1), "utf-8"), start + length - 1


def take(view: memoryview, start: int, length: int) -> memoryview:
    """Exactly so many bytes, without a copy; slicing alone would silently give fewer."""
    end = start + length
    if end > len(view):
        raise MalformedRequest(f"{length} bytes at byte {start} end behind the last, {len(view)}")
    return view[start:end]


def present(text: str | None, what: str) -> str:
    if text is None:
        raise MalformedRequest(f"{what} must not be null")
    return text


def checked_count(count: int, room: int, smallest: int, left: int) -> int:
    """The count of an array, if that many entries fit into the room and into what is ``left``."""
    if count < 0:
        raise MalformedRequest("an array that must not be null is null")
    if count * smallest > room:
        raise MalformedRequest(f"an array of {count} entries cannot fit into {room} bytes")
    if count > left:
        raise MalformedRequest(f"more than {MAX_ELEMENTS} entries in one request")
    return count


def read_tags(view: memoryview, position: int, left: int) -> tuple[dict[int, memoryview], int, int]:
    """A tag buffer: the raw value of every tag, for the reader to pick those it knows.

    Returns also how many elements are left of those the request may have: skipping takes time too.
    """
    count, position = read_uvarint(view, position)
    left -= checked_count(count, len(view) - position, 2, left)
    values: dict[int, memoryview] = {}
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        values[tag] = take(view, position, size)
        position += size
    return values, position, left


def skip_tags(view: memoryview, position: int) -> int:
    """Over a tag buffer that comes once in a message."""
    return position + 1 if view[position] == 0 else read_tags(view, position, MAX_ELEMENTS)[1]


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SHORT[value]
    pieces = bytearray()
    while value >= 0x80:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


_SHORT: Final = [bytes([value]) for value in range(0x80)]


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return uvarint(len(data) + 1) + data


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > MAX_LEGACY_STRING:
        raise ValueError(f"a string of {len(data)} bytes: {MAX_LEGACY_STRING} is the most")
    return I16.pack(len(data)) + data


def tag_buffer(tags: list[tuple[int, bytes]]) -> bytes:
    """Tags in ascending order with their encoded values."""
    pieces = [uvarint(len(tags))]
    for tag, value in tags:
        pieces += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(pieces)
