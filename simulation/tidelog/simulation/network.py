"""The network of a simulation: hosts, the processes on them, and the links between them.

Owner: the simulation. Hosts are named: a node's is ``node-1`` (the methods take the number too),
a client's whatever it is called. A host runs one process at a time, which is its incarnation; it
can be killed, stopped, or lose power together with its host. Links are directed, one per pair of
hosts and lane, and are made when they are first used.

Invariants: all draws come from forks of one ``SimRandom``, by link; nothing iterates in an order
that depends on hashing; nothing here runs as part of a process, so a stopped or dead process
holds up nobody's traffic but its own.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final, TypeAlias

from tidelog.kernel.addresses import SocketAddress
from tidelog.simulation.connections import Side, SimConnection
from tidelog.simulation.event_loop import World
from tidelog.simulation.links import Item, Link, LinkQuality
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.trace import Trace

Place: TypeAlias = int | str
"""A node by its number, or any host by its name."""

Accept: TypeAlias = Callable[[SimConnection], None]
"""Called for every new connection, outside of the process; must not wait."""

CLIENT_LANE: Final = "client"
_EVERYWHERE: Final = ("", "0.0.0.0", "::")
_FIRST_FREE_PORT: Final = 20_000
_FIRST_LOCAL_PORT: Final = 40_000


def host_name(place: Place) -> str:
    return f"node-{place}" if isinstance(place, int) else place


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    quality: LinkQuality = field(default_factory=LinkQuality)
    """Of links for which none was set."""
    connection_timeout_ms: float = 8_000.0
    """How long a node hears nothing until it gives a connection up: the keepalive of gRPC."""
    client_timeout_ms: float = 120_000.0
    """The same for a client's connection, which has no keepalive, only TCP's patience."""


@dataclass(slots=True)
class _Host:
    name: str
    is_up: bool = True
    process: SimProcess | None = None
    incarnations: int = 0


@dataclass(frozen=True, slots=True)
class _Listening:
    process: SimProcess
    accept: Accept


class SimNetwork:
    def __init__(
        self,
        world: World,
        *,
        settings: NetworkSettings | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.settings = settings or NetworkSettings()
        self.trace = trace or Trace(world.loop.elapsed_ms)
        self.random = world.random.fork("network")
        self.loop = world.loop
        self._hosts: dict[str, _Host] = {}
        self._links: dict[tuple[str, str, str], Link] = {}
        self._qualities: dict[tuple[str, str, str | None], LinkQuality] = {}
        self._cuts: dict[tuple[str, str, str | None], None] = {}
        self._listening: dict[SocketAddress, _Listening] = {}
        self._hosts_by_address: dict[SocketAddress, str] = {}
        self._connections: dict[SimConnection, None] = {}
        self._next_free_port = _FIRST_FREE_PORT
        self._next_local_port = _FIRST_LOCAL_PORT

    # Processes.

    def boot(self, place: Place) -> SimProcess:
        """Start a process on a host, which gets power if it had none."""
        host = self._host(place)
        if host.process is not None and host.process.is_alive:
            raise RuntimeError(f"{host.process.name} still runs")
        host.incarnations += 1
        host.process = SimProcess(self.loop, host.name, host.incarnations)
        host.is_up = True
        self._note(host.name, "started", incarnation=host.incarnations)
        self._changed()
        return host.process

    def process(self, place: Place) -> SimProcess | None:
        """The one that was started last, dead or alive."""
        return self._host(place).process

    def is_alive(self, place: Place) -> bool:
        process = self.process(place)
        return process is not None and process.is_alive

    async def kill(self, *places: Place) -> None:
        """End processes at one moment; their hosts reset the connections at once (kill −9).

        To be called from outside of them.
        """
        for place in places:
            self.strike(place, is_power_loss=False)
        await self._bury(places)

    async def power_off(self, *places: Place) -> None:
        """End processes and their hosts: the others hear nothing, not even a reset."""
        for place in places:
            self._host(place).is_up = False
        for place in places:
            self.strike(place, is_power_loss=True)
        await self._bury(places)

    def strike(self, place: Place, *, is_power_loss: bool) -> None:
        """From this moment on nothing the process does reaches anybody.

        May be called by the process itself, in the middle of what it does; ``kill`` or
        ``power_off`` must follow.
        """
        if is_power_loss:
            host = self._host(place)
            host.is_up = False
            for connection in self._connections:
                for side in (connection.client, connection.server):
                    if side.process.host == host.name:
                        connection.lose_unsent(side)
        self._end(place, "lost power" if is_power_loss else "killed")

    def pause(self, place: Place) -> None:
        """Stop the process (SIGSTOP): connections stay, nothing is read, written or answered."""
        if (process := self._host(place).process) is not None and process.is_alive:
            process.pause()
            self._note(process.host, "paused")
            self._changed()

    def resume(self, place: Place) -> None:
        if (process := self._host(place).process) is not None and process.is_paused:
            process.resume()
            self._note(process.host, "resumed")
            self._changed()

    # Links.

    def set_quality(
        self, source: Place, target: Place, quality: LinkQuality | None, lane: str | None = None
    ) -> None:
        """For one direction and one lane or all; None takes back what was set."""
        key = (host_name(source), host_name(target), lane)
        if quality is None:
            self._qualities.pop(key, None)
        else:
            self._qualities[key] = quality
        self._note(key[0], "quality", of=f"{key[0]}>{key[1]}", lane=lane, quality=quality)
        self._changed()

    def cut(self, source: Place, target: Place, lane: str | None = None) -> None:
        """Let nothing pass in this one direction; what was sent waits for the heal."""
        key = (host_name(source), host_name(target), lane)
        self._cuts[key] = None
        self._note(key[0], "cut", of=f"{key[0]}>{key[1]}", lane=lane)
        self._changed()

    def mend(self, source: Place, target: Place, lane: str | None = None) -> None:
        """Take a cut of one direction back."""
        key = (host_name(source), host_name(target), lane)
        if key in self._cuts:
            del self._cuts[key]
            self._note(key[0], "mended", of=f"{key[0]}>{key[1]}", lane=lane)
            self._changed()

    def cut_both(self, one: Place, other: Place) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def mend_both(self, one: Place, other: Place) -> None:
        self.mend(one, other)
        self.mend(other, one)

    def partition(self, one: Iterable[Place], other: Iterable[Place]) -> None:
        """Cut every link between two groups, both ways."""
        for near, far in product(tuple(one), tuple(other)):
            self.cut_both(near, far)

    def reset(self, one: Place, other: Place, lane: str | None = None) -> None:
        """Break the connections between two hosts; both may connect again."""
        pair = {host_name(one), host_name(other)}
        self._note(host_name(one), "connections reset", to=host_name(other), lane=lane)
        for connection in list(self._connections):
            hosts = {connection.client.process.host, connection.server.process.host}
            if hosts == pair and lane in (None, connection.lane):
                connection.break_both("reset on the way")

    def heal(self) -> None:
        """Mend every cut, forget every quality that was set, let stopped processes go on."""
        self._cuts.clear()
        self._qualities.clear()
        self._note("", "network healed")
        for host in self._hosts.values():
            if host.process is not None:
                host.process.resume()
        self._changed()

    def link(self, source: str, target: str, lane: str) -> Link:
        key = (source, target, lane)
        if (link := self._links.get(key)) is None:
            name = f"{source}>{target}/{lane}"
            random = self.random.fork(name)
            link = self._links[key] = Link(self.loop, random, self.settings.quality, name)
            self._update(key, link)
        return link

    # Connections.

    def listen(self, process: SimProcess, address: SocketAddress, accept: Accept) -> SocketAddress:
        """Bind; ``OSError`` if the address is taken. Without a host: the host of the process."""
        self._check_alive(process)
        host = process.host if address.host in _EVERYWHERE else address.host
        bound = SocketAddress(host, address.port or self._free_port(host))
        taken = self._listening.get(bound)
        if taken is not None:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {bound}")
        self._listening[bound] = _Listening(process, accept)
        self._hosts_by_address[bound] = process.host
        self._note(process.host, "listens", at=bound)
        return bound

    def stop_listening(self, process: SimProcess, address: SocketAddress) -> None:
        listening = self._listening.get(address)
        if listening is not None and listening.process is process:
            del self._listening[address]

    async def connect(
        self, process: SimProcess, address: SocketAddress, lane: str
    ) -> SimConnection:
        """Dial. ``ConnectionRefusedError`` if nothing listens there; waits while nothing answers.

        A stopped process is connected to all the same: its host accepts for it.
        """
        self._check_alive(process)
        answer: asyncio.Future[SimConnection] = self.loop.create_future()
        target = self._hosts_by_address.get(address, address.host)
        to, back = self.link(process.host, target, lane), self.link(target, process.host, lane)
        made: list[SimConnection] = []

        def arrive() -> None:
            if answer.done() or not process.is_alive:
                return
            listening = self._listening.get(address)
            if listening is not None:
                made.append(self._make(process, listening, address, lane))
            back.carry(lambda: conclude(*made))

        def conclude(connection: SimConnection | None = None) -> None:
            if answer.done():
                return
            if connection is None:
                answer.set_exception(_refused(address))
            else:
                answer.set_result(connection)

        if target in self._hosts:
            to.carry(arrive)
        try:
            return await answer
        except asyncio.CancelledError:
            for connection in made:
                connection.break_side(connection.client, "the dial was given up")
            raise

    def connections_of(self, process: SimProcess) -> list[tuple[SimConnection, Side]]:
        """Those of which this process has a side that is not over."""
        return [
            (connection, side)
            for connection in self._connections
            for side in (connection.client, connection.server)
            if side.process is process and side.is_open
        ]

    def report(self, process: SimProcess, what: str, error: BaseException) -> None:
        """A defect that a real node would only log: it fails the simulation."""
        self._note(process.host, "defect", of=what, error=repr(error))
        message = f"{what} of {process.name} failed"
        error.add_note(message)
        self.loop.call_exception_handler({"message": message, "exception": error})

    # Inside.

    def _make(
        self, process: SimProcess, listening: _Listening, address: SocketAddress, lane: str
    ) -> SimConnection:
        server = listening.process
        self._next_local_port += 1
        local = SocketAddress(process.host, self._next_local_port)
        connection = SimConnection(
            Side(process, self.link(process.host, server.host, lane), local),
            Side(server, self.link(server.host, process.host, lane), address),
            lane=lane,
            timeout_ms=self._timeout_ms(lane),
            is_host_up=self._is_host_up,
            note_arrival=self._note_arrival,
            on_side_over=self._side_is_over,
        )
        self._connections[connection] = None
        self._note(server.host, "connected", by=local, at=address)
        listening.accept(connection)
        connection.reassess()
        return connection

    def _timeout_ms(self, lane: str) -> float:
        settings = self.settings
        is_client = lane == CLIENT_LANE
        return settings.client_timeout_ms if is_client else settings.connection_timeout_ms

    def _end(self, place: Place, how: str) -> None:
        """From here on nothing the process does reaches anybody."""
        process = self._host(place).process
        if process is not None and process.is_alive:
            self._note(process.host, how, incarnation=process.incarnation)
            process.begin_to_die()
            for address in [at for at, it in self._listening.items() if it.process is process]:
                del self._listening[address]
            for connection, side in self.connections_of(process):
                connection.break_side(side, f"its process {how}")
        self._changed()

    async def _bury(self, places: Sequence[Place]) -> None:
        for place in places:
            if (process := self._host(place).process) is not None:
                await process.kill()

    def _side_is_over(self, connection: SimConnection, side: Side, reason: str) -> None:
        self._note(side.process.host, "connection over", to=connection.name, reason=reason)
        if not connection.client.is_open and not connection.server.is_open:
            self._connections.pop(connection, None)

    def _changed(self) -> None:
        """Bring every link and connection up to date with what was set."""
        for key, link in self._links.items():
            self._update(key, link)
        for connection in list(self._connections):
            connection.reassess()

    def _update(self, key: tuple[str, str, str], link: Link) -> None:
        source, target, _ = key
        every_lane = (source, target, None)
        set_for_all = self._qualities.get(every_lane, self.settings.quality)
        link.quality = self._qualities.get(key, set_for_all)
        is_cut = key in self._cuts or every_lane in self._cuts
        link.set_state(is_cut=is_cut, is_target_up=self._is_host_up(target))

    def _host(self, place: Place) -> _Host:
        name = host_name(place)
        if (host := self._hosts.get(name)) is None:
            host = self._hosts[name] = _Host(name)
        return host

    def _is_host_up(self, name: str) -> bool:
        return name in self._hosts and self._hosts[name].is_up

    def _free_port(self, host: str) -> int:
        while SocketAddress(host, self._next_free_port) in self._listening:
            self._next_free_port += 1
        self._next_free_port += 1
        return self._next_free_port - 1

    def _check_alive(self, process: SimProcess) -> None:
        if not process.is_alive:
            raise OSError(errno.ENETDOWN, f"{process.name} is dead")

    def _note_arrival(self, at: SimProcess, way: str, item: Item, size_bytes: int) -> None:
        content = f"{size_bytes} bytes" if isinstance(item, bytes) else item
        self._note(at.host, "arrived", on=way, item=content)

    def _note(self, place: str, what: str, **details: object) -> None:
        self.trace.note(place, what, **details)


def _refused(address: SocketAddress) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens at {address}")
