"""HTTP/2 as gRPC uses it (RFC 9113), without a transport: bytes go in, events and bytes come out.

One ``Http2`` is one end of a connection. Whoever has the socket gives it what arrives, handles the
events it returns and writes what ``output`` holds. gRPC's framing of messages is part of it, so
that a message in a frame of its own, the usual case, is cut out of what arrived exactly once.

A stream's window is what bounds memory: bytes of messages that nobody took are not credited to the
sender. The window of the connection as a whole is credited at once, so that a stream whose reader
is slow holds up no other.

Invariants: what a peer does wrong within one stream is a ``StreamFault`` and costs it that stream;
what confuses the connection raises ``Http2Error``, after which nothing more is accepted.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, cast

from hpack import Decoder, Encoder, HPACKError

from tidelog.kernel.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    NUMBER,
    PADDED,
    PRIORITY,
    DataArrived,
    ErrorCode,
    Event,
    FrameType,
    GoingAway,
    Headers,
    HeadersArrived,
    Http2Error,
    Ready,
    Setting,
    Status,
    StreamFault,
    StreamGone,
    credit_frame,
    frame,
    reset_frame,
    without_padding,
)
from tidelog.kernel.peers import MAX_MESSAGE_BYTES

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STREAM_WINDOW: Final = 4 << 20
_CONNECTION_WINDOW: Final = (1 << 31) - 1
_DEFAULT_WINDOW: Final = 65_535
_LARGEST_NUMBER: Final = (1 << 31) - 1
_LARGEST_FRAME: Final = 4 << 20
"""What we take: a message of a follower's fetch passes in one frame."""
_DEFAULT_FRAME: Final = 16_384
_LARGEST_HEADERS: Final = 64 << 10
_MOST_STREAMS: Final = 1_024

_FRAME_BYTES: Final = 9
_PREFIX: Final = struct.Struct(">BI")
_SETTING: Final = struct.Struct(">HI")
_TWO_NUMBERS: Final = struct.Struct(">II")


class _Fault(Exception):
    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Stream:
    """Both directions of one stream."""

    __slots__ = (
        "held", "is_ended", "is_ending", "is_faulty", "is_over_there", "needed", "partial",
        "pending", "send_window", "trailers",
    )  # fmt: skip

    def __init__(self, send_window: int) -> None:
        self.send_window = send_window
        self.pending: deque[memoryview] = deque()
        """What waits for room in the peer's windows."""
        self.is_ending = False
        """We have said, or queued, our last."""
        self.trailers: Headers | None = None
        """A server's last word."""
        self.is_ended = False
        """Our last word is sent."""
        self.held = 0
        """Bytes that arrived and were not credited to the sender."""
        self.partial = bytearray()
        self.needed = 0
        """How long ``partial`` must become before a look at it pays."""
        self.is_over_there = False
        self.is_faulty = False


class Http2:
    """One end of a connection."""

    def __init__(self, *, is_client: bool) -> None:
        self.output: list[bytes | memoryview] = []
        self._is_client = is_client
        self._encoder = Encoder()
        self._decoder = Decoder(max_header_list_size=_LARGEST_HEADERS)
        self._streams: dict[int, _Stream] = {}
        self._next_stream = 1
        self._last_seen = 0
        self._send_window = _DEFAULT_WINDOW
        self._uncredited = 0
        self._first_send_window = _DEFAULT_WINDOW
        self._peer_frame = _DEFAULT_FRAME
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = _FRAME_BYTES if is_client else len(PREFACE)
        self._awaits_preface = not is_client
        self._awaits_settings = True
        self._block: tuple[int, int, bytearray] | None = None
        """The stream, flags and beginning of headers that frames of continuation go on with."""
        self._greet()

    # --- what is sent ---------------------------------------------------------------------

    @property
    def has_numbers(self) -> bool:
        """Whether another stream can begin: numbers are never used twice."""
        return self._next_stream < _LARGEST_NUMBER

    def open(self, headers: Headers) -> int:
        """Begin a stream (of a client) by its request's headers."""
        stream = self._next_stream
        self._next_stream += 2
        self._streams[stream] = _Stream(self._first_send_window)
        self.send_headers(stream, headers)
        return stream

    def send_headers(self, stream: int, headers: Headers) -> None:
        if stream in self._streams:
            self.output.append(self._headers_frames(stream, headers, 0))

    def send_message(self, stream: int, data: bytes) -> None:
        """Queue a message; what does not fit into the peer's windows waits for them."""
        state = self._streams.get(stream)
        if state is None or state.is_ending:
            return
        size = _PREFIX.size + len(data)
        fits = size <= min(state.send_window, self._send_window, self._peer_frame)
        if fits and not state.pending:
            state.send_window -= size
            self._send_window -= size
            header = FRAME_HEADER.pack(size >> 8, size & 0xFF, FrameType.DATA, 0, stream)
            self.output += (header + _PREFIX.pack(0, len(data)), data)
            return
        state.pending.append(memoryview(_PREFIX.pack(0, len(data)) + data))
        self._pump(stream, state)

    def finish(self, stream: int, trailers: Headers | None = None) -> None:
        """Say on this stream no more, behind what is queued; a server's last word are trailers."""
        state = self._streams.get(stream)
        if state is None or state.is_ending:
            return
        state.is_ending = True
        state.trailers = trailers
        self._pump(stream, state)

    def reset(self, stream: int, code: ErrorCode) -> None:
        """Drop the stream at once, with what waits on it."""
        if self._streams.pop(stream, None) is not None:
            self.output.append(reset_frame(stream, code))

    def is_waiting(self, stream: int) -> bool:
        """Whether something on it waits for room in the peer's windows."""
        state = self._streams.get(stream)
        return state is not None and bool(state.pending)

    def credit(self, stream: int) -> None:
        """There is room for as much as has arrived."""
        state = self._streams.get(stream)
        if state is not None and state.held >= STREAM_WINDOW // 2 and not state.is_over_there:
            self.output.append(credit_frame(stream, state.held))
            state.held = 0

    def ping(self) -> None:
        self.output.append(frame(FrameType.PING, 0, 0, bytes(8)))

    def go_away(self, code: ErrorCode, detail: str = "") -> None:
        told = _TWO_NUMBERS.pack(self._last_seen, code) + detail.encode()[:200]
        self.output.append(frame(FrameType.GOAWAY, 0, 0, told))

    # --- what arrives ---------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes, with those before them, say."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed and not self._awaits_preface:
            return []
        buffer = data if len(self._parts) == 1 else b"".join(self._parts)
        events: list[Event] = []
        try:
            place = self._read_all(buffer, events)
        except Http2Error as error:
            self._streams.clear()
            self.go_away(error.code, str(error))
            raise
        rest = buffer[place:] if place else buffer
        self._parts = [rest] if rest else []
        self._size = len(rest)
        return events

    def _read_all(self, buffer: bytes, events: list[Event]) -> int:
        """Read whole frames; the place of the first that is not whole."""
        place = 0
        if self._awaits_preface:
            start = buffer[: len(PREFACE)]
            if not PREFACE.startswith(start):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "this is no HTTP/2")
            if len(start) < len(PREFACE):
                return 0
            self._awaits_preface, place = False, len(PREFACE)
        view = memoryview(buffer)
        while len(buffer) - place >= _FRAME_BYTES:
            high, low, kind, flags, stream = FRAME_HEADER.unpack_from(buffer, place)
            size = high << 8 | low
            if size > _LARGEST_FRAME:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            end = place + _FRAME_BYTES + size
            if end > len(buffer):
                self._needed = end - place
                return place
            self._read(kind, flags, stream & 0x7FFFFFFF, view[place + _FRAME_BYTES : end], events)
            place = end
        self._needed = _FRAME_BYTES
        return place

    def _read(
        self, kind: int, flags: int, stream: int, payload: memoryview, events: list[Event]
    ) -> None:
        if self._awaits_settings and (kind != FrameType.SETTINGS or flags & ACK):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the first frame tells no settings")
        if self._block is not None and (kind != FrameType.CONTINUATION or self._block[0] != stream):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "headers were not continued")
        match kind:
            case FrameType.DATA:
                self._read_data(flags, stream, payload, events)
            case FrameType.HEADERS:
                self._read_headers(flags, stream, payload, events)
            case FrameType.CONTINUATION:
                self._continue_headers(flags, payload, events)
            case FrameType.SETTINGS:
                self._read_settings(flags, stream, payload, events)
            case FrameType.WINDOW_UPDATE:
                self._read_credit(stream, payload, events)
            case FrameType.RST_STREAM:
                self._read_reset(stream, payload, events)
            case FrameType.PING:
                if len(payload) != 8 or stream:
                    raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a malformed ping")
                if not flags & ACK:
                    self.output.append(frame(FrameType.PING, ACK, 0, bytes(payload)))
            case FrameType.GOAWAY:
                if len(payload) < _TWO_NUMBERS.size:
                    raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a malformed farewell")
                last, code = _TWO_NUMBERS.unpack_from(payload)
                events.append(GoingAway(last & 0x7FFFFFFF, code))
            case FrameType.PUSH_PROMISE:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "nobody asked for a push")
            case _:
                pass  # priorities, and what later versions may add

    def _read_data(self, flags: int, stream: int, payload: memoryview, events: list[Event]) -> None:
        size = len(payload)
        self._uncredited += size
        if self._uncredited >= _CONNECTION_WINDOW // 2:
            self.output.append(credit_frame(0, self._uncredited))
            self._uncredited = 0
        state = self._known(stream)
        if state is None:
            return
        state.held += size
        if state.held > STREAM_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"stream {stream} overran its window")
        if state.is_over_there:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"data behind the end of stream {stream}")
        if flags & PADDED:
            payload = without_padding(payload)
        is_end = bool(flags & END_STREAM)
        if state.is_faulty:
            state.held = 0  # its end is under way; until then the rest is passed over
        else:
            try:
                messages = tuple(_messages(state, payload))
                if is_end and state.partial:
                    raise _Fault(Status.INTERNAL, "the stream ends within a message")
                events.append(DataArrived(stream, messages, is_end))
            except _Fault as fault:
                state.is_faulty = True
                state.partial = bytearray()
                events.append(StreamFault(stream, fault.status, str(fault)))
        if is_end:
            self._end_over_there(stream, state)

    def _read_headers(
        self, flags: int, stream: int, payload: memoryview, events: list[Event]
    ) -> None:
        if not stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "headers of no stream")
        if flags & PADDED:
            payload = without_padding(payload)
        if flags & PRIORITY:
            payload = payload[5:]
        self._block = (stream, flags & END_STREAM, bytearray(payload))
        self._close_block(flags, events)

    def _continue_headers(self, flags: int, payload: memoryview, events: list[Event]) -> None:
        if self._block is None:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a continuation of nothing")
        self._block[2].extend(payload)
        self._close_block(flags, events)

    def _close_block(self, flags: int, events: list[Event]) -> None:
        assert self._block is not None
        stream, end, block = self._block
        if len(block) > _LARGEST_HEADERS:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "headers without end")
        if not flags & END_HEADERS:
            return
        self._block = None
        try:
            # Also of streams that are over: the table of names is the connection's.
            fields = self._decoder.decode(bytes(block))
            headers = dict(cast(Iterable[tuple[str, str]], fields))
        except (HPACKError, UnicodeDecodeError) as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        state = self._streams.get(stream)
        if state is None:
            state = self._accept(stream)
        if state is None:
            return
        if state.is_over_there:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"headers behind the end of {stream}")
        events.append(HeadersArrived(stream, headers, bool(end)))
        if end:
            self._end_over_there(stream, state)

    def _accept(self, stream: int) -> _Stream | None:
        """A stream that the peer begins, or nothing if it is one of the past."""
        if self._is_client or not stream % 2:
            if self._is_client and stream % 2 and stream < self._next_stream:
                return None
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream} cannot begin here")
        if stream <= self._last_seen:
            return None
        self._last_seen = stream
        if len(self._streams) >= _MOST_STREAMS:
            self.output.append(reset_frame(stream, ErrorCode.REFUSED_STREAM))
            return None
        state = self._streams[stream] = _Stream(self._first_send_window)
        return state

    def _read_settings(
        self, flags: int, stream: int, payload: memoryview, events: list[Event]
    ) -> None:
        if stream or len(payload) % _SETTING.size or (flags & ACK and len(payload)):
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "malformed settings")
        if flags & ACK:
            return
        for name, value in _SETTING.iter_unpack(payload):
            self._heed(name, value)
        self.output.append(frame(FrameType.SETTINGS, ACK, 0))
        if self._awaits_settings:
            self._awaits_settings = False
            events.append(Ready())
        self._pump_all()

    def _heed(self, name: int, value: int) -> None:
        match name:
            case Setting.HEADER_TABLE_SIZE:
                self._encoder.header_table_size = min(value, 4_096)
            case Setting.INITIAL_WINDOW_SIZE:
                if value > _LARGEST_NUMBER:
                    raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value}")
                for state in self._streams.values():
                    state.send_window += value - self._first_send_window
                self._first_send_window = value
            case Setting.MAX_FRAME_SIZE:
                if not _DEFAULT_FRAME <= value < 1 << 24:
                    raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"frames of at most {value}")
                self._peer_frame = value
            case _:
                pass

    def _read_credit(self, stream: int, payload: memoryview, events: list[Event]) -> None:
        if len(payload) != NUMBER.size:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a malformed window update")
        more = NUMBER.unpack(payload)[0] & 0x7FFFFFFF
        if not more:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a window that grows by nothing")
        if not stream:
            self._send_window += more
            self._pump_all()
        elif (state := self._known(stream)) is not None:
            state.send_window += more
            self._pump(stream, state)
            if state.send_window > _LARGEST_NUMBER:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"window of stream {stream}")
        if self._send_window > _LARGEST_NUMBER:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "window of the connection")

    def _read_reset(self, stream: int, payload: memoryview, events: list[Event]) -> None:
        if len(payload) != NUMBER.size:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a malformed reset")
        if self._known(stream) is not None:
            del self._streams[stream]
            events.append(StreamGone(stream, NUMBER.unpack(payload)[0]))

    def _known(self, stream: int) -> _Stream | None:
        """The stream, or nothing if it is one of the past."""
        state = self._streams.get(stream)
        if state is None:
            begun = self._next_stream - 1 if self._is_client else self._last_seen
            if not stream or stream > begun:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream} has not begun")
        return state

    def _end_over_there(self, stream: int, state: _Stream) -> None:
        state.is_over_there = True
        self._forget_if_over(stream, state)

    def _forget_if_over(self, stream: int, state: _Stream) -> None:
        if state.is_over_there and state.is_ended:
            self._streams.pop(stream, None)

    # --- frames ---------------------------------------------------------------------------

    def _greet(self) -> None:
        if self._is_client:
            self.output.append(PREFACE)
        ours = {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            Setting.MAX_FRAME_SIZE: _LARGEST_FRAME,
        }
        if not self._is_client:
            del ours[Setting.ENABLE_PUSH]
            ours[Setting.MAX_CONCURRENT_STREAMS] = _MOST_STREAMS
        told = b"".join(_SETTING.pack(name, value) for name, value in ours.items())
        self.output.append(frame(FrameType.SETTINGS, 0, 0, told))
        self.output.append(credit_frame(0, _CONNECTION_WINDOW - _DEFAULT_WINDOW))

    def _headers_frames(self, stream: int, headers: Headers, flags: int) -> bytes:
        block = self._encoder.encode(list(headers.items()), huffman=False)
        first = block[: self._peer_frame]
        if len(first) == len(block):
            return frame(FrameType.HEADERS, flags | END_HEADERS, stream, block)
        frames = [frame(FrameType.HEADERS, flags, stream, first)]
        for place in range(len(first), len(block), self._peer_frame):
            piece = block[place : place + self._peer_frame]
            is_last = place + len(piece) == len(block)
            end = END_HEADERS if is_last else 0
            frames.append(frame(FrameType.CONTINUATION, end, stream, piece))
        return b"".join(frames)

    def _pump_all(self) -> None:
        for stream, state in list(self._streams.items()):
            if state.pending:
                self._pump(stream, state)

    def _pump(self, stream: int, state: _Stream) -> None:
        """Send what the windows let pass, and the end when nothing is left before it."""
        while state.pending:
            room = min(state.send_window, self._send_window, self._peer_frame)
            if room <= 0:
                return
            piece = state.pending.popleft()
            if len(piece) > room:
                state.pending.appendleft(piece[room:])
                piece = piece[:room]
            size = len(piece)
            state.send_window -= size
            self._send_window -= size
            header = FRAME_HEADER.pack(size >> 8, size & 0xFF, FrameType.DATA, 0, stream)
            self.output += (header, piece)
        if state.is_ending and not state.is_ended:
            self._end_here(stream, state)

    def _end_here(self, stream: int, state: _Stream) -> None:
        state.is_ended = True
        if state.trailers is None:
            self.output.append(frame(FrameType.DATA, END_STREAM, stream))
        else:
            # Encoded only now: the table of names depends on the order in which frames are sent.
            self.output.append(self._headers_frames(stream, state.trailers, END_STREAM))
            if not state.is_over_there:
                # Asks the peer to stop sending what nobody will read (RFC 9113, 8.1).
                self.reset(stream, ErrorCode.NO_ERROR)
        self._forget_if_over(stream, state)


def _messages(state: _Stream, payload: memoryview) -> Iterator[bytes]:
    """The messages that this payload completes; what is left waits for the next."""
    if state.partial:
        state.partial += payload
        if len(state.partial) < state.needed:
            return
        payload = memoryview(state.partial)
    place, end = 0, _PREFIX.size
    while len(payload) - place >= _PREFIX.size:
        is_compressed, size = _PREFIX.unpack_from(payload, place)
        if is_compressed:
            raise _Fault(Status.UNIMPLEMENTED, "a compressed message, which nodes do not send")
        if size > MAX_MESSAGE_BYTES:
            detail = f"a message of {size} bytes; the limit is {MAX_MESSAGE_BYTES}"
            raise _Fault(Status.RESOURCE_EXHAUSTED, detail)
        end = place + _PREFIX.size + size
        if end > len(payload):
            break
        yield bytes(payload[place + _PREFIX.size : end])
        place, end = end, end + _PREFIX.size
    state.needed = end - place
    state.partial = bytearray(payload[place:])
