"""HTTP/2 without sockets: two ends that talk, and a peer that breaks the rules."""

from __future__ import annotations

import struct

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.http2 import PREFACE, STREAM_WINDOW, Http2
from tidelog.kernel.http2_frames import (
    DataArrived,
    ErrorCode,
    Event,
    FrameType,
    GoingAway,
    HeadersArrived,
    Http2Error,
    Ready,
    Setting,
    Status,
    StreamFault,
    StreamGone,
)
from tidelog.kernel.peers import MAX_MESSAGE_BYTES

REQUEST = {":method": "POST", ":path": "/s/m", "te": "trailers"}
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20


def said(end: Http2) -> bytes:
    output, end.output = end.output, []
    return b"".join(output)


def deliver(source: Http2, target: Http2) -> list[Event]:
    return target.receive(said(source))


def pair() -> tuple[Http2, Http2]:
    """A client and a server that have greeted each other."""
    client, server = Http2(is_client=True), Http2(is_client=False)
    assert deliver(client, server) == [Ready()]
    assert deliver(server, client) == [Ready()]
    assert deliver(client, server) == []
    return client, server


def begun() -> tuple[Http2, Http2, int]:
    client, server = pair()
    stream = client.open(REQUEST)
    assert deliver(client, server) == [HeadersArrived(stream, REQUEST, False)]
    return client, server, stream


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(data: bytes) -> bytes:
    return struct.pack(">BI", 0, len(data)) + data


def messages_of(events: list[Event]) -> list[bytes]:
    return [one for event in events if isinstance(event, DataArrived) for one in event.messages]


# ---- what passes


def test_a_call_from_headers_to_trailers() -> None:
    client, server, stream = begun()
    client.send_message(stream, b"question")
    client.finish(stream)
    assert deliver(client, server) == [
        DataArrived(stream, (b"question",), False),
        DataArrived(stream, (), True),
    ]
    server.send_headers(stream, {":status": "200"})
    server.send_message(stream, b"answer")
    server.finish(stream, {"grpc-status": "0"})
    assert deliver(server, client) == [
        HeadersArrived(stream, {":status": "200"}, False),
        DataArrived(stream, (b"answer",), False),
        HeadersArrived(stream, {"grpc-status": "0"}, True),
    ]
    server.send_message(stream, b"more")
    client.send_message(stream, b"more")
    client.reset(stream, ErrorCode.CANCEL)
    assert said(server) == said(client) == b"", "a stream that is over is forgotten on both sides"


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 700, 16_384, 70_000, 1 << 20]), max_size=12),
    step=st.sampled_from([1 << 20, 65_536, 9_973, 1_021]),
)
def test_messages_arrive_whatever_the_pieces(sizes: list[int], step: int) -> None:
    client, server, stream = begun()
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    for data in sent:
        client.send_message(stream, data)
    client.finish(stream)
    received: list[bytes] = []
    is_over = False
    while not is_over:
        wire = said(client)
        assert wire, "nobody waits for ever"
        for place in range(0, len(wire), step):
            for event in server.receive(wire[place : place + step]):
                assert isinstance(event, DataArrived)
                received += event.messages
                is_over |= event.is_end
                server.credit(stream)
        client.receive(said(server))
    assert received == sent


def test_what_nobody_took_holds_its_sender_back_and_no_other() -> None:
    client, server, slow = begun()
    piece = bytes(1 << 20)
    for _ in range(8):
        client.send_message(slow, piece)
    assert client.is_waiting(slow)
    got = messages_of(deliver(client, server))
    assert len(got) == 3, "four MiB of window, less what frames messages"
    assert said(server) == b""
    swift = client.open(REQUEST)
    client.send_message(swift, b"x")
    assert DataArrived(swift, (b"x",), False) in deliver(client, server)
    server.credit(slow)
    deliver(server, client)
    assert len(messages_of(deliver(client, server))) == 4
    server.credit(slow)
    deliver(server, client)
    assert not client.is_waiting(slow)
    assert len(messages_of(deliver(client, server))) == 1


def test_the_last_word_waits_for_what_is_queued_before_it() -> None:
    client, server, stream = begun()
    server.send_headers(stream, {":status": "200"})
    for _ in range(5):
        server.send_message(stream, bytes(1 << 20))
    server.finish(stream, {"grpc-status": "9", "why": "first"})
    other = client.open(REQUEST)
    deliver(client, server)
    # Names in these are coded by their order on the wire: were trailers coded when they are
    # queued, the client could not read what overtakes them.
    server.send_headers(other, {"why": "first", "what": "second"})
    events = deliver(server, client)
    assert events[-1] == HeadersArrived(other, {"why": "first", "what": "second"}, False)
    assert not any(isinstance(event, HeadersArrived) and event.is_end for event in events)
    client.credit(stream)
    deliver(client, server)
    events = deliver(server, client)
    assert events[-2:] == [
        HeadersArrived(stream, {"grpc-status": "9", "why": "first"}, True),
        StreamGone(stream, ErrorCode.NO_ERROR),
    ], "the server asks the client to say no more"


def test_a_smaller_window_and_frame_are_heeded() -> None:
    client, _, stream = begun()
    told = struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, 20_000)
    client.receive(frame(FrameType.SETTINGS, 0, 0, told))
    assert said(client) == frame(FrameType.SETTINGS, ACK, 0)
    client.send_message(stream, bytes(50_000))
    assert len(said(client)) == 20_000 + 9, "one frame as large as the window"
    client.receive(frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 10)))
    assert len(said(client)) == 10 + 9
    # The window shrinks by what it had grown; it may then be negative.
    told = struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, 10_000)
    client.receive(frame(FrameType.SETTINGS, 0, 0, told))
    said(client)
    client.receive(frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 10_000)))
    assert said(client) == b""
    client.receive(frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 100_000)))
    frames = said(client)
    assert len(frames) == 50_005 - 20_010 + 9
    small = Http2(is_client=True)
    small.receive(frame(FrameType.SETTINGS, 0, 0))
    number = small.open(REQUEST)
    said(small)
    small.send_message(number, bytes(40_000))
    assert len(said(small)) == 40_005 + 3 * 9, "16 KiB at a time, unless the peer takes more"


def test_padding_priorities_and_continuations_are_understood() -> None:
    _, server, stream = begun()
    padded = b"\x03" + message(b"x") + bytes(3)
    assert server.receive(frame(FrameType.DATA, PADDED, stream, padded)) == [
        DataArrived(stream, (b"x",), False)
    ]
    # An encoder of its own, without a memory of what the client's has sent before.
    block = Encoder().encode([("a", "b" * 100)], huffman=True)
    first = b"\x02" + bytes(5) + block[:10] + bytes(2)
    wire = frame(FrameType.HEADERS, PADDED | PRIORITY, stream + 2, first)
    wire += frame(FrameType.CONTINUATION, 0, stream + 2, block[10:20])
    wire += frame(FrameType.CONTINUATION, END_HEADERS, stream + 2, block[20:])
    wire += frame(FrameType.PRIORITY, 0, stream, bytes(5)) + frame(0xEE, 0, 0, b"?")
    assert server.receive(wire) == [HeadersArrived(stream + 2, {"a": "b" * 100}, False)]


def test_long_headers_are_cut_into_frames() -> None:
    client, server = pair()
    small = struct.pack(">HI", Setting.MAX_FRAME_SIZE, 16_384)
    client.receive(frame(FrameType.SETTINGS, 0, 0, small))
    headers = REQUEST | {"long": "x" * 40_000}
    assert deliver(client, server) == []
    client.open(headers)
    assert deliver(client, server) == [HeadersArrived(1, headers, False)]


def test_pings_are_answered_and_farewells_told() -> None:
    client, server = pair()
    server.ping()
    assert deliver(server, client) == []
    assert said(client) == frame(FrameType.PING, ACK, 0, bytes(8))
    server.go_away(ErrorCode.NO_ERROR)
    assert deliver(server, client) == [GoingAway(0, ErrorCode.NO_ERROR)]


# ---- what costs a stream


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (b"\x01\x00\x00\x00\x01x", Status.UNIMPLEMENTED),
        (struct.pack(">BI", 0, MAX_MESSAGE_BYTES + 1), Status.RESOURCE_EXHAUSTED),
    ],
)
def test_what_is_no_message_of_ours_costs_its_stream(payload: bytes, status: Status) -> None:
    client, server, stream = begun()
    events = server.receive(frame(FrameType.DATA, 0, stream, payload))
    assert [type(event) for event in events] == [StreamFault]
    assert isinstance(events[0], StreamFault) and events[0].status is status
    # What was under way is passed over, however much it is.
    for _ in range(3 * STREAM_WINDOW // (1 << 20)):
        assert server.receive(frame(FrameType.DATA, 0, stream, bytes(1 << 20))) == []
    other = client.open(REQUEST)
    assert deliver(client, server) == [HeadersArrived(other, REQUEST, False)]


def test_half_a_message_at_the_end_is_a_fault() -> None:
    _, server, stream = begun()
    events = server.receive(frame(FrameType.DATA, END_STREAM, stream, message(b"whole")[:-1]))
    assert [type(event) for event in events] == [StreamFault]


def test_a_reset_ends_both_directions() -> None:
    client, server, stream = begun()
    client.reset(stream, ErrorCode.CANCEL)
    assert deliver(client, server) == [StreamGone(stream, ErrorCode.CANCEL)]
    server.send_message(stream, b"late")
    server.finish(stream, {"grpc-status": "0"})
    assert said(server) == b""
    # What was on its way before the reset is not held against the peer.
    assert server.receive(frame(FrameType.DATA, 0, stream, message(b"x"))) == []


def test_there_is_a_bound_to_the_number_of_streams() -> None:
    client, server = pair()
    for _ in range(1024):
        client.open(REQUEST)
    assert len(deliver(client, server)) == 1024
    stream = client.open(REQUEST)
    assert deliver(client, server) == []
    assert deliver(server, client) == [StreamGone(stream, ErrorCode.REFUSED_STREAM)]


# ---- what costs the connection

SETTINGS_FRAME = frame(FrameType.SETTINGS, 0, 0)
WRONG = {
    "no preface": (b"GET / HTTP/1.1\r\n", ErrorCode.PROTOCOL_ERROR),
    "no settings": (PREFACE + frame(FrameType.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "half a setting": (PREFACE + frame(FrameType.SETTINGS, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
    "a huge frame": (PREFACE + b"\xff\xff\xff" + bytes(6), ErrorCode.FRAME_SIZE_ERROR),
}
WRONG_LATER = {
    "data of no stream": (frame(FrameType.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "data of a stream to come": (frame(FrameType.DATA, 0, 9, b"x"), ErrorCode.PROTOCOL_ERROR),
    "a stream of a server": (frame(FrameType.HEADERS, END_HEADERS, 2), ErrorCode.PROTOCOL_ERROR),
    "headers of no stream": (frame(FrameType.HEADERS, END_HEADERS, 0), ErrorCode.PROTOCOL_ERROR),
    "no headers": (
        frame(FrameType.HEADERS, END_HEADERS, 3, b"\xff" * 9), ErrorCode.COMPRESSION_ERROR,
    ),
    "headers that do not end": (
        frame(FrameType.HEADERS, 0, 3, bytes(60_000))
        + frame(FrameType.CONTINUATION, 0, 3, bytes(60_000)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "something between headers": (
        frame(FrameType.HEADERS, 0, 3) + frame(FrameType.PING, 0, 0, bytes(8)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a continuation of nothing": (frame(FrameType.CONTINUATION, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "too much padding": (frame(FrameType.DATA, PADDED, 1, b"\x05ab"), ErrorCode.PROTOCOL_ERROR),
    "a push": (frame(FrameType.PUSH_PROMISE, END_HEADERS, 1), ErrorCode.PROTOCOL_ERROR),
    "a short ping": (frame(FrameType.PING, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
    "a short reset": (frame(FrameType.RST_STREAM, 0, 1, b"x"), ErrorCode.FRAME_SIZE_ERROR),
    "a short farewell": (frame(FrameType.GOAWAY, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
    "a short window": (frame(FrameType.WINDOW_UPDATE, 0, 1, b"x"), ErrorCode.FRAME_SIZE_ERROR),
    "a window that stays": (
        frame(FrameType.WINDOW_UPDATE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR,
    ),
    "a window without bounds": (
        frame(FrameType.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"), ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a connection's window without bounds": (
        frame(FrameType.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a first window without bounds": (
        frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "frames that are too small": (
        frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 5, 100)), ErrorCode.PROTOCOL_ERROR,
    ),
    "more than the window": (
        b"".join(frame(FrameType.DATA, 0, 1, message(bytes(1 << 20))) for _ in range(5)),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "data behind the end": (
        frame(FrameType.DATA, END_STREAM, 1) + frame(FrameType.DATA, 0, 1, b"x"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "headers behind the end": (
        frame(FrameType.DATA, END_STREAM, 1) + frame(FrameType.HEADERS, END_HEADERS, 1),
        ErrorCode.PROTOCOL_ERROR,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_who_does_not_greet_is_told_why(name: str) -> None:
    wire, code = WRONG[name]
    server = Http2(is_client=False)
    said(server)
    with pytest.raises(Http2Error) as told:
        server.receive(wire)
    assert told.value.code is code
    assert said(server)[3] == FrameType.GOAWAY


@pytest.mark.parametrize("name", WRONG_LATER)
def test_who_breaks_the_rules_loses_the_connection(name: str) -> None:
    wire, code = WRONG_LATER[name]
    _, server, _ = begun()
    said(server)
    with pytest.raises(Http2Error) as told:
        server.receive(wire)
    assert told.value.code is code, str(told.value)
    farewell = said(server)
    place = farewell.rindex(struct.pack(">BBI", FrameType.GOAWAY, 0, 0))
    assert farewell[place + 10 : place + 14] == struct.pack(">I", code)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_noise_is_an_error_or_nothing(noise: bytes, is_client: bool) -> None:
    end = Http2(is_client=is_client)
    start = SETTINGS_FRAME if is_client else PREFACE + SETTINGS_FRAME
    try:
        end.receive(start + noise)
    except Http2Error:
        return


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40)
        ),
        max_size=12,
    )
)
def test_frames_of_noise_are_an_error_or_nothing(
    frames: list[tuple[int, int, int, bytes]],
) -> None:
    _, server, _ = begun()
    try:
        for one in frames:
            server.receive(frame(*one))
            server.finish(1, {"grpc-status": "0"})
    except Http2Error:
        return


def test_numbers_of_streams_come_to_an_end() -> None:
    client, _ = pair()
    assert client.has_numbers
    client._next_stream = (1 << 31) - 1
    assert not client.has_numbers
