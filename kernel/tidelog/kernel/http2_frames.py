"""What HTTP/2 is made of: frames, their codes, and what arriving ones tell (RFC 9113)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

Headers: TypeAlias = Mapping[str, str]
"""Names in lower case. A name that is sent twice counts with its last value."""

FRAME_HEADER: Final = struct.Struct(">HBBBI")
"""A length of three bytes, the type, flags and the number of the stream."""
NUMBER: Final = struct.Struct(">I")

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


class Status(IntEnum):
    """What a gRPC call ends with, as far as nodes tell it or heed it."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Http2Error(Exception):
    """The connection cannot go on; the peer was told why if there was a way to."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Ready:
    """The peer has greeted: somebody is there who speaks HTTP/2."""


@dataclass(frozen=True, slots=True)
class HeadersArrived:
    stream: int
    headers: Headers
    is_end: bool


@dataclass(frozen=True, slots=True)
class DataArrived:
    """A frame of data, with the messages that it completed."""

    stream: int
    messages: tuple[bytes, ...]
    is_end: bool


@dataclass(frozen=True, slots=True)
class StreamFault:
    """The peer sent what no message is; the stream waits to be ended by whoever has it."""

    stream: int
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class StreamGone:
    """The peer reset it; nothing can be sent or received on it any more."""

    stream: int
    code: int


@dataclass(frozen=True, slots=True)
class GoingAway:
    """No stream above ``last_stream`` was or will be looked at."""

    last_stream: int
    code: int


Event: TypeAlias = Ready | HeadersArrived | DataArrived | StreamFault | StreamGone | GoingAway


def without_padding(payload: memoryview) -> memoryview:
    if not payload or payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "more padding than there is frame")
    return payload[1 : len(payload) - payload[0]]


def frame(kind: FrameType, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return FRAME_HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def reset_frame(stream: int, code: ErrorCode) -> bytes:
    return frame(FrameType.RST_STREAM, 0, stream, NUMBER.pack(code))


def credit_frame(stream: int, more: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, stream, NUMBER.pack(more))
