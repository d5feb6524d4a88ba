"""What passes between a client's session and the handler of an API.

A handler answers in one of three ways: with a frame, with nothing (Produce with acks=0), or with
something to wait for. Requests of one connection are begun in the order they came and answered
in that order. How much may go on between is the handler's choice: a *pipelined* one does what
must be in order when it is begun, and only waits afterwards, so that the next request of the
connection is begun meanwhile; any other is waited for first.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from tidelog.kernel.addresses import SocketAddress
from tidelog.wire.protocol.apis import Api, ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.requests import DecodedRequest

_NO_BODY: Final = memoryview(b"")

Answer: TypeAlias = ResponseFrame | None
Begun: TypeAlias = ResponseFrame | Awaitable[Answer] | None


class CloseConnection(Exception):
    """The only answer left: hang up. The reason is for the node's log."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who is on the other end of a connection."""

    address: SocketAddress
    listener_name: str
    connection_id: int


@dataclass(frozen=True, slots=True)
class Call:
    """One request with everything a handler may want to know about it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    client: Client
    request: DecodedRequest
    size: int
    body: memoryview = _NO_BODY
    """The request as it came, without its header: for those who pass it on."""


class Handler(Protocol):
    """One API. Registered by its key; what is registered is what is advertised."""

    @property
    def api_key(self) -> ApiKey: ...

    @property
    def is_pipelined(self) -> bool: ...

    def begin(self, call: Call) -> Begun:
        """Do what must be in order; answer, or say what to wait for."""
        ...
