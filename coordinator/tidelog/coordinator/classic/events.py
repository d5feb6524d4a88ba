"""What happens to a classic group, what it answers, and what it wants done.

Requests carry an id under which they are answered, at once or much later. Whatever is random (the
end of a new member id) or depends on the version of a request comes in with the event.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.records import CoordinatorRecord
from tidelog.kernel.errors import ErrorCode

UNKNOWN_MEMBER: str = ""
"""The member id of somebody who has none yet."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One assignor a member offers, with what it wants that assignor to know."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    request_id: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    fresh_id: str
    """A random uuid, for the member id if a new one is needed."""
    needs_member_id: bool = True
    """From version 4 on a new member first learns its id and then joins with it (KIP-394)."""
    can_skip_assignment: bool = True
    """From version 9 on a leader can be told to leave the assignment as it is (KIP-814)."""


@dataclass(frozen=True, slots=True)
class SyncGroup:
    request_id: int
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    request_id: int
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leaver:
    """An empty member id with an instance id is an administrator's removal (KIP-345)."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    request_id: int
    members: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class AppendFinished:
    """An ``Append`` is replicated, or failed with the error of the partition."""

    write_id: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The group's ``next_deadline_ms`` may be reached."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The group is deleted, or another broker coordinates it; whoever waits is told ``error``."""

    error: ErrorCode


Event = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | AppendFinished | TimePassed | Closed


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One line of the list that only the leader receives."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeftMember:
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


Result = JoinResult | SyncResult | HeartbeatResult | LeaveResult


@dataclass(frozen=True, slots=True)
class Respond:
    request_id: int
    result: Result


@dataclass(frozen=True, slots=True)
class Append:
    """Write these to the group's partition with acks=all, then say ``AppendFinished``.

    What depends on the records is answered only then.
    """

    group_id: str
    write_id: int
    records: tuple[CoordinatorRecord, ...]


Effect = Respond | Append
