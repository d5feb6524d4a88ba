"""TCP proxies between nodes, one for every ordered pair, that can cut, slow and reset a link.

A node that dials another is told the proxy's address instead (``peer.dial.overrides``). Its
connections carry bytes both ways, and connections that the other has dialled do so too; so what
may pass is decided by direction, not by connection: all bytes from 1 to 2 go through one gate,
whoever dialled.

A closed gate means silence, as when packets are lost: connections are still accepted, nothing
that was sent arrives, and neither does word that an end has gone. When it opens again, what was
held back is delivered, as by TCP's retransmission. No byte is ever dropped from the middle of a
stream.

Everything of a connection lives on the event loop of one thread; the methods of ``LinkProxies``
may be called from any other and return when they have acted.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

from tidelog.kernel.addresses import SocketAddress

T = TypeVar("T")

_LOOPBACK: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 1 << 16
_LIMITED_CHUNK_BYTES: Final = 4096
_CHUNKS_IN_FLIGHT: Final = 64
_ANSWER_S: Final = 10.0
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class _End(Enum):
    """How the sender of a stream went."""

    CLOSED = "closed"
    RESET = "reset"


@dataclass(slots=True)
class Gate:
    """What every byte of one direction passes."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    free_at_s: float = 0.0
    """When the bytes that were let through so far have left, at this rate."""

    def __post_init__(self) -> None:
        self.opened.set()

    async def wait_for_room(self, size: int) -> None:
        if self.bytes_per_s > 0.0:
            now_s = asyncio.get_running_loop().time()
            self.free_at_s = max(now_s, self.free_at_s) + size / self.bytes_per_s
            await asyncio.sleep(self.free_at_s - now_s)


@dataclass(eq=False, slots=True)
class _Wire:
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.writer.transport.abort()


class LinkProxies:
    """Proxies between the nodes of one cluster; close it at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._gates: dict[tuple[int, int], Gate] = defaultdict(Gate)
        self._connections: dict[tuple[int, int], set[asyncio.Task[None]]] = defaultdict(set)
        self._wires: dict[tuple[int, int], set[_Wire]] = defaultdict(set)
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tidelog-links", daemon=True
        )
        self._thread.start()

    def open(self, source: int, target: int, destination: SocketAddress) -> SocketAddress:
        """Where ``source`` must dial to reach ``target``, which listens at ``destination``."""
        return self._await(self._listen(source, target, destination))

    def cut(self, source: int, target: int) -> None:
        """Nothing that ``source`` sends reaches ``target``, whoever dialled."""
        self._do(lambda: self._gates[source, target].opened.clear())

    def mend(self, source: int, target: int) -> None:
        self._do(lambda: self._gates[source, target].opened.set())

    def slow(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        """Delay and limit what ``source`` sends to ``target``; 0 means no delay, no limit."""

        def act() -> None:
            gate = self._gates[source, target]
            gate.delay_s, gate.bytes_per_s, gate.free_at_s = delay_ms / 1000.0, bytes_per_s, 0.0

        self._do(act)

    def reset(self, source: int, target: int) -> int:
        """Reset the connections that ``source`` has dialled to ``target``; says how many."""

        def act() -> int:
            for wire in self._wires[source, target]:
                wire.reset()
            connections = self._connections[source, target]
            for task in connections:
                task.cancel()
            return len(connections)

        return self._do(act)

    def heal_all(self) -> None:
        def act() -> None:
            for gate in self._gates.values():
                gate.opened.set()
                gate.delay_s = gate.bytes_per_s = 0.0

        self._do(act)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._await(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_ANSWER_S)
            self._loop.close()

    # --- on the loop -------------------------------------------------------------------

    async def _listen(self, source: int, target: int, at: SocketAddress) -> SocketAddress:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections[source, target].add(task)
            try:
                await self._connect((source, target), at, _Wire(reader, writer))
            except asyncio.CancelledError:
                pass  # reset, or the end of it all: streams would log it
            finally:
                self._connections[source, target].discard(task)

        server = await asyncio.start_server(serve, _LOOPBACK, 0, backlog=1024)
        self._servers.append(server)
        return SocketAddress(_LOOPBACK, server.sockets[0].getsockname()[1])

    async def _connect(self, link: tuple[int, int], at: SocketAddress, dialler: _Wire) -> None:
        there, back = self._gates[link], self._gates[link[::-1]]
        wires = self._wires[link]
        wires.add(dialler)
        listener: _Wire | None = None
        try:
            await there.opened.wait()
            try:
                listener = _Wire(*await asyncio.open_connection(at.host, at.port))
            except OSError:
                await back.opened.wait()
                return
            wires.add(listener)
            await asyncio.gather(_carry(dialler, listener, there), _carry(listener, dialler, back))
        finally:
            for wire in (dialler, listener):
                if wire is not None:
                    wires.discard(wire)
                    wire.writer.transport.abort()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for tasks in self._connections.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- from other threads ------------------------------------------------------------

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_S)

    def _do(self, act: Callable[[], T]) -> T:
        async def work() -> T:
            return act()

        return self._await(work())


async def _carry(source: _Wire, target: _Wire, gate: Gate) -> None:
    """Bring what ``source`` sends to ``target``, and word of its end; returns when done."""
    under_way: asyncio.Queue[tuple[float, bytes | _End]] = asyncio.Queue(_CHUNKS_IN_FLIGHT)
    taking = asyncio.create_task(_take(source, under_way, gate))
    try:
        await _deliver(under_way, target, gate)
    except ConnectionError:
        # The target has gone. The source learns that from the other direction, through its gate.
        pass
    finally:
        taking.cancel()


async def _take(
    source: _Wire, under_way: asyncio.Queue[tuple[float, bytes | _End]], gate: Gate
) -> None:
    loop = asyncio.get_running_loop()
    what: bytes | _End = b""
    while not isinstance(what, _End):
        try:
            what = await source.reader.read(_CHUNK_BYTES) or _End.CLOSED
        except OSError:
            what = _End.RESET
        await under_way.put((loop.time() + gate.delay_s, what))


async def _deliver(
    under_way: asyncio.Queue[tuple[float, bytes | _End]], target: _Wire, gate: Gate
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s, what = await under_way.get()
        if due_s > loop.time():
            await asyncio.sleep(due_s - loop.time())
        if isinstance(what, _End):
            await gate.opened.wait()
            _tell_of_end(target, what)
            return
        step = _LIMITED_CHUNK_BYTES if gate.bytes_per_s > 0.0 else len(what)
        for start in range(0, len(what), step):
            piece = what[start : start + step]
            await gate.wait_for_room(len(piece))
            await gate.opened.wait()
            target.writer.write(piece)
            await target.writer.drain()


def _tell_of_end(target: _Wire, end: _End) -> None:
    match end:
        case _End.RESET:
            target.reset()
        case _End.CLOSED:
            with suppress(OSError):  # it may be closed already
                target.writer.write_eof()
