"""A broker's life as the cluster sees it: a pure machine, from its start to its end.

===========================  ===========================================  ======================
state                        event                                        next state
===========================  ===========================================  ======================
STARTING                     answered: has seen its own registration      RECOVERY
STARTING, RECOVERY           shutdown requested                           SHUTTING_DOWN
RECOVERY                     answered: unfenced                           RUNNING
RUNNING                      shutdown requested                           PENDING_CONTROLLED_…
RUNNING, RECOVERY            registration lost                            STARTING
PENDING_CONTROLLED_SHUTDOWN  answered: may shut down; timed out;          SHUTTING_DOWN
                             registration lost
===========================  ===========================================  ======================

Everything else leaves the state as it is. A broker heartbeats from the first moment, also while it
recovers its logs and has no epoch yet. It asks to be unfenced once its owner says that it is ready.
A running broker that the controller fences stays RUNNING and is unfenced by its next heartbeats.
A broker whose registration is gone (taken off the list by an administrator) registers again as the
same incarnation; it is not an error of the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from tidelog.kernel.ids import BrokerEpoch


class BrokerState(Enum):
    """The numbers are Kafka's, as its metrics show them."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class UnexpectedEvent(Exception):
    """An event that the owner must not hand in now; a defect."""


@dataclass(frozen=True, slots=True)
class Registered:
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class RegistrationLost:
    """The active controller does not know the epoch that this broker spoke with."""


@dataclass(frozen=True, slots=True)
class BecameReady:
    """Logs are recovered and metadata is applied: clients may be served."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """By the active controller, about the current epoch."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    pass


@dataclass(frozen=True, slots=True)
class ShutdownTimedOut:
    """Handing over took too long; the broker goes all the same."""


LifecycleEvent: TypeAlias = (
    Registered
    | RegistrationLost
    | BecameReady
    | HeartbeatAnswered
    | ShutdownRequested
    | ShutdownTimedOut
)


@dataclass(frozen=True, slots=True)
class Register:
    """Register, as the incarnation that this process is."""


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Now, not at the end of the interval."""


@dataclass(frozen=True, slots=True)
class EnterState:
    state: BrokerState


LifecycleEffect: TypeAlias = Register | SendHeartbeat | EnterState


class BrokerLifecycle:
    """`step(event)` returns what is to be done about it."""

    def __init__(self) -> None:
        self.state = BrokerState.STARTING
        self.epoch: BrokerEpoch | None = None
        self.is_fenced = True
        """As the active controller last said."""
        self._is_ready = False

    @property
    def wants_fence(self) -> bool:
        return not self._is_ready or self.state is BrokerState.SHUTTING_DOWN

    @property
    def wants_shut_down(self) -> bool:
        return self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN

    def step(self, event: LifecycleEvent) -> list[LifecycleEffect]:
        match event:
            case Registered(epoch):
                return self._registered(epoch)
            case RegistrationLost():
                return self._registration_lost()
            case BecameReady():
                self._is_ready = True
                return [SendHeartbeat()]
            case HeartbeatAnswered():
                return self._answered(event)
            case ShutdownRequested():
                return self._shutdown_requested()
            case ShutdownTimedOut():
                if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                    return [self._enter(BrokerState.SHUTTING_DOWN)]
                return []
            case _:
                assert_never(event)

    def _registered(self, epoch: BrokerEpoch) -> list[LifecycleEffect]:
        if self.state is BrokerState.SHUTTING_DOWN:
            return []  # the answer came too late to matter
        if self.state is not BrokerState.STARTING:
            raise UnexpectedEvent(f"a broker that is {self.state.name} does not register")
        self.epoch = epoch
        return [SendHeartbeat()]

    def _registration_lost(self) -> list[LifecycleEffect]:
        match self.state:
            case BrokerState.SHUTTING_DOWN:
                return []
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                return [self._enter(BrokerState.SHUTTING_DOWN)]
            case BrokerState.STARTING if self.epoch is None:
                return []  # it is registering already
        self.epoch = None
        self.is_fenced = True
        if self.state is BrokerState.STARTING:
            return [Register()]
        return [self._enter(BrokerState.STARTING), Register()]

    def _answered(self, answer: HeartbeatAnswered) -> list[LifecycleEffect]:
        self.is_fenced = answer.is_fenced
        match self.state:
            case BrokerState.STARTING if answer.is_caught_up and self.epoch is not None:
                return [self._enter(BrokerState.RECOVERY), SendHeartbeat()]
            case BrokerState.RECOVERY if not answer.is_fenced:
                return [self._enter(BrokerState.RUNNING)]
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN if answer.should_shut_down:
                return [self._enter(BrokerState.SHUTTING_DOWN)]
        return []

    def _shutdown_requested(self) -> list[LifecycleEffect]:
        match self.state:
            case BrokerState.STARTING | BrokerState.RECOVERY:
                # It leads nothing, so there is nothing to hand over.
                return [self._enter(BrokerState.SHUTTING_DOWN)]
            case BrokerState.RUNNING:
                return [self._enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN), SendHeartbeat()]
        return []

    def _enter(self, state: BrokerState) -> EnterState:
        self.state = state
        return EnterState(state)
