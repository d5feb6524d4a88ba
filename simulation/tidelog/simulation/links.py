"""The way from one host to another, and what travels on it.

Theory: between nodes and to clients there is TCP. Whatever the network does to packets, one
stream delivers its items in order and without gaps, late if it must, until it breaks. So loss is
a delay (the item is sent again) and sometimes a reset; a cut holds items back, and after the cut
has healed they arrive after one more retransmission. Streams do not order each other.

Owner: the ``SimNetwork``. A ``Link`` has its own draws, so traffic on one never shifts the delays
of another. Everything here runs outside of any process: a stopped sender does not stop what is
already on its way.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.simulation.random import SimRandom

_SAME_MOMENT_S: Final = 1e-9
_NOT_STARTED_S: Final = -math.inf

Item: TypeAlias = object
"""Bytes, or a word of the protocol above; only its size matters here."""


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """How a link treats what it carries; the defaults are a sound local network."""

    min_delay_ms: float = 0.1
    max_delay_ms: float = 1.0
    spike: float = 0.0
    """Of how many items the delay is up to ``spike_ms`` longer."""
    spike_ms: float = 100.0
    loss: float = 0.0
    """How many items have to be sent again, which takes ``resend_ms`` or twice, four times…"""
    resend_ms: float = 200.0
    reset: float = 0.0
    """How many items break the connection they travel on."""
    duplicate: float = 0.0
    """How many unary calls arrive twice."""
    bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.min_delay_ms <= self.max_delay_ms:
            raise ValueError(f"a delay from {self.min_delay_ms} to {self.max_delay_ms} ms")
        for name in ("spike", "loss", "reset", "duplicate"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share of the items, not {getattr(self, name)}")
        if self.bytes_per_s <= 0:
            raise ValueError("a link of no bandwidth is a cut: use cut()")


class Link:
    """One direction between two hosts, for one lane."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: SimRandom,
        quality: LinkQuality,
        name: str,
    ) -> None:
        self.quality = quality
        self.name = name
        self.is_cut = False
        self.is_target_up = True
        self._loop = loop
        self._random = random
        self._context = contextvars.Context()  # of no process
        self._busy_until_s = _NOT_STARTED_S
        self._held: list[Callable[[], None]] = []

    @property
    def is_passable(self) -> bool:
        return not self.is_cut and self.is_target_up

    def now_s(self) -> float:
        return self._loop.time()

    def draws(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    def arrival_s(self, size_bytes: int) -> float:
        """When something sent now arrives."""
        quality, now_s = self.quality, self.now_s()
        if quality.bytes_per_s < math.inf:
            start_s = max(now_s, self._busy_until_s)
            self._busy_until_s = now_s = start_s + size_bytes / quality.bytes_per_s
        delay_ms = self._between(quality.min_delay_ms, quality.max_delay_ms)
        if self.draws(quality.spike):
            delay_ms += self._between(0, quality.spike_ms)
        resend_ms = quality.resend_ms
        while self.draws(quality.loss):
            delay_ms += resend_ms
            resend_ms *= 2
        return now_s + delay_ms / 1000

    def carry(self, arrive: Callable[[], None], size_bytes: int = 64) -> None:
        """Have ``arrive`` called at the other side: late if the link is cut, but once."""
        self.at(self.arrival_s(size_bytes), lambda: self._pass_or_hold(arrive))

    def at(self, due_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(due_s, callback, context=self._context)

    def hold(self, arrive: Callable[[], None]) -> None:
        """Keep this until the link is passable again; the sender's host will send it again."""
        self._held.append(arrive)

    def set_state(self, *, is_cut: bool, is_target_up: bool) -> None:
        self.is_cut, self.is_target_up = is_cut, is_target_up
        if self.is_passable:
            held, self._held = self._held, []
            for arrive in held:
                delay_ms = self._between(0, self.quality.resend_ms)
                self.at(self.now_s() + delay_ms / 1000, arrive)

    def _pass_or_hold(self, arrive: Callable[[], None]) -> None:
        if self.is_passable:
            arrive()
        else:
            self.hold(lambda: self._pass_or_hold(arrive))

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()


class Broken(Exception):
    """This end of a flow is over; the reason is for people."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Ends a flow as soon as it arrives, before what arrived earlier was taken."""

    reason: str


class Flow:
    """Items from one end of a stream to the other.

    Invariants: items arrive in the order in which they were put; at most ``window_bytes`` (or a
    single item) are put but not taken, unless ``put`` is called without asking for room.
    """

    def __init__(
        self,
        link: Link,
        window_bytes: int,
        *,
        on_reset: Callable[[str], None],
        on_break: Callable[[], None],
        on_arrival: Callable[[Item, int], None],
    ) -> None:
        self._link = link
        self._window_bytes = window_bytes
        self._on_reset = on_reset
        self._on_break = on_break
        self._on_arrival = on_arrival
        self._on_the_way: deque[tuple[float, Item, int]] = deque()
        self._arrived: deque[tuple[Item, int]] = deque()
        self._untaken_bytes = 0
        self._is_awaited = False  # a timer is set, or the link holds our arrival
        self._sender_end: Broken | None = None
        self._receiver_end: Broken | None = None
        self._takers: deque[asyncio.Future[None]] = deque()
        self._putters: deque[asyncio.Future[None]] = deque()

    # The side that sends.

    @property
    def has_room(self) -> bool:
        return self._untaken_bytes < self._window_bytes

    async def room(self) -> None:
        """Wait until the other side has taken enough; ``Broken`` when this end is over."""
        while self._sender_end is None and not self.has_room:
            await _wait_in(self._putters)
        if self._sender_end is not None:
            raise self._sender_end

    def put(self, item: Item, size_bytes: int = 0) -> None:
        """Send without waiting. An end that is over sends nothing."""
        if self._sender_end is not None or self._receiver_end is not None:
            return
        self._untaken_bytes += size_bytes
        # Whatever is drawn for it, it arrives behind those before it.
        self._on_the_way.append((self._link.arrival_s(size_bytes), item, size_bytes))
        self._await_next()
        if self._link.draws(self._link.quality.reset):
            self._on_break()

    def end_sending(self, reason: Broken) -> None:
        """Nothing more is put; what is on its way still arrives."""
        if self._sender_end is None:
            self._sender_end = reason
            _wake_all(self._putters)

    def lose_held(self) -> None:
        """Forget what a cut holds back; there is nobody left who could send it again."""
        if not self._link.is_passable:
            self._on_the_way.clear()

    @property
    def is_unread(self) -> bool:
        """Whether something arrived that was not taken."""
        return bool(self._arrived)

    @property
    def last_arrived(self) -> Item | None:
        """Of what was not taken yet."""
        return self._arrived[-1][0] if self._arrived else None

    @property
    def has_no_receiver(self) -> bool:
        return self._receiver_end is not None

    # The side that receives.

    async def get(self) -> Item:
        """The next item; ``Broken`` when this end is over, whatever had arrived."""
        while self._receiver_end is None and not self._arrived:
            await _wait_in(self._takers)
        if self._receiver_end is not None:
            raise self._receiver_end
        item, size_bytes = self._arrived.popleft()
        self._untaken_bytes -= size_bytes
        if self.has_room:
            _wake_all(self._putters)
        return item

    def end_receiving(self, reason: Broken) -> None:
        if self._receiver_end is None:
            self._receiver_end = reason
            self._on_the_way.clear()
            self._arrived.clear()
            _wake_all(self._takers)

    # On the way.

    def _await_next(self) -> None:
        if not self._is_awaited and self._on_the_way:
            self._is_awaited = True
            self._link.at(self._on_the_way[0][0], self._arrive)

    def _arrive(self) -> None:
        if not self._link.is_passable:
            self._link.hold(self._arrive_after_all)
            return
        self._is_awaited = False
        now_s = self._link.now_s() + _SAME_MOMENT_S
        while self._on_the_way and self._on_the_way[0][0] <= now_s:
            self._hand_over()
        self._await_next()

    def _arrive_after_all(self) -> None:
        """One at a time: what was held is sent again, and does not come all at one moment."""
        if not self._link.is_passable:
            self._link.hold(self._arrive_after_all)
            return
        self._is_awaited = False
        if self._on_the_way:
            self._hand_over()
        if self._on_the_way:
            self._is_awaited = True
            self._link.at(self._link.arrival_s(0), self._arrive_after_all)

    def _hand_over(self) -> None:
        _, item, size_bytes = self._on_the_way.popleft()
        self._on_arrival(item, size_bytes)
        if isinstance(item, Reset):
            self._on_reset(item.reason)
        else:
            self._arrived.append((item, size_bytes))
            _wake_all(self._takers)


async def _wait_in(line: deque[asyncio.Future[None]]) -> None:
    waiter = asyncio.get_running_loop().create_future()
    line.append(waiter)
    try:
        await waiter
    finally:
        if waiter in line:
            line.remove(waiter)


def _wake_all(line: deque[asyncio.Future[None]]) -> None:
    while line:
        waiter = line.popleft()
        if not waiter.done():
            waiter.set_result(None)
