"""Every frame between stock clients and Apache Kafka 4.3.1, decoded and encoded again.

Requests and responses go through kio and come back as the same bytes. Produce and Fetch requests
are read by hand too and must say what kio says; the four hot responses are written by hand too and
must be Kafka's bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_request_schema
from protocol_golden import WireFrame, error_cases, table, wire_frames
from protocol_kio import from_kio, joined

from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import (
    RequestFrame,
    ResponseFrame,
    UnknownApi,
    UnsupportedVersion,
    parse_request,
    parse_response_header,
)
from tidelog.wire.protocol.hot_requests.fetch import FetchRequest
from tidelog.wire.protocol.hot_requests.produce import ProduceRequest
from tidelog.wire.protocol.hot_responses.api_versions import (
    ApiVersionsResponse,
    encode_api_versions,
)
from tidelog.wire.protocol.hot_responses.fetch import FetchResponse, encode_fetch
from tidelog.wire.protocol.hot_responses.metadata import MetadataResponse, encode_metadata
from tidelog.wire.protocol.hot_responses.produce import ProduceResponse, encode_produce
from tidelog.wire.protocol.kio_codec import kio_decoder
from tidelog.wire.protocol.requests import decode_request, encode_request
from tidelog.wire.protocol.responses import decode_response, encode_response

HOT_REQUESTS: dict[int, Any] = {ApiKey.PRODUCE: ProduceRequest, ApiKey.FETCH: FetchRequest}
HOT_RESPONSES: dict[int, tuple[Any, Callable[[int, int, Any], ResponseFrame]]] = {
    ApiKey.PRODUCE: (ProduceResponse, encode_produce),
    ApiKey.FETCH: (FetchResponse, encode_fetch),
    ApiKey.METADATA: (MetadataResponse, encode_metadata),
    ApiKey.API_VERSIONS: (ApiVersionsResponse, encode_api_versions),
}

# What Kafka serves and we do not; test_apis has the names.
NOT_SERVED_KEYS = {
    row["key"] for row in table("apis") if "broker" in row["listeners"]
} - APIS.keys()
BETWEEN_BROKERS = {(ApiKey.ADD_PARTITIONS_TO_TXN, 4), (ApiKey.ADD_PARTITIONS_TO_TXN, 5)}

# librdkafka ends these requests later than their schema does; Kafka does not mind, nor do we.
LEFT_BEHIND: dict[tuple[str | None, int], list[bytes]] = {
    ("golden-cf-admin", ApiKey.METADATA): [b"", b"\1\0\0"],
    ("golden-cf-sasl", ApiKey.METADATA): [b"", b"\1\0\0"],
    ("golden-cf-admin", ApiKey.ALTER_USER_SCRAM_CREDENTIALS): [b"\0"],
}


def check_request(data: bytes) -> None:
    parsed = parse_request(data)
    if isinstance(parsed, UnknownApi):
        assert parsed.api_key in NOT_SERVED_KEYS
        return
    if isinstance(parsed, UnsupportedVersion):
        assert (parsed.api.key, parsed.version) in BETWEEN_BROKERS
        return
    check_body(parsed, data)


def check_body(parsed: RequestFrame, data: bytes) -> None:
    key, version = parsed.api.key, parsed.version
    decoded = decode_request(key, version, parsed.body)
    by_kio: Any = decoded
    if (ours := HOT_REQUESTS.get(key)) is not None:
        by_kio = kio_decoder(load_request_schema(key, version))(parsed.body)
        assert decoded == from_kio(by_kio, ours)
    again = encode_request(parsed.correlation_id, parsed.client_id, by_kio)
    left_behind = LEFT_BEHIND.get((parsed.client_id, key), [b""])
    assert data.removeprefix(again[4:]) in left_behind
    assert again[:4] == struct.pack(">i", len(again) - 4)


def check_response(key: int, version: int, correlation_id: int, data: bytes) -> None:
    read_id, body = parse_response_header(APIS[key], version, data)
    assert read_id == correlation_id
    message = decode_response(key, version, body)
    framed = struct.pack(">i", len(data)) + data
    assert joined(encode_response(key, version, correlation_id, message).segments) == framed
    if key in HOT_RESPONSES:
        ours, encode = HOT_RESPONSES[key]
        frame = encode(version, correlation_id, from_kio(message, ours))
        assert joined(frame.segments) == framed
        assert frame.size == len(framed)


RUNS = sorted({frame.run for frame in wire_frames()})


@pytest.mark.parametrize("run", RUNS)
def test_frames_of_stock_clients(run: str) -> None:
    for frame in wire_frames():
        if frame.run == run:
            check_wire_frame(frame)


def check_wire_frame(frame: WireFrame) -> None:
    if frame.is_request:
        parsed = parse_request(frame.data)
        if isinstance(parsed, RequestFrame):
            assert (parsed.api.key, parsed.version) == (frame.api_key, frame.version)
            assert parsed.client_id == frame.client_id
            assert parsed.correlation_id == frame.correlation_id
        check_request(frame.data)
    elif frame.api_key not in NOT_SERVED_KEYS:
        check_response(frame.api_key, frame.version, frame.correlation_id, frame.data)


ERRORS = [
    pytest.param(case, id=f"{case['file']}-{case['id']}")
    for case in error_cases()
    if case["requestHex"] and case.get("request") is not None
]


def test_every_frame_was_seen() -> None:
    assert (len(wire_frames()), len(ERRORS)) == (2604, 1397)


@pytest.mark.parametrize("case", ERRORS)
def test_odd_requests_and_their_answers(case: dict[str, Any]) -> None:
    check_request(bytes.fromhex(case["requestHex"])[4:])
    if case["outcome"] == "response" and case["apiKey"] in APIS:
        data = bytes.fromhex(case["responseHex"])[4:]
        (correlation_id,) = struct.unpack_from(">i", data)
        check_response(case["apiKey"], case["version"], correlation_id, data)
