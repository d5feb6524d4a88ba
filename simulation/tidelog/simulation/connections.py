"""A connection between two processes: what it carries, and how each side learns that it broke.

Theory: each side of a TCP connection has an opinion of its own. A side is *over* when its process
ended it or was told so. The other side learns of that by a reset, which the host of the first
sends as soon as something can pass that way: also when the process was killed, but not when the
host has no power. A side that hears nothing (a cut in either direction, no power, a stopped
process) gives up after the connection time-out, as gRPC's keepalive makes it; a side whose own
process is stopped notices nothing. ``reassess`` is this rule and is called whenever something
changed.

A connection carries any number of exchanges (HTTP/2 streams, or the one byte stream of a client),
which break with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.kernel.addresses import SocketAddress
from tidelog.simulation.links import Broken, Flow, Item, Link, Reset
from tidelog.simulation.processes import SimProcess

NoteArrival: TypeAlias = Callable[[SimProcess, str, Item, int], None]


class End:
    """One end of an exchange: a flow to send into and one to receive from."""

    def __init__(self, outgoing: Flow, incoming: Flow) -> None:
        self.outgoing = outgoing
        self.incoming = incoming
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when this end can neither send nor receive any more."""

    def reset(self, reason: str) -> None:
        """Give the exchange up and tell the other end."""
        self.outgoing.put(Reset(reason))
        self.break_off(reason)

    def break_off(self, reason: str) -> None:
        """This end is over; nobody is told."""
        if not self.over.done():
            self.over.set_result(reason)
            self.outgoing.end_sending(Broken(reason))
            self.incoming.end_receiving(Broken(reason))


@dataclass(slots=True)
class Side:
    """What one process has of a connection."""

    process: SimProcess
    outgoing: Link
    address: SocketAddress
    is_open: bool = True
    is_farewell_sent: bool = False
    """It was closed in order: its last item says so, and no reset is sent."""
    ends: list[End] = field(default_factory=list)
    watchdog: asyncio.TimerHandle | None = None
    is_reset_coming: bool = False


class SimConnection:
    """Made by ``SimNetwork.connect``; the client's side is the one that dialled."""

    def __init__(
        self,
        client: Side,
        server: Side,
        *,
        lane: str,
        timeout_ms: float,
        is_host_up: Callable[[str], bool],
        note_arrival: NoteArrival,
        on_side_over: Callable[[SimConnection, Side, str], None],
    ) -> None:
        self.client = client
        self.server = server
        self.lane = lane
        self.name = f"{client.address}>{server.address}/{lane}"
        self._timeout_ms = timeout_ms
        self._is_host_up = is_host_up
        self._note_arrival = note_arrival
        self._on_side_over = on_side_over
        self._exchanges = 0
        self.on_exchange: Callable[[End], None] | None = None
        """Set by the server when it accepts: takes its end of every exchange."""

    @property
    def is_open(self) -> bool:
        return self.client.is_open and self.server.is_open

    def open_exchange(self, window_bytes: int, label: str) -> End:
        """The client's end. The server has its own at once, but learns from what arrives there."""
        self._exchanges += 1
        name = f"{label}/{self._exchanges}"
        up = self._flow(self.client, self.server, window_bytes, name)
        down = self._flow(self.server, self.client, window_bytes, name)
        client, server = End(up, down), End(down, up)
        for side, end in ((self.client, client), (self.server, server)):
            side.ends = [known for known in side.ends if not known.over.done()]
            if side.is_open:
                side.ends.append(end)
            else:
                end.break_off("the connection is over")
        if self.on_exchange is not None and self.server.is_open:
            self.on_exchange(server)
        return client

    def break_side(self, side: Side, reason: str) -> None:
        """This side is over, with all its exchanges; the other learns of it if it can."""
        if not side.is_open:
            return
        side.is_open = False
        self._calm(side)
        self._on_side_over(self, side, reason)
        for end in side.ends:
            end.break_off(reason)
        self.reassess()

    def lose_unsent(self, side: Side) -> None:
        """The host of this side has no power: it sends nothing again."""
        for end in side.ends:
            end.outgoing.lose_held()

    def close_side(self, side: Side, farewell: Item) -> None:
        """End a side in order: all that was sent arrives, then the farewell."""
        for end in side.ends:
            end.outgoing.put(farewell)
        side.is_farewell_sent = True
        self.break_side(side, "closed here")

    def break_both(self, reason: str) -> None:
        """A reset by something on the way: each side gets one, if it can."""
        for side in (self.client, self.server):
            self.bring_reset(side, reason)

    def bring_reset(self, near: Side, reason: str) -> None:
        """Tell this side that it is over; it hears of it if the way is free by then."""
        if near.is_reset_coming or not near.is_open:
            return
        near.is_reset_coming = True
        way = self._far_from(near).outgoing

        def arrive() -> None:
            near.is_reset_coming = False
            if way.is_passable:
                self.break_side(near, reason)
            else:
                self.reassess()

        way.at(way.arrival_s(40), arrive)

    def reassess(self) -> None:
        for near, far in ((self.client, self.server), (self.server, self.client)):
            if near.is_open:
                self._reassess_side(near, far)

    def _reassess_side(self, near: Side, far: Side) -> None:
        can_be_told = not far.outgoing.is_cut and self._is_host_up(far.process.host)
        if not far.is_open and not far.is_farewell_sent and can_be_told:
            self.bring_reset(near, "reset by the other side")
            return
        is_heard = can_be_told and not near.outgoing.is_cut
        is_answered = is_heard and not far.process.is_paused
        if is_answered or near.process.is_paused:
            self._calm(near)
        elif near.watchdog is None:
            due_s = near.outgoing.now_s() + self._timeout_ms / 1000
            near.watchdog = near.outgoing.at(due_s, lambda: self._give_up(near))

    def _give_up(self, near: Side) -> None:
        near.watchdog = None
        self.break_side(near, f"no answer for {self._timeout_ms:.0f} ms")

    def _calm(self, side: Side) -> None:
        if side.watchdog is not None:
            side.watchdog.cancel()
            side.watchdog = None

    def _far_from(self, side: Side) -> Side:
        return self.server if side is self.client else self.client

    def _flow(self, source: Side, target: Side, window_bytes: int, name: str) -> Flow:
        def on_reset(reason: str) -> None:
            for end in target.ends:
                if end.incoming is flow:
                    end.break_off(reason)
                    return

        def on_arrival(item: Item, size_bytes: int) -> None:
            self._note_arrival(target.process, f"{source.outgoing.name} {name}", item, size_bytes)

        flow = Flow(
            source.outgoing,
            window_bytes,
            on_reset=on_reset,
            on_break=lambda: self.break_both("reset on the way"),
            on_arrival=on_arrival,
        )
        return flow
