"""What happens to a group of the consumer protocol, what it answers, and what it wants done.

Members that still speak the classic protocol send the events of ``classic.events`` and get its
answers; writes are its ``Append`` as well, so that the owner of both kinds needs to know only one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.coordinator.classic import events as classic
from tidelog.coordinator.consumer_records import AssignedTopic
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid


def see_all(topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat: None, and −1 as the time-out, mean that nothing changed."""

    request_id: int
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: tuple[tuple[Uuid, tuple[int, ...]], ...] | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""
    """A random uuid, for the member id where the client may leave that to us."""
    has_own_id: bool = True
    """From version 1 on a client makes its member id itself (KIP-1082)."""
    may_see: Callable[[str], bool] = see_all
    """Whether the sender may know of a topic: others do not match its expression."""

    @property
    def is_full(self) -> bool:
        """Says everything, as on joining or after an error: it wants to hear everything too."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    """``assignment`` is None where it is as the member knows it."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[AssignedTopic, ...] | None = None


@dataclass(frozen=True, slots=True)
class RespondConsumer:
    request_id: int
    result: ConsumerHeartbeatResult


@dataclass(frozen=True, slots=True)
class AppendDelayed:
    """An ``Append`` takes too long for whoever waits; it may still be replicated.

    The change stays under way until ``AppendFinished``: the next coordinator may not know of it.
    """

    write_id: int


ClassicRequest = classic.JoinGroup | classic.SyncGroup | classic.Heartbeat | classic.LeaveGroup
Request = ConsumerHeartbeat | ClassicRequest
Event = Request | classic.AppendFinished | AppendDelayed | classic.TimePassed | classic.Closed
Answer = RespondConsumer | classic.Respond
Effect = Answer | classic.Append


def refused(request_id: int, error: ErrorCode, message: str) -> RespondConsumer:
    return RespondConsumer(request_id, ConsumerHeartbeatResult(error, message))


def failed(
    answer: Answer, error: ErrorCode, message: str = "the change could not be written"
) -> Answer:
    """The error in place of an answer whose records are not replicated."""
    match answer:
        case RespondConsumer(request_id):
            return refused(request_id, error, message)
        case classic.Respond(request_id, result):
            return classic.Respond(request_id, _failed_classic(result, error))


def _failed_classic(result: classic.Result, error: ErrorCode) -> classic.Result:
    match result:
        case classic.JoinResult():
            return classic.JoinResult(error, "")
        case classic.SyncResult():
            return classic.SyncResult(error)
        case classic.HeartbeatResult():
            return classic.HeartbeatResult(error)
        case classic.LeaveResult():
            return classic.LeaveResult(error)
