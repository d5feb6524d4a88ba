"""A client's connection without a network: what the client sends, and what it has been sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import ConnectionLost
from tidelog.kernel.ports import ByteView, File


class MemoryConnection:
    """A ``ClientConnection`` for the session, with the client's side in the same hand."""

    def __init__(
        self,
        *,
        window: int = 1 << 30,
        listener_name: str = "PLAINTEXT",
        peer: SocketAddress | None = None,
    ) -> None:
        self.listener_name = listener_name
        self.peer_address = peer or SocketAddress("10.0.0.7", 50_000)
        self.is_closing = False
        self.frames_written = 0
        self._window = window
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._is_at_end = False
        self._changed = asyncio.Event()

    # The session's side.

    @property
    def has_hung_up(self) -> bool:
        return self.is_closing or self._is_at_end

    async def read_exactly(self, length: int) -> bytearray:
        while len(self._incoming) < length:
            if self.is_closing or self._is_at_end:
                raise ConnectionLost("the client hung up")
            await self._wait()
        if self.is_closing:
            raise ConnectionLost("closed here")
        taken = self._incoming[:length]
        del self._incoming[:length]
        return taken

    async def read_into(self, buffer: bytearray | memoryview) -> None:
        buffer[:] = await self.read_exactly(len(buffer))

    async def write(self, buffers: Sequence[ByteView]) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        while len(self._outgoing) + len(data) > self._window:
            if self.is_closing:
                raise ConnectionLost("closed while writing")
            await self._wait()
        if self.is_closing:
            raise ConnectionLost("closed here")
        self._outgoing += data
        self.frames_written += 1
        self._notify()

    async def send_file(self, file: File, position: int, length: int) -> None:
        await self.write([file.pread(length, position)])

    def close(self) -> None:
        self.is_closing = True
        self._notify()

    # The client's side.

    def send(self, data: bytes) -> None:
        self._incoming += data
        self._notify()

    def hang_up(self) -> None:
        self._is_at_end = True
        self._notify()

    @property
    def unread(self) -> int:
        """Bytes the session has not taken yet."""
        return len(self._incoming)

    async def receive(self) -> bytes | None:
        """The next frame without its size; None once the session has closed the connection."""
        while True:
            if len(self._outgoing) >= 4:
                size = int.from_bytes(self._outgoing[:4], "big")
                if len(self._outgoing) >= 4 + size:
                    frame = bytes(self._outgoing[4 : 4 + size])
                    del self._outgoing[: 4 + size]
                    self._notify()
                    return frame
            if self.is_closing:
                return None
            await self._wait()

    async def _wait(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        """Wake everybody who waits, who will look again."""
        self._changed.set()
        self._changed = asyncio.Event()
