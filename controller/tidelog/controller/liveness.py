"""Which brokers are alive, judged by a heartbeat stream from every broker to every controller.

Two ways to be lost (DESIGN 2.3):

* the stream was reset and is not back within a short grace: the process died (`kill -9` closes
  its sockets at once, so this is what makes failover fast);
* the stream is open but silent for a whole session: the network is cut, or the process hangs.

Standbys note the same things, so that a controller that becomes active judges by what it saw:
the broker that died together with the previous active controller is lost at once. Only a broker
that this controller never had a stream with gets a full session from then on.

Judging happens only in a tick, and only when the shell says that it has drained the events that
were waiting: a controller that was itself asleep must first hear what was said meanwhile. A tick
that comes late shows how long this process was asleep; everything noted before is moved forward
by that much, so that nobody is fenced for the controller's own stall (hazard 42).

Owner: the controller shell; one instance per controller, active or not. Times are milliseconds
of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from tidelog.kernel.ids import NO_OFFSET, BrokerEpoch, NodeId, Offset


class LossReason(Enum):
    STREAM_RESET = "its stream was reset and did not come back"
    SILENCE = "it was silent for a session"


@dataclass(frozen=True, slots=True)
class StreamOpened:
    broker: NodeId
    stream: int
    """Tells the streams of one broker apart; a later one has a larger number."""


@dataclass(frozen=True, slots=True)
class StreamReset:
    broker: NodeId
    stream: int


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    broker: NodeId
    epoch: BrokerEpoch
    metadata_offset: Offset = NO_OFFSET


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A registration was applied to this controller's image."""

    broker: NodeId
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    broker: NodeId


@dataclass(frozen=True, slots=True)
class BecameActive:
    """This controller has been elected and has applied everything before its term."""


@dataclass(frozen=True, slots=True)
class BecameStandby:
    pass


@dataclass(frozen=True, slots=True)
class Tick:
    due_ms: float
    """When the tick was meant to come."""
    drained: bool
    """Whether all events that were waiting have been handed in before it."""


LivenessEvent: TypeAlias = (
    StreamOpened
    | StreamReset
    | HeartbeatReceived
    | BrokerRegistered
    | BrokerUnregistered
    | BecameActive
    | BecameStandby
    | Tick
)


@dataclass(frozen=True, slots=True)
class BrokerLost:
    """This incarnation of the broker must be fenced."""

    broker: NodeId
    epoch: BrokerEpoch
    reason: LossReason


@dataclass(slots=True)
class _Noted:
    """What this controller knows of a broker."""

    heard_at_ms: float
    epoch: BrokerEpoch = BrokerEpoch(-1)
    is_registered: bool = False
    stream: int | None = None
    """The latest stream; None if there never was one."""
    reset_at_ms: float | None = None
    metadata_offset: Offset = NO_OFFSET
    is_reported_lost: bool = False


class BrokerLiveness:
    """`step(now, event)` returns the brokers that are lost because of the event."""

    def __init__(self, *, grace_ms: float = 300, session_ms: float = 3000) -> None:
        self._grace_ms = grace_ms
        self._session_ms = session_ms
        self._brokers: dict[NodeId, _Noted] = {}
        self._is_active = False

    def step(self, now_ms: float, event: LivenessEvent) -> list[BrokerLost]:
        match event:
            case StreamOpened():
                self._open(now_ms, event)
            case StreamReset(broker, stream):
                noted = self._brokers.get(broker)
                if noted is not None and noted.stream == stream:
                    noted.reset_at_ms = now_ms
            case HeartbeatReceived():
                self._hear(now_ms, event)
            case BrokerRegistered(broker, epoch):
                self._register(now_ms, broker, epoch)
            case BrokerUnregistered(broker):
                self._brokers.pop(broker, None)
            case BecameActive():
                self._become_active(now_ms)
            case BecameStandby():
                self._is_active = False
            case Tick(due_ms, drained):
                self._forgive(now_ms, now_ms - due_ms)
                return self._judge(now_ms) if drained and self._is_active else []
            case _:
                assert_never(event)
        return []

    def next_deadline_ms(self) -> float | None:
        """When the next broker would be lost if nothing more were heard; None if none would."""
        if not self._is_active:
            return None
        deadlines = [
            self._deadline_ms(noted)[0]
            for noted in self._brokers.values()
            if noted.is_registered and not noted.is_reported_lost
        ]
        return min(deadlines, default=None)

    def has_session(self, now_ms: float, broker: NodeId, epoch: BrokerEpoch) -> bool:
        """Whether this incarnation is still connected and talking.

        A reset stream ends the session at once, although the broker is not lost yet: its next
        incarnation may come back sooner than the grace.
        """
        noted = self._brokers.get(broker)
        if noted is None or noted.epoch != epoch or noted.stream is None:
            return False
        is_open = noted.reset_at_ms is None and not noted.is_reported_lost
        return is_open and now_ms - noted.heard_at_ms < self._session_ms

    def lowest_metadata_offset(self, brokers: Iterable[NodeId]) -> Offset | None:
        """The smallest metadata offset that these brokers reported; None if there are none."""
        offsets = [
            noted.metadata_offset if (noted := self._brokers.get(broker)) else NO_OFFSET
            for broker in brokers
        ]
        return min(offsets, default=None)

    def _open(self, now_ms: float, event: StreamOpened) -> None:
        noted = self._brokers.setdefault(event.broker, _Noted(now_ms))
        if noted.stream is None:
            noted.heard_at_ms = now_ms
        if noted.stream is None or event.stream > noted.stream:
            # Being connected is not yet being alive: only heartbeats prolong the session.
            noted.stream, noted.reset_at_ms = event.stream, None

    def _hear(self, now_ms: float, event: HeartbeatReceived) -> None:
        noted = self._brokers.setdefault(event.broker, _Noted(now_ms))
        if event.epoch < noted.epoch:
            return  # an earlier incarnation does not keep its successor alive
        noted.epoch = event.epoch
        noted.heard_at_ms = now_ms
        noted.metadata_offset = event.metadata_offset
        noted.is_reported_lost = False

    def _register(self, now_ms: float, broker: NodeId, epoch: BrokerEpoch) -> None:
        noted = self._brokers.setdefault(broker, _Noted(now_ms))
        noted.is_registered = True
        if epoch > noted.epoch:
            noted.epoch = epoch
            noted.heard_at_ms = now_ms
            noted.metadata_offset = NO_OFFSET
            noted.is_reported_lost = False
            if noted.reset_at_ms is not None:
                # The stream that was reset belonged to the incarnation before this one.
                noted.stream, noted.reset_at_ms = None, None

    def _become_active(self, now_ms: float) -> None:
        self._is_active = True
        for noted in self._brokers.values():
            noted.is_reported_lost = False
            if noted.stream is None:
                noted.heard_at_ms = now_ms

    def _forgive(self, now_ms: float, lateness_ms: float) -> None:
        """Moves everything noted forward by the time this process was asleep."""
        if lateness_ms <= 0:
            return
        for noted in self._brokers.values():
            noted.heard_at_ms = min(now_ms, noted.heard_at_ms + lateness_ms)
            if noted.reset_at_ms is not None:
                noted.reset_at_ms = min(now_ms, noted.reset_at_ms + lateness_ms)

    def _deadline_ms(self, noted: _Noted) -> tuple[float, LossReason]:
        silent = (noted.heard_at_ms + self._session_ms, LossReason.SILENCE)
        if noted.reset_at_ms is None:
            return silent
        reset = (noted.reset_at_ms + self._grace_ms, LossReason.STREAM_RESET)
        return min(silent, reset, key=lambda deadline: deadline[0])

    def _judge(self, now_ms: float) -> list[BrokerLost]:
        lost = []
        for broker in sorted(self._brokers):
            noted = self._brokers[broker]
            if not noted.is_registered or noted.is_reported_lost:
                continue
            deadline_ms, reason = self._deadline_ms(noted)
            if now_ms >= deadline_ms:
                noted.is_reported_lost = True
                lost.append(BrokerLost(broker, noted.epoch, reason))
        return lost
