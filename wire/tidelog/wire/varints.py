"""Zigzag varints, as records use them for lengths, deltas and counts.

Seven bits per byte, the lowest first; the high bit says that another byte follows. Zigzag
puts the sign into the lowest bit, so that −1 (null) takes one byte. An ``int32`` takes at
most five bytes and an ``int64`` ten; whatever does not fit these is refused, not cut.
"""

from __future__ import annotations

from typing import Final

from tidelog.wire.errors import InvalidRecord

INT32_SHIFT_END: Final = 35
INT64_SHIFT_END: Final = 70
_INT32_ZIGZAG_END: Final = 1 << 32
_INT64_ZIGZAG_END: Final = 1 << 64


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """An int32 and the position behind it."""
    raw, position = _read_unsigned(data, position, INT32_SHIFT_END)
    if raw >= _INT32_ZIGZAG_END:
        raise InvalidRecord(f"varint before byte {position} of the records: over 32 bits")
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """An int64 and the position behind it."""
    raw, position = _read_unsigned(data, position, INT64_SHIFT_END)
    if raw >= _INT64_ZIGZAG_END:
        raise InvalidRecord(f"varlong before byte {position} of the records: over 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def _read_unsigned(data: bytes | memoryview, position: int, shift_end: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        if position >= len(data):
            raise InvalidRecord(f"varint at byte {position} of the records: they end inside it")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
        if shift == shift_end:
            raise InvalidRecord(
                f"varint before byte {position} of the records: over {shift_end // 7} bytes"
            )


def write_varint(output: bytearray, value: int) -> None:
    """Append ``value``, which fits an int32 or an int64 as its field says."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
