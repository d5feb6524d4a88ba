"""Frames: a size, a header and a body. The first thing read of a request, the last put on answers.

Owner: the listener. It reads four bytes, asks ``check_frame_size`` *before* it takes memory, reads
so many bytes and gives them to ``parse_request``. What a client may not call is a value and not an
exception, because ApiVersions in an unknown version has an answer (KIP-511): a client that is newer
than we are asks first and must be told what we speak. Everything else closes the connection.

A response may contain ranges of files. So a frame to send is a list of segments: bytes, and
``RecordsSlice`` objects that say how long they are and whose bytes only the listener fetches.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidelog.kernel.ports import ByteView
from tidelog.wire.protocol.apis import APIS, Api, ApiKey
from tidelog.wire.protocol.errors import FrameError, FrameProblem, MalformedRequest
from tidelog.wire.protocol.primitives import UNREADABLE, skip_tags, string, take

SIZE_BYTES: Final = 4
"""The size itself, which it does not count."""

MIN_REQUEST_SIZE: Final = 10
"""API key, version, correlation id and the length of the client id."""

_SIZE: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_RESPONSE_HEADER: Final = struct.Struct(">ii")


class RequestFrame(NamedTuple):
    """A request of a known API and version; the body is a read-only view into the frame."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


class UnknownApi(NamedTuple):
    """No API has this key, or nobody serves it: close the connection."""

    api_key: int
    version: int
    correlation_id: int


class UnsupportedVersion(NamedTuple):
    """The API exists, the version is not served: close, unless ``has_answer``."""

    api: Api
    version: int
    correlation_id: int

    @property
    def has_answer(self) -> bool:
        """ApiVersions is answered in version 0 with error 35 and its own range."""
        return self.api.key == ApiKey.API_VERSIONS


class RecordsSlice(Protocol):
    """Record batches that lie elsewhere, such as a range of a segment file."""

    @property
    def length(self) -> int: ...


Segment: TypeAlias = ByteView | RecordsSlice


class ResponseFrame(NamedTuple):
    """What is sent: the segments one after the other, ``size`` bytes, the size prefix included."""

    segments: Sequence[Segment]
    size: int


def read_frame_size(prefix: ByteView) -> int:
    (size,) = _SIZE.unpack_from(prefix)
    return int(size)


def check_frame_size(size: int, limit: int) -> None:
    """Refuse what cannot be a request, before memory is taken for it."""
    if size < 0:
        raise FrameError(FrameProblem.NEGATIVE, size, limit)
    if size > limit:
        raise FrameError(FrameProblem.TOO_LARGE, size, limit)
    if size < MIN_REQUEST_SIZE:
        raise FrameError(FrameProblem.TOO_SMALL, size, limit)


def parse_request(
    frame: ByteView, apis: Mapping[int, Api] = APIS
) -> RequestFrame | UnknownApi | UnsupportedVersion:
    """Read the header of a frame (without its size). The client id has an i16 length in any header.

    A client id that is not UTF-8 is read with replacement characters, as Java does it.
    """
    view = memoryview(frame).toreadonly()
    if len(view) < MIN_REQUEST_SIZE:
        raise FrameError(FrameProblem.TOO_SMALL, len(view), len(view))
    key, version, correlation_id, client_id_length = _REQUEST_HEADER.unpack_from(view)
    api = apis.get(key)
    if api is None:
        return UnknownApi(key, version, correlation_id)
    if not api.serves(version):
        return UnsupportedVersion(api, version, correlation_id)
    try:
        client_id = None
        position = MIN_REQUEST_SIZE
        if client_id_length >= 0:
            client_id = str(take(view, position, client_id_length), "utf-8", "replace")
            position += client_id_length
        if api.is_flexible(version):
            position = skip_tags(view, position)
    except UNREADABLE as error:
        raise MalformedRequest(f"header of {api.name} v{version}: {error}") from error
    return RequestFrame(api, version, correlation_id, client_id, view[position:])


def frame_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A whole frame, for whoever plays the client."""
    header = struct.pack(">hhi", api.key, version, correlation_id) + string(client_id)
    tags = b"\0" if api.is_flexible(version) else b""
    return _SIZE.pack(len(header) + len(tags) + len(body)) + header + tags + body


def response_prefix(api: Api, version: int, correlation_id: int, body_size: int) -> bytes:
    """The size and the header of a response, to be followed by a body of so many bytes."""
    if api.response_header_version(version):
        return _RESPONSE_HEADER.pack(5 + body_size, correlation_id) + b"\0"
    return _RESPONSE_HEADER.pack(4 + body_size, correlation_id)


def frame_response(api: Api, version: int, correlation_id: int, body: ByteView) -> ResponseFrame:
    data = response_prefix(api, version, correlation_id, len(body)) + body
    return ResponseFrame((data,), len(data))


def parse_response_header(api: Api, version: int, frame: ByteView) -> tuple[int, memoryview]:
    """Correlation id and body of a response frame (without its size), for whoever plays client."""
    view = memoryview(frame).toreadonly()
    try:
        (correlation_id,) = _SIZE.unpack_from(view)
        flexible = api.response_header_version(version) == 1
        position = skip_tags(view, 4) if flexible else 4
    except UNREADABLE as error:
        raise MalformedRequest(f"header of a {api.name} v{version} response: {error}") from error
    return correlation_id, view[position:]
