"""A client without a library: raw frames to one broker, and what came of them.

Works against any broker that speaks the Kafka protocol.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from admin_desk import filled

from tidelog.kernel.addresses import SocketAddress
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request, parse_response_header
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response

CLOSED: Final = "connection closed"
SILENT: Final = "no response"
PATIENCE_S: Final = 30.0


class RawConnection:
    """One TCP connection; use as a context manager or ``close`` it."""

    def __init__(self, address: SocketAddress, timeout_s: float = PATIENCE_S) -> None:
        self.address = address
        self.socket = socket.create_connection((address.host, address.port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """False if the other side hung up already."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self, timeout_s: float = PATIENCE_S) -> bytes | str:
        """The next frame without its size, or what happened instead."""
        self.socket.settimeout(timeout_s)
        try:
            prefix = self._read(4)
            return self._read(int.from_bytes(prefix, "big"))
        except TimeoutError:
            return SILENT
        except ConnectionError:
            return CLOSED

    def exchange(self, frame: bytes, timeout_s: float = PATIENCE_S) -> bytes | str:
        return self.receive(timeout_s) if self.send(frame) else CLOSED

    def ask(self, key: ApiKey, version: int, timeout_s: float = PATIENCE_S, **fields: Any) -> Any:
        """Ask with kio's fields; structs below the top are given as dictionaries."""
        self._correlation_id += 1
        request_type: Any = APIS[key].load_request_type(version)
        body = kio_bytes(filled(request_type, fields))
        frame = frame_request(APIS[key], version, self._correlation_id, "raw", body)
        answer = self.exchange(frame, timeout_s)
        if isinstance(answer, str):
            raise ConnectionError(f"{APIS[key].name} v{version} to {self.address}: {answer}")
        correlation_id, view = parse_response_header(APIS[key], version, answer)
        assert correlation_id == self._correlation_id
        return decode_response(key, version, view)

    def _read(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = self.socket.recv(min(length, 1 << 20))
            if not part:
                raise ConnectionResetError("the broker hung up")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
