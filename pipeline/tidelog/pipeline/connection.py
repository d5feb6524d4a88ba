"""A conversation with one broker over a blocking socket, one question after the other.

A question may be sent and its answer received later, so that the broker works while this side
decodes. Any failure makes the connection useless: it is closed, and whoever owns it makes another.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tidelog.kernel.addresses import SocketAddress
from tidelog.pipeline.errors import BrokerRefused
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import frame_request, parse_response_header, read_frame_size
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

NO_ANSWER: Final = (OSError, MalformedRequest)
"""What every call here may raise: the other side is gone, or speaks something else."""

_MAX_ANSWER_BYTES: Final = 1024 * 1024 * 1024


class Connection:
    """Not for several threads."""

    def __init__(self, address: SocketAddress, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._awaited: list[tuple[int, ApiKey, int]] = []
        self._socket = socket.create_connection((address.host, address.port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._served = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: RequestPayload) -> Any:
        """kio's response to one of kio's requests."""
        key = ApiKey(request.__api_key__)
        self.require(key, request.__version__)
        self.send(key, request.__version__, kio_bytes(request))
        return decode_response(key, request.__version__, self.receive())

    def require(self, key: ApiKey, version: int) -> None:
        least, most = self._served.get(key, (0, -1))
        if not least <= version <= most:
            raise BrokerRefused(
                f"the broker at {self.address} does not serve {APIS[key].name} v{version}"
            )

    def send(self, key: ApiKey, version: int, body: bytes) -> None:
        self._correlation_id += 1
        self._awaited.append((self._correlation_id, key, version))
        frame = frame_request(APIS[key], version, self._correlation_id, self._client_id, body)
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """The body of the answer to the oldest question that has none yet."""
        expected, key, version = self._awaited.pop(0)
        size = read_frame_size(self._read(4))
        if not 4 <= size <= _MAX_ANSWER_BYTES:
            raise MalformedRequest(f"an answer of {size} bytes is none of the Kafka protocol")
        correlation_id, body = parse_response_header(APIS[key], version, self._read(size))
        if correlation_id != expected:
            raise MalformedRequest(f"an answer to question {correlation_id}, not to {expected}")
        return body

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        self.send(ApiKey.API_VERSIONS, 0, b"")
        answer: Any = decode_response(ApiKey.API_VERSIONS, 0, self.receive())
        return {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}

    def _read(self, length: int) -> memoryview:
        """The bytes lie in memory that belongs to nobody else, so views of it may be kept.

        numpy gives memory that nobody has cleared first.
        """
        data = np.empty(length, np.uint8).data
        done = 0
        while done < length:
            count = self._socket.recv_into(data[done:])
            if not count:
                raise ConnectionResetError(f"{self.address} hung up")
            done += count
        return data
