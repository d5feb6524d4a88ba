"""Zigzag varints, as records use them for lengths, deltas and counts.

Seven bits per byte, the lowest first; the high bit says that another byte follows. Zigzag
puts the sign into the lowest bit, so that −1 (null) takes one byte. An ``int32`` takes at
most five bytes and an ``int64`` ten; whatever does not fit these is refused, not cut.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.ports import ByteView
from tidelog.wire.errors import InvalidRecord

ONE_BYTE_VALUES: Final = tuple((raw >> 1) ^ -(raw & 1) for raw in range(0x80))
"""What a varint of a single byte stands for, by that byte."""

_INT32_BITS: Final = 32
_INT64_BITS: Final = 64
_INT64_END: Final = 1 << 63


def read_varint(data: ByteView, position: int) -> tuple[int, int]:
    """An int32 and the position behind it."""
    try:
        low = data[position]
        if low < 0x80:
            return ONE_BYTE_VALUES[low], position + 1
        high = data[position + 1]
        if high < 0x80:
            raw = low & 0x7F | high << 7
            return (raw >> 1) ^ -(raw & 1), position + 2
    except IndexError:
        raise _ends_inside(position) from None
    return _read_slowly(data, position, _INT32_BITS)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """An int64 and the position behind it."""
    if position < len(data) and (low := data[position]) < 0x80:
        return ONE_BYTE_VALUES[low], position + 1
    return _read_slowly(data, position, _INT64_BITS)


def _read_slowly(data: ByteView, position: int, bits: int) -> tuple[int, int]:
    start, raw, shift = position, 0, 0
    byte = 0x80
    while byte >= 0x80:
        if position >= len(data):
            raise _ends_inside(start)
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if shift > bits and (byte >= 0x80 or raw >> bits):
            raise InvalidRecord(f"varint at byte {start} of the records: over {bits} bits")
    return (raw >> 1) ^ -(raw & 1), position


def _ends_inside(position: int) -> InvalidRecord:
    return InvalidRecord(f"varint at byte {position} of the records: they end inside it")


def write_varint(output: bytearray, value: int) -> None:
    """Append ``value``, which fits an int32 or an int64 as its field says."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)


def wrapped_int64(value: int) -> int:
    """Sums and differences of timestamps wrap in 64 bits, for Kafka's as for numpy's integers."""
    if -_INT64_END <= value < _INT64_END:
        return value
    return (value + _INT64_END) % (2 * _INT64_END) - _INT64_END
