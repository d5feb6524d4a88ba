"""``Listener`` over the simulated network: clients of a simulation speak real frames to it.

Owner: the node's start-up code for the listener, the simulated client for its ends. A connection
is a pair of ``SimByteStream``, one at each side, with what TCP gives: bytes in order, cut into
other pieces than they were written in; a bounded number of them under way; an end in order
(the other side reads all, then nothing more), a reset, or silence.

A close with unread bytes is a reset, as Linux has it, which may destroy what the other side had
not received yet. An owner that fails with anything but ``ConnectionLost`` fails the simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import (
    Admit,
    BoundListener,
    ConnectionLost,
    FileTooShort,
    OnConnection,
    admit_all,
)
from tidelog.kernel.ports import ByteView, File
from tidelog.simulation.connections import End, Side, SimConnection
from tidelog.simulation.disk_faults import SimulatedCrash
from tidelog.simulation.links import Broken
from tidelog.simulation.network import CLIENT_LANE, SimNetwork
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.random import SimRandom

WINDOW_BYTES: Final = 256 * 1024
"""What fits into the socket buffers of both sides."""

_PIECE_BYTES: Final = 64 * 1024
_CUT_SHARE: Final = 0.3
_CLOSE_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Fin:
    """The other side sends nothing more."""


class SimByteStream:
    """One side of a client's connection: the ``ClientConnection`` of a node, or its client's."""

    def __init__(
        self,
        connection: SimConnection,
        side: Side,
        end: End,
        random: SimRandom,
        listener_name: str,
    ) -> None:
        far = connection.client if side is connection.server else connection.server
        self._connection = connection
        self._side = side
        self._end = end
        self._random = random
        self._peer_address = far.address
        self._listener_name = listener_name
        self._ahead = b""
        self._is_at_end = False
        self._is_closed = False
        self._is_reading = False
        self._is_writing = False

    @property
    def peer_address(self) -> SocketAddress:
        return self._peer_address

    @property
    def listener_name(self) -> str:
        return self._listener_name

    @property
    def is_closing(self) -> bool:
        return self._is_closed

    @property
    def has_hung_up(self) -> bool:
        incoming = self._end.incoming
        has_said_all = self._is_at_end or isinstance(incoming.last_arrived, Fin)
        return self._is_closed or has_said_all or incoming.has_no_receiver

    # Reading.

    async def read(self, at_most: int) -> bytes:
        """What there is, at least a byte; nothing when the other side has said all."""
        if self._is_reading:
            raise RuntimeError("two tasks read one connection at the same time")
        self._is_reading = True
        try:
            while not self._ahead and not self._is_at_end:
                await self._receive()
        finally:
            self._is_reading = False
        taken, self._ahead = self._ahead[:at_most], self._ahead[at_most:]
        return taken

    async def read_exactly(self, length: int) -> bytearray:
        data = bytearray()
        while (missing := length - len(data)) > 0:
            piece = await self.read(missing)
            if not piece:
                raise ConnectionLost(f"{self._peer_address} hung up")
            data += piece
        return data

    async def read_into(self, buffer: bytearray | memoryview) -> None:
        with memoryview(buffer).cast("B") as target:
            filled = 0
            while filled < len(target):
                piece = await self.read_exactly(min(len(target) - filled, _PIECE_BYTES))
                target[filled : filled + len(piece)] = piece
                filled += len(piece)

    async def _receive(self) -> None:
        self._require_open()
        try:
            item = await self._end.incoming.get()
        except Broken as broken:
            raise self._lost(broken) from broken
        if isinstance(item, bytes):
            self._ahead = item
        else:
            self._is_at_end = True

    # Writing.

    async def write(self, buffers: Sequence[ByteView]) -> None:
        with _OneWriter(self):
            for buffer in buffers:
                await self._send(memoryview(buffer).cast("B"))

    async def send_file(self, file: File, position: int, length: int) -> None:
        with _OneWriter(self):
            sent = 0
            while sent < length:
                self._require_open()
                chunk = file.pread(min(length - sent, _PIECE_BYTES), position + sent)
                if not chunk:
                    announced = f"{length} bytes at {position} were announced"
                    what = f"{announced} to {self._peer_address}"
                    raise FileTooShort(f"{what}, but the file ends after {sent} of them")
                await self._send(memoryview(chunk))
                sent += len(chunk)

    def write_eof(self) -> None:
        """Say that nothing more will be sent; reading goes on."""
        self._end.outgoing.put(Fin())

    async def _send(self, data: memoryview) -> None:
        while data:
            self._require_open()
            try:
                await self._end.outgoing.room()
            except Broken as broken:
                raise self._lost(broken) from broken
            size = self._piece_bytes(len(data))
            if self._end.outgoing.has_no_receiver:
                # The other host answers what nobody receives with a reset.
                self._connection.bring_reset(self._side, "reset by the other side")
            self._end.outgoing.put(bytes(data[:size]), size)
            data = data[size:]

    def _piece_bytes(self, left: int) -> int:
        """Pieces end anywhere, so that nobody relies on a frame that comes in one."""
        at_most = min(left, _PIECE_BYTES)
        if at_most > 1 and self._random.random() < _CUT_SHARE:
            return self._random.randrange(1, at_most)
        return at_most

    # The end.

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._ahead or self._end.incoming.is_unread:
            self._connection.break_side(self._side, "closed with unread bytes")
        else:
            self._connection.close_side(self._side, Fin())
        self._end.break_off("closed here")

    def abort(self) -> None:
        """Close with a reset: what is under way may be lost on both sides."""
        self._is_closed = True
        self._connection.break_side(self._side, "aborted")

    def _require_open(self) -> None:
        if self._is_closed:
            raise ConnectionLost(f"the connection of {self._peer_address} is closed")

    def _lost(self, why: Broken) -> ConnectionLost:
        self._require_open()
        self.close()
        return ConnectionLost(f"{self._peer_address}: {why}")


class _OneWriter:
    """Holds the right to write; a write that fails or is cancelled is the last."""

    __slots__ = ("_stream",)

    def __init__(self, stream: SimByteStream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        if self._stream._is_writing:
            raise RuntimeError("two tasks write to one connection at the same time")
        self._stream._is_writing = True

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._stream._is_writing = False
        if error is not None:
            self._stream.close()


class _BoundSim:
    """A listening address and the connections that came by it."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        name: str,
        address: SocketAddress,
        on_connection: OnConnection,
        admit: Admit,
    ) -> None:
        self._network = network
        self._process = process
        self._name = name
        self._on_connection = on_connection
        self._admit = admit
        self._random = network.random.fork(f"listener {name} of {process.name}")
        self._owners: dict[asyncio.Task[None], SimByteStream] = {}
        self._is_accepting = True
        self.address = network.listen(process, address, self._accept)

    def stop_accepting(self) -> None:
        self._is_accepting = False
        self._network.stop_listening(self._process, self.address)

    async def close(self) -> None:
        self.stop_accepting()
        for stream in self._owners.values():
            stream.close()
        owners = list(self._owners)
        if owners:
            _, late = await asyncio.wait(owners, timeout=_CLOSE_GRACE_S)
            for owner in sorted(late, key=hash):
                owner.cancel()
            await asyncio.gather(*owners, return_exceptions=True)

    def _accept(self, connection: SimConnection) -> None:
        connection.on_exchange = lambda end: self._take(connection, end)

    def _take(self, connection: SimConnection, end: End) -> None:
        stream = SimByteStream(connection, connection.server, end, self._random, self._name)
        if not self._is_accepting:
            stream.abort()
            return
        owner = self._process.start(self._own(stream), f"{self._name} {stream.peer_address}")
        self._owners[owner] = stream
        # Called by whoever dials: what is ours must not be held up when he is stopped.
        owner.add_done_callback(self._finished, context=self._process.new_context())

    async def _own(self, stream: SimByteStream) -> None:
        try:
            if self._admit(stream.peer_address):
                await self._on_connection(stream)
        finally:
            stream.close()

    def _finished(self, owner: asyncio.Task[Any]) -> None:
        stream = self._owners.pop(owner)
        stream.close()  # also if the task was cancelled before its first step
        error = None if owner.cancelled() else owner.exception()
        if error is None or isinstance(error, ConnectionLost) or not self._process.is_alive:
            return
        if isinstance(error, SimulatedCrash):
            self._network.trace.note(self._process.host, "crashed", error=error)
        else:
            self._network.report(self._process, f"the connection of {stream.peer_address}", error)


class SimListener:
    """Listens on addresses of the host of ``process``."""

    def __init__(self, network: SimNetwork, process: SimProcess) -> None:
        self._network = network
        self._process = process

    async def serve(
        self,
        name: str,
        host: str,
        port: int,
        on_connection: OnConnection,
        *,
        admit: Admit = admit_all,
    ) -> BoundListener:
        address = SocketAddress(host, port)
        return _BoundSim(self._network, self._process, name, address, on_connection, admit)


async def connect_client(
    network: SimNetwork, process: SimProcess, address: SocketAddress
) -> SimByteStream:
    """A client's side of a new connection.

    ``ConnectionRefusedError`` if nothing listens there, ``OSError`` if this process is dead;
    waits for as long as nothing answers.
    """
    connection = await network.connect(process, address, CLIENT_LANE)
    end = connection.open_exchange(WINDOW_BYTES, "client")
    random = network.random.fork(f"client {connection.client.address}")
    return SimByteStream(connection, connection.client, end, random, "")
