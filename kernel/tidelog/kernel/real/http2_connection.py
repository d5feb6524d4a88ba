"""A socket that speaks HTTP/2: the shell around ``tidelog.kernel.http2``, for both of its ends.

``Http2Connection`` hands each event to whoever has the stream (a ``StreamEnd``) and lets senders
wait for the peer's windows and for the socket. It closes itself when the peer breaks the rules,
or says nothing for two to three beats though it was asked to. Liveness of nodes never rests on
that: it is for connections that die without a word, such as by a cut cable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from tidelog.kernel.http2 import Http2
from tidelog.kernel.http2_frames import (
    DataArrived,
    ErrorCode,
    Event,
    GoingAway,
    Headers,
    HeadersArrived,
    Http2Error,
    Ready,
    Status,
    StreamFault,
    StreamGone,
)

_log = logging.getLogger(__name__)

_BEAT_S: Final = 3.0
_CLOSE_GRACE_S: Final = 1.0
_BUFFERED_BYTES: Final = 1 << 20
_UNREAD_BYTES: Final = 64 << 20
"""A peer that asks for answers (to pings, say) and never reads them is dropped."""


class StreamEnd(Protocol):
    """Who has a stream. Each of these is called in the order of what arrived."""

    def on_headers(self, headers: Headers, *, is_end: bool) -> None: ...

    def on_messages(self, messages: tuple[bytes, ...], *, is_end: bool) -> bool:
        """Whether there is room for more; if not, ``credit`` tells when there is again."""
        ...

    def on_fault(self, status: Status, detail: str) -> None:
        """The peer sent what no message is."""
        ...

    def on_gone(self, reason: str) -> None:
        """The stream is no more: reset by the peer, or its connection is lost."""
        ...


Accept = Callable[["Http2Connection", int, Headers, bool], None]
"""Called for a stream that the peer begins: its number, its headers, whether that is all of it."""


class Http2Connection(asyncio.Protocol):
    """One connection, dialled (without ``accept``) or accepted."""

    def __init__(self, accept: Accept | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when the peer has greeted; fails when the connection is lost before."""
        self.lost = asyncio.Event()
        self.on_lost: Callable[[Http2Connection], None] | None = None
        self.is_leaving = False
        """The peer takes no new streams."""
        self.remote = ""
        self._accept = accept
        self._http2 = Http2(is_client=accept is None)
        self._ends: dict[int, StreamEnd] = {}
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._senders: dict[int, asyncio.Future[None]] = {}
        self._silent_beats = 0
        self._beat: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether new streams can begin on it."""
        return self._transport is not None and not self.is_leaving and self._http2.has_numbers

    # --- streams --------------------------------------------------------------------------

    def open(self, headers: Headers, end: StreamEnd) -> int:
        stream = self._http2.open(headers)
        self._ends[stream] = end
        self._flush()
        return stream

    def adopt(self, stream: int, end: StreamEnd) -> None:
        """Take what arrives on a stream that the peer began."""
        self._ends[stream] = end

    def send_headers(self, stream: int, headers: Headers) -> None:
        self._http2.send_headers(stream, headers)
        self._flush()

    def send(self, stream: int, data: bytes) -> None:
        """Queue a message; ``room`` tells when the next may follow."""
        self._http2.send_message(stream, data)
        self._flush()

    async def room(self, stream: int) -> None:
        """Wait while the peer or the socket takes nothing more; one task per stream may."""
        while self.is_held_up(stream):
            waiting = self._senders[stream] = asyncio.get_running_loop().create_future()
            try:
                await waiting
            finally:
                self._senders.pop(stream, None)

    def finish(self, stream: int, trailers: Headers | None = None) -> None:
        """Our last word on the stream, behind what is queued; a server's are trailers."""
        if trailers is not None:
            self._ends.pop(stream, None)
        self._http2.finish(stream, trailers)
        self._flush()

    def drop(self, stream: int) -> None:
        """Nobody here wants to hear or say more on it."""
        self._ends.pop(stream, None)
        self._http2.reset(stream, ErrorCode.CANCEL)
        self._flush()

    def credit(self, stream: int) -> None:
        """There is room for as much as has arrived on the stream."""
        self._http2.credit(stream)
        self._flush()

    def close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._http2.go_away(ErrorCode.NO_ERROR)
            self._flush()
            self._transport.close()

    async def closed(self) -> None:
        """Close, and do not wait for long for a peer that does not read."""
        self.close()
        try:
            async with asyncio.timeout(_CLOSE_GRACE_S):
                await self.lost.wait()
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            await self.lost.wait()

    # --- the socket -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFERED_BYTES)
        self.remote = _told(self._transport.get_extra_info("peername"))
        self._beat = asyncio.get_running_loop().call_later(_BEAT_S, self._on_beat)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._silent_beats = 0
        try:
            for event in self._http2.receive(data):
                self._handle(event)
        except Http2Error as error:
            _log.debug("connection with %s: %s", self.remote, error)
            self._flush()
            if self._transport is not None:
                self._transport.close()
            return
        self._flush()
        self._wake_senders()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake_senders()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.lost.set()
        if self._beat is not None:
            self._beat.cancel()
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(str(error or "closed by the other side")))
            self.ready.exception()  # not everybody waits for it
        ends, self._ends = self._ends, {}
        for end in ends.values():
            end.on_gone(f"connection lost ({error})" if error else "connection closed")
        self._wake_senders()
        if self.on_lost is not None:
            self.on_lost(self)

    # --- inside ---------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        match event:
            case DataArrived():
                end = self._ends.get(event.stream)
                if end is not None and end.on_messages(event.messages, is_end=event.is_end):
                    self._http2.credit(event.stream)
            case HeadersArrived():
                if (end := self._ends.get(event.stream)) is not None:
                    if event.is_end and self._accept is None:
                        del self._ends[event.stream]  # a server's last word: a reset may follow
                    end.on_headers(event.headers, is_end=event.is_end)
                elif self._accept is not None:
                    self._accept(self, event.stream, event.headers, event.is_end)
            case StreamFault():
                if (end := self._ends.get(event.stream)) is not None:
                    end.on_fault(event.status, event.detail)
            case StreamGone():
                if (end := self._ends.pop(event.stream, None)) is not None:
                    end.on_gone(f"reset by the other side ({event.code})")
            case GoingAway():
                self.is_leaving = True
                for stream in [stream for stream in self._ends if stream > event.last_stream]:
                    self._ends.pop(stream).on_gone("the node is going away")
            case Ready():
                if not self.ready.done():
                    self.ready.set_result(None)

    def _flush(self) -> None:
        output = self._http2.output
        if not output or self._transport is None:
            return
        self._http2.output = []
        if self._transport.get_write_buffer_size() > _UNREAD_BYTES:
            self._transport.abort()
        else:
            self._transport.writelines(output)

    def is_held_up(self, stream: int) -> bool:
        """Whether the peer or the socket takes nothing more of what is queued."""
        if self._transport is None:
            return False
        return self._is_paused or self._http2.is_waiting(stream)

    def _wake_senders(self) -> None:
        for stream, waiting in self._senders.items():
            if not waiting.done() and not self.is_held_up(stream):
                waiting.set_result(None)

    def _on_beat(self) -> None:
        """A process that was stopped for long counts one beat only, and then asks."""
        if self._transport is None:
            return
        self._silent_beats += 1
        if self._silent_beats > 2:
            self._transport.abort()
            return
        if self._silent_beats == 2:
            self._http2.ping()
            self._flush()
        self._beat = asyncio.get_running_loop().call_later(_BEAT_S, self._on_beat)


def _told(address: object) -> str:
    match address:
        case (str(host), int(port)):
            return f"ipv4:{host}:{port}"
        case (str(host), int(port), *_):
            return f"ipv6:[{host}]:{port}"
        case _:
            return str(address)
