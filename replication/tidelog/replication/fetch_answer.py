"""A leader's answer on the fetch stream, encoded as ``FetchResponse`` without moving its records.

Records are nearly all of an answer's bytes. Protobuf's own classes copy them into a message, from
there into the encoded bytes, and as often on the other side. Here they are put between the encoded
heads when the message is encoded, and are a view of the received bytes when it is read: one copy on
the way out and none on the way in. The bytes are those of the contract: either side may be replaced
by the generated class, and a test does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from google.protobuf.message import DecodeError

from tidelog.kernel.ports import ByteView
from tidelog.v1.replication_pb2 import FetchedPartition, FetchResponse

_LENGTH_DELIMITED: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
_MAX_VARINT_BYTES: Final = 10


def _tag(field_number: int) -> int:
    return field_number << 3 | _LENGTH_DELIMITED


_PARTITIONS: Final = _tag(FetchResponse.PARTITIONS_FIELD_NUMBER)
_RECORDS: Final = _tag(FetchedPartition.RECORDS_FIELD_NUMBER)


@dataclass(slots=True)
class AnsweredPartition:
    """What is said about a partition; ``head.records`` stays empty."""

    head: FetchedPartition
    records: ByteView = b""


@dataclass(slots=True)
class FetchAnswer:
    DESCRIPTOR: ClassVar = FetchResponse.DESCRIPTOR

    correlation_id: int = 0
    error_code: int = 0
    partitions: list[AnsweredPartition] = field(default_factory=list)
    has_more: bool = False

    def SerializeToString(self) -> bytes:
        rest = FetchResponse(
            correlation_id=self.correlation_id, error_code=self.error_code, has_more=self.has_more
        )
        parts: list[ByteView] = [rest.SerializeToString()]
        for one in self.partitions:
            head = one.head.SerializeToString()
            size = len(one.records)
            if size:
                head += _varint(_RECORDS) + _varint(size)
            parts.append(_varint(_PARTITIONS) + _varint(len(head) + size) + head)
            if size:
                parts.append(one.records)
        return b"".join(parts)

    @classmethod
    def FromString(cls, data: bytes, /) -> FetchAnswer:
        """``DecodeError`` if these bytes are no ``FetchResponse``."""
        partitions, others = [], []
        view = memoryview(data)
        for one in _fields(view):
            if one.tag == _PARTITIONS:
                partitions.append(_read_partition(one.value))
            else:
                others.append(one.whole)
        rest = FetchResponse.FromString(b"".join(others))
        return cls(rest.correlation_id, rest.error_code, partitions, rest.has_more)


def _read_partition(view: memoryview) -> AnsweredPartition:
    records: ByteView = b""
    others = []
    for one in _fields(view):
        if one.tag == _RECORDS:
            records = one.value
        else:
            others.append(one.whole)
    return AnsweredPartition(FetchedPartition.FromString(b"".join(others)), records)


class _Field(NamedTuple):
    tag: int
    whole: memoryview
    value: memoryview
    """Only of length-delimited ones; else it is empty."""


def _fields(view: memoryview) -> Iterator[_Field]:
    """The fields of an encoded message, one after the other."""
    position, end = 0, len(view)
    while position < end:
        tag, value_at = _read_varint(view, position)
        behind = _behind(view, tag & 7, value_at)
        if tag >> 3 == 0 or behind > end:
            raise DecodeError(f"a field at byte {position} of {end} makes no sense")
        value = view[behind:behind]
        if tag & 7 == _LENGTH_DELIMITED:
            value = view[_read_varint(view, value_at)[1] : behind]
        yield _Field(tag, view[position:behind], value)
        position = behind


def _behind(view: memoryview, kind: int, value_at: int) -> int:
    """Where a field's value ends."""
    if kind == 0:
        return _read_varint(view, value_at)[1]
    if kind == _LENGTH_DELIMITED:
        length, begin = _read_varint(view, value_at)
        return begin + length
    if kind in _FIXED_SIZES:
        return value_at + _FIXED_SIZES[kind]
    raise DecodeError(f"fields of kind {kind} are not used")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(view[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise DecodeError(f"a number at byte {position} does not end")
