"""DescribeTransactions v0 of one id, read by hand.

An id that has no transaction has no start either, and brokers say −1; kio takes that field for a
moment that always is and refuses the answer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.primitives import (
    UNREADABLE,
    compact_string,
    present,
    read_compact_string,
    read_uvarint,
    uvarint,
)

VERSION: Final = 0
_NO_TAGS: Final = b"\0"
_THROTTLE: Final = struct.Struct(">i")
_CODE: Final = struct.Struct(">h")
_NUMBERS: Final = struct.Struct(">iqqh")


@dataclass(frozen=True, slots=True)
class Described:
    error: ErrorCode
    state: str
    producer_id: int
    epoch: int


def describe_body(transactional_id: str) -> bytes:
    return uvarint(2) + compact_string(transactional_id) + _NO_TAGS


def read_described(body: memoryview) -> Described:
    """The answer to ``describe_body``; ``MalformedRequest`` if it is none."""
    try:
        count, position = read_uvarint(body, _THROTTLE.size)
        if count != 2:
            raise ValueError(f"{count - 1} transactions, not one")
        (code,) = _CODE.unpack_from(body, position)
        _, position = read_compact_string(body, position + _CODE.size)
        state, position = read_compact_string(body, position)
        _, _, producer_id, epoch = _NUMBERS.unpack_from(body, position)
        return Described(ErrorCode(code), present(state, "state"), producer_id, epoch)
    except (*UNREADABLE, ValueError) as error:
        raise MalformedRequest(f"DescribeTransactionsResponse v{VERSION}: {error}") from error
