"""The door to the other nodes: typed calls and streams of protobuf messages.

The seam lies above gRPC. ``tidelog.kernel.real.peers`` puts gRPC underneath, the simulation a
network that is driven by a seed; both carry encoded messages, so that nothing reaches another
node that its contract cannot express.

What callers can rely on, and no more:

- A call that fails may have been carried out all the same; only an answer proves anything.
- A stream delivers in order and without gaps until it ends. How it ended (the peer closed it,
  died, or the network broke) is not known to the other side: a protocol that needs to know says
  so in a message. What was sent but not answered may or may not have arrived.
- Failing is quick and waiting is bounded: a peer that is not there, or does not read, costs the
  caller its own call and nobody else anything. Re-dialling is paced underneath, so a loop that
  opens a stream again after each failure needs no back-off of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, Self, TypeVar, cast

from google.protobuf.descriptor import Descriptor

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import IncarnationId, NodeId

MAX_MESSAGE_BYTES = 8 * 1024 * 1024 + 64 * 1024
"""The largest encoded message: a metadata batch of 8 MiB and what is wrapped around it."""


class PeerMessage(Protocol):
    """What passes between nodes: generated from the contracts, or a class that encodes alike."""

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, data: bytes, /) -> Self:
        """``DecodeError`` of protobuf if these bytes are no such message."""
        ...


Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)
Sent = TypeVar("Sent", bound=PeerMessage, contravariant=True)
Received = TypeVar("Received", bound=PeerMessage, covariant=True)


def _contract_of(kind: type[PeerMessage]) -> Descriptor:
    """Generated classes have it, and so has whatever stands in for one."""
    return cast(Descriptor, vars(kind)["DESCRIPTOR"])


class PeerError(Exception):
    """Another node did not do what was asked; the fault lies there or on the way."""


class PeerUnavailable(PeerError):
    """The node has no known address, cannot be reached, or was lost before it answered."""


class PeerDeadlineExceeded(PeerError):
    """No answer in time."""


class StreamReset(PeerError):
    """The stream is over. It carries nothing more, in either direction."""


class PeerRefused(PeerError):
    """The node was reached and said no.

    A handler raises this to refuse a call or a stream as a whole; the caller gets it with the
    same ``reason``, the name of a Kafka error code.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class MessageTooLarge(ValueError):
    """Our own message exceeds ``MAX_MESSAGE_BYTES``. Senders cut their data; this is a defect."""


class Lane(Enum):
    """Which connection to a node a method uses; each lane is a connection of its own.

    Bulk data never delays a heartbeat or a vote that way.
    """

    CONTROL = "control"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class _Method(Generic[Request, Response]):
    path: str
    request: type[Request]
    response: type[Response]
    lane: Lane = Lane.CONTROL

    def __post_init__(self) -> None:
        name = self.path.removeprefix("/").replace("/", ".")
        request, response = _contract_of(self.request), _contract_of(self.response)
        try:
            contract = request.file.pool.FindMethodByName(name)
        except KeyError as error:
            raise ValueError(f"{self.path} is in no contract") from error
        told = (request.full_name, response.full_name)
        agreed = (contract.input_type.full_name, contract.output_type.full_name)
        if told != agreed:
            raise ValueError(f"{self.path} takes and gives {agreed}, not {told}")
        if contract.server_streaming is not self._is_stream():
            raise ValueError(f"{self.path} is {'' if contract.server_streaming else 'no '}stream")

    def _is_stream(self) -> bool:
        return isinstance(self, Stream)

    def __str__(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Unary(_Method[Request, Response]):
    """One question, one answer: ``Unary("/tidelog.v1.Controller/Forward", Req, Resp)``."""

    __str__ = _Method.__str__


@dataclass(frozen=True, slots=True)
class Stream(_Method[Request, Response]):
    """Messages in both directions for as long as both sides want.

    Also for a method whose contract has a stream of answers only; the caller then sends one
    message.
    """

    __str__ = _Method.__str__


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Who a node is: sent with every call and stream, and checked by the node that is called."""

    node_id: NodeId
    cluster_id: str
    incarnation_id: IncarnationId


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a handler knows about a call besides the message."""

    caller: PeerIdentity
    remote_address: str


class PeerStream(Protocol[Sent, Received]):
    """One end of a stream. Any number of tasks may send; one at a time may receive.

    Cancelling a ``send`` or ``receive`` leaves the stream as it was.
    """

    async def send(self, message: Sent) -> None:
        """Queue a message; wait while too much is queued because the peer reads slowly.

        ``StreamReset`` if the stream is over, also when a peer that reads nothing at all has
        kept us waiting for so long that the stream is given up.
        """
        ...

    def offer(self, message: Sent) -> bool:
        """Queue a message if there is room for it and the stream is alive; never wait."""
        ...

    async def receive(self) -> Received:
        """The next message.

        ``StreamReset`` when the stream is over and all that had arrived was received. On the
        side that opened it also ``PeerUnavailable`` or ``PeerRefused`` if it never came about.
        """
        ...

    def close(self) -> None:
        """Receive nothing more; end the stream when what is queued has been sent."""
        ...


class Peers(Protocol):
    """The other nodes as one node sees them."""

    async def call(
        self,
        node: NodeId,
        method: Unary[Request, Response],
        request: Request,
        *,
        timeout_ms: float,
    ) -> Response:
        """Ask and wait for the answer, or raise a ``PeerError``."""
        ...

    def open_stream(
        self, node: NodeId, method: Stream[Request, Response]
    ) -> PeerStream[Request, Response]:
        """Begin to dial; the outcome shows at the first ``receive``."""
        ...


UnaryHandler = Callable[[CallContext, Request], Awaitable[Response]]
"""Answers a call or raises ``PeerRefused``; it is cancelled when the caller has given up."""

StreamHandler = Callable[[CallContext, PeerStream[Response, Request]], Awaitable[None]]
"""Owns its end of a stream until it returns, which ends the stream, or raises ``PeerRefused``.

It is not cancelled when the caller goes: it learns of that by ``StreamReset``, which it may let
pass.
"""


class PeerServer(Protocol):
    """Where the other nodes call. Handlers are registered before ``start``."""

    def on_unary(
        self, method: Unary[Request, Response], handler: UnaryHandler[Request, Response]
    ) -> None: ...

    def on_stream(
        self, method: Stream[Request, Response], handler: StreamHandler[Response, Request]
    ) -> None: ...

    async def start(self, address: SocketAddress) -> SocketAddress:
        """Listen; port 0 takes a free one. The address that was bound; ``OSError`` if taken."""
        ...

    async def close(self) -> None:
        """End every stream and call, and return when no handler runs any more."""
        ...
