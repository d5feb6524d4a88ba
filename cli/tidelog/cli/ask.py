"""One question, one answer: blocking calls to a node, for what the client library lacks.

A connection goes to the first node that answers. It first asks which versions of which APIs that
node serves, so that a call it does not know fails with a sentence instead of a closed connection.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.kernel.addresses import SocketAddress
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import parse_response_header, read_frame_size
from tidelog.wire.protocol.requests import encode_request
from tidelog.wire.protocol.responses import decode_response

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

TIMEOUT_S: Final = 30.0
_CONNECT_S: Final = 5.0
_CLIENT_ID: Final = "tidelog-cli"
_MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024


def parse_bootstrap(text: str) -> list[SocketAddress]:
    """``host:port,host:port``."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    try:
        addresses = [SocketAddress.parse(entry) for entry in entries]
    except ValueError as error:
        raise WrongUse(f"--bootstrap-server: {error}") from None
    if not addresses or any(address.port == 0 for address in addresses):
        raise WrongUse(f"--bootstrap-server: {text!r} names no address of the form host:port")
    return addresses


class Connection:
    """A conversation with one node. Not for several threads."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self.address, self._socket, self._served = self._reach(parse_bootstrap(bootstrap))

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def serves(self, api_key: ApiKey, version: int) -> bool:
        least, most = self._served.get(api_key, (0, -1))
        return least <= version <= most

    def ask(self, request: RequestPayload) -> Any:
        """kio's response to one of kio's requests."""
        api = APIS[request.__api_key__]
        if not self.serves(api.key, request.__version__):
            raise CommandFailed(
                f"the node at {self.address} does not serve {api.name} v{request.__version__}, "
                "which this command needs"
            )
        try:
            return self._exchange(self._socket, request)
        except (OSError, MalformedRequest) as error:
            raise CommandFailed(f"{self.address} gave no answer to {api.name}: {error}") from error

    def _reach(
        self, addresses: list[SocketAddress]
    ) -> tuple[SocketAddress, socket.socket, dict[int, tuple[int, int]]]:
        problems = []
        for address in addresses:
            try:
                return address, *self._greet(address)
            except (OSError, MalformedRequest) as error:
                problems.append(f"{address}: {error}")
        raise CommandFailed(
            f"no node answers ({'; '.join(problems)}). Is a cluster running there? "
            "tidelog up starts one"
        )

    def _greet(self, address: SocketAddress) -> tuple[socket.socket, dict[int, tuple[int, int]]]:
        from kio.schema.api_versions.v0.request import ApiVersionsRequest

        with ExitStack() as unless_greeted:
            connection = unless_greeted.enter_context(
                socket.create_connection((address.host, address.port), _CONNECT_S)
            )
            connection.settimeout(self._timeout_s)
            answer = self._exchange(connection, ApiVersionsRequest())
            unless_greeted.pop_all()
        served = {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
        return connection, served

    def _exchange(self, connection: socket.socket, request: RequestPayload) -> Any:
        self._correlation_id += 1
        api = APIS[request.__api_key__]
        connection.sendall(encode_request(self._correlation_id, _CLIENT_ID, request))
        size = read_frame_size(_receive(connection, 4))
        if not 4 <= size <= _MAX_ANSWER_BYTES:
            raise MalformedRequest(f"an answer of {size} bytes is none of the Kafka protocol")
        frame = _receive(connection, size)
        correlation_id, body = parse_response_header(api, request.__version__, frame)
        if correlation_id != self._correlation_id:
            raise MalformedRequest(f"an answer to question {correlation_id} was not expected")
        return decode_response(api.key, request.__version__, body)


def _receive(connection: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = connection.recv(min(length, 1 << 16))
        if not part:
            raise ConnectionResetError("the node hung up")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
