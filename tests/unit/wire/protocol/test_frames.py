"""Sizes and headers: what is let in, what is a value, what closes the connection."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from protocol_golden import error_cases

from tidelog.wire.protocol.apis import APIS, ApiKey, served_apis
from tidelog.wire.protocol.errors import FrameError, FrameProblem, MalformedRequest
from tidelog.wire.protocol.frames import (
    RequestFrame,
    UnknownApi,
    UnsupportedVersion,
    check_frame_size,
    frame_request,
    frame_response,
    parse_request,
    parse_response_header,
    read_frame_size,
)
from tidelog.wire.protocol.hot_responses.api_versions import encode_unsupported_api_versions
from tidelog.wire.protocol.requests import decode_request

LIMIT = 104_857_600


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        (-1, FrameProblem.NEGATIVE),
        (-(2**31), FrameProblem.NEGATIVE),
        (0, FrameProblem.TOO_SMALL),
        (9, FrameProblem.TOO_SMALL),
        (LIMIT + 1, FrameProblem.TOO_LARGE),
        (2**31 - 1, FrameProblem.TOO_LARGE),
    ],
)
def test_sizes_that_are_no_requests(size: int, problem: FrameProblem) -> None:
    with pytest.raises(FrameError) as raised:
        check_frame_size(read_frame_size(struct.pack(">i", size)), LIMIT)
    assert (raised.value.problem, raised.value.size) == (problem, size)
    assert str(LIMIT) in str(raised.value)


@pytest.mark.parametrize("size", [10, 11, LIMIT])
def test_sizes_of_requests(size: int) -> None:
    check_frame_size(size, LIMIT)


@pytest.mark.parametrize("hello", [b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01"])
def test_other_protocols_are_too_large(hello: bytes) -> None:
    """HTTP and TLS begin with bytes that are a huge size."""
    with pytest.raises(FrameError) as raised:
        check_frame_size(read_frame_size(hello), LIMIT)
    assert raised.value.problem is FrameProblem.TOO_LARGE


def test_a_header_with_tags_is_read() -> None:
    """KIP-482: tags in a header are skipped; the client id keeps its i16 length."""
    frame = struct.pack(">hhih", 3, 12, 7, 3) + b"abc" + b"\x02\x05\x01x\x4d\x02yz" + b"body"
    assert parse_request(frame) == RequestFrame(APIS[3], 12, 7, "abc", memoryview(b"body"))


@pytest.mark.parametrize(
    ("length", "text", "client_id"),
    [(-1, b"", None), (-2, b"", None), (0, b"", ""), (2, b"\xff!", "\N{REPLACEMENT CHARACTER}!")],
)
def test_client_ids(length: int, text: bytes, client_id: str | None) -> None:
    parsed = parse_request(struct.pack(">hhih", 3, 1, -5, length) + text)
    assert isinstance(parsed, RequestFrame)
    assert (parsed.client_id, parsed.correlation_id, bytes(parsed.body)) == (client_id, -5, b"")


def test_the_body_is_a_read_only_view_of_the_frame() -> None:
    frame = bytearray(struct.pack(">hhih", 3, 1, 1, -1) + b"body")
    parsed = parse_request(frame)
    assert isinstance(parsed, RequestFrame)
    assert parsed.body.readonly and parsed.body.obj is frame


@pytest.mark.parametrize("key", [-1, 4, 7, 93, 999, 32767])
def test_unknown_keys(key: int) -> None:
    assert parse_request(struct.pack(">hhih", key, 0, 9, -1)) == UnknownApi(key, 0, 9)


def test_an_api_without_a_handler_is_unknown() -> None:
    frame = struct.pack(">hhih", ApiKey.FETCH, 4, 9, -1)
    assert parse_request(frame, served_apis({3, 18})) == UnknownApi(ApiKey.FETCH, 4, 9)


@pytest.mark.parametrize(
    ("key", "version", "has_answer"),
    [(0, 2, False), (0, 14, False), (1, 3, False), (3, -1, False), (18, 5, True), (18, -1, True)],
)
def test_versions_that_are_not_served(key: int, version: int, has_answer: bool) -> None:
    """Produce 0 to 2 are advertised for librdkafka's sake, and still refused."""
    parsed = parse_request(struct.pack(">hhih", key, version, 9, -1))
    assert parsed == UnsupportedVersion(APIS[key], version, 9)
    assert isinstance(parsed, UnsupportedVersion) and parsed.has_answer is has_answer


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\1\0\0\0\1",
        struct.pack(">hhih", 3, 1, 9, 100) + b"abc",
        struct.pack(">hhih", 3, 12, 9, 0),
        struct.pack(">hhih", 3, 12, 9, 0) + b"\1",
        struct.pack(">hhih", 3, 12, 9, 0) + b"\1\0\5abc",
        struct.pack(">hhih", 3, 12, 9, 0) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 12, 9, 0) + b"\xff\xff\xff\xff\xff\x0f",
    ],
)
def test_headers_that_are_cut_or_lie(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_request(frame)


@pytest.mark.parametrize(
    ("key", "version", "tags"),
    [(3, 8, b""), (3, 9, b"\0"), (18, 0, b""), (18, 4, b""), (47, 0, b"")],
)
def test_response_headers(key: int, version: int, tags: bytes) -> None:
    """An ApiVersions response has header 0 even where it is flexible."""
    api = APIS[key]
    frame = frame_response(api, version, 77, b"body")
    data = b"".join(frame.segments)  # type: ignore[arg-type]
    assert data == struct.pack(">ii", 8 + len(tags), 77) + tags + b"body"
    assert frame.size == len(data)
    assert parse_response_header(api, version, data[4:]) == (77, memoryview(b"body"))


def test_a_request_frame_is_read_back() -> None:
    for version in (8, 9):
        frame = frame_request(APIS[3], version, 5, "me", b"body")
        check_frame_size(read_frame_size(frame), LIMIT)
        parsed = parse_request(frame[4:])
        assert parsed == RequestFrame(APIS[3], version, 5, "me", memoryview(b"body"))


FRAMING = [
    pytest.param(case, id=case["scenario"])
    for case in error_cases()
    if case["scenario"].startswith("framing/")
    and case["outcome"] != "no response"
    and case["requestHex"]  # the second answer to two requests in one write has none
]


def outcome(data: bytes) -> str:
    """What a listener does with these bytes, if the body is all that could be wrong."""
    try:
        size = read_frame_size(data)
        check_frame_size(size, LIMIT)
        if len(data) < 4 + size:
            return "connection closed"
        parsed = parse_request(data[4 : 4 + size])
        if isinstance(parsed, RequestFrame):
            decode_request(parsed.api.key, parsed.version, parsed.body)
            return "response"
    except MalformedRequest:
        return "connection closed"
    answered = isinstance(parsed, UnsupportedVersion) and parsed.has_answer
    return "response" if answered else "connection closed"


@pytest.mark.parametrize("case", FRAMING)
def test_frames_are_taken_and_refused_as_kafka_does(case: dict[str, Any]) -> None:
    assert outcome(bytes.fromhex(case["requestHex"])) == case["outcome"], case["note"]


def test_an_unknown_version_of_api_versions_is_answered_as_kafka_does() -> None:
    case = next(c for c in error_cases() if c["scenario"] == "sasl/api-versions-too-new")
    parsed = parse_request(bytes.fromhex(case["requestHex"])[4:])
    assert isinstance(parsed, UnsupportedVersion) and parsed.has_answer
    frame = encode_unsupported_api_versions(parsed.correlation_id)
    (answer,) = frame.segments
    assert answer == bytes.fromhex(case["responseHex"])
