"""The faults a schedule may hold, and what they mean for the world while they last. Pure.

A fault begins at ``at_ms`` and is over ``for_ms`` later; each stands for itself, so any of them
can be left out. Some strike when they begin (a kill, a flipped bit), some are a condition that
lasts (a cut, a slow disk), some are both. ``conditions`` folds those that are under way into one
state of the world: where two overlap, a node is up again, or a link passable, when the last is
over.

Lossy is what takes from a disk something that was synced, or lies about having synced it, or makes
its node distrust it: a disk that hangs for longer than ``log.flush.stall.timeout.ms`` is treated
like one that failed. That is what replication can survive on a minority of nodes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, assert_never

from tidelog.simulation.links import LinkQuality

Way: TypeAlias = tuple[int, int]
"""From one node to another, in this direction only."""

DiskOperation: TypeAlias = Literal["read", "write", "sync"]


LONGEST_STALL_MS: Final = 8_000
"""A disk may hang for so long without being given up, with room for what waits behind it."""

_STALL_APART_MS: Final = 3_000
"""Stalls that follow sooner count as one: what the first held up is not done by then."""


@dataclass(frozen=True, slots=True)
class Kill:
    """kill −9; the node is started again when the fault is over."""

    at_ms: int
    for_ms: int
    node: int


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """Nodes lose power at one moment, and have it again when the fault is over."""

    at_ms: int
    for_ms: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM; the node ends in good order, and is started again when the fault is over."""

    at_ms: int
    for_ms: int
    node: int


@dataclass(frozen=True, slots=True)
class Crash:
    """The node dies before its ``nth`` change to its disk from now on, or not at all.

    Other faults strike between two events; this one in the middle of what the node does.
    """

    at_ms: int
    for_ms: int
    node: int
    nth: int
    is_power_loss: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """SIGSTOP, then SIGCONT."""

    at_ms: int
    for_ms: int
    node: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing passes these ways."""

    at_ms: int
    for_ms: int
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class BadLinks:
    """These ways are slow, or lose, or break connections."""

    at_ms: int
    for_ms: int
    ways: tuple[Way, ...]
    quality: LinkQuality


@dataclass(frozen=True, slots=True)
class SlowDisk:
    at_ms: int
    for_ms: int
    node: int
    step_delay_ms: float


@dataclass(frozen=True, slots=True)
class StalledDisk:
    """Offloaded work makes no step; what was asked to be synced stays unsynced."""

    at_ms: int
    for_ms: int
    node: int


@dataclass(frozen=True, slots=True)
class FullDisk:
    at_ms: int
    for_ms: int
    node: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class FailedOperation:
    """The next operations of one kind fail with EIO. A failed sync loses what it was to keep."""

    at_ms: int
    for_ms: int
    node: int
    operation: DiskOperation
    times: int


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """Somewhere in a file of the node; ``draw`` decides where."""

    at_ms: int
    for_ms: int
    node: int
    draw: int


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The node's calendar is off by so much; it jumps back when the fault is over."""

    at_ms: int
    for_ms: int
    node: int
    skew_ms: int


Fault: TypeAlias = (
    Kill
    | PowerLoss
    | Stop
    | Crash
    | Pause
    | Cut
    | BadLinks
    | SlowDisk
    | StalledDisk
    | FullDisk
    | FailedOperation
    | FlippedBit
    | ClockJump
)


def end_ms(fault: Fault) -> int:
    return fault.at_ms + fault.for_ms


def nodes_of(fault: Fault) -> tuple[int, ...]:
    """The nodes a fault names, in order."""
    match fault:
        case PowerLoss(nodes=nodes):
            return tuple(sorted(nodes))
        case Cut(ways=ways) | BadLinks(ways=ways):
            return tuple(sorted({node for way in ways for node in way}))
        case _:
            return (fault.node,)


def lossy_nodes(faults: Iterable[Fault], *, is_power_loss_lossy: bool) -> tuple[int, ...]:
    """The nodes whose disks may lose something synced at any time of the run.

    For the whole run, because damage lasts until somebody notices it. Without a sync before an
    acknowledgement (``flush.policy=page-cache``), power loss is lossy too.
    """
    found: set[int] = set()
    stalled_until_ms: dict[int, tuple[int, int]] = {}
    for fault in sorted(faults, key=lambda one: one.at_ms):
        match fault:
            case StalledDisk():
                begin_ms, until_ms = stalled_until_ms.get(fault.node, (fault.at_ms, fault.at_ms))
                if fault.at_ms > until_ms + _STALL_APART_MS:
                    begin_ms = fault.at_ms
                until_ms = max(until_ms, end_ms(fault))
                stalled_until_ms[fault.node] = (begin_ms, until_ms)
                if until_ms - begin_ms > LONGEST_STALL_MS:
                    found.add(fault.node)
            case FailedOperation() | FlippedBit():
                found.add(fault.node)
            case PowerLoss() if is_power_loss_lossy:
                found.update(fault.nodes)
            case Crash(is_power_loss=True) if is_power_loss_lossy:
                found.add(fault.node)
            case _:
                pass
    return tuple(sorted(found))


@dataclass(slots=True)
class Conditions:
    """What holds while some faults last. What a mapping does not name is sound."""

    down: set[int] = field(default_factory=set)
    """Nodes that are, or may be, down: who starts them waits for the last such fault."""
    paused: set[int] = field(default_factory=set)
    cut: set[Way] = field(default_factory=set)
    quality: dict[Way, LinkQuality] = field(default_factory=dict)
    step_delay_ms: dict[int, float] = field(default_factory=dict)
    stalled: set[int] = field(default_factory=set)
    free_bytes: dict[int, int] = field(default_factory=dict)
    skew_ms: dict[int, int] = field(default_factory=dict)


def conditions(active: Sequence[Fault]) -> Conditions:
    """Of the faults that are under way, in the order in which they began; the last one wins."""
    holds = Conditions()
    for fault in active:
        match fault:
            case Kill() | Stop() | Crash():
                holds.down.add(fault.node)
            case PowerLoss():
                holds.down.update(fault.nodes)
            case Pause():
                holds.paused.add(fault.node)
            case Cut():
                holds.cut.update(fault.ways)
            case BadLinks():
                holds.quality.update(dict.fromkeys(fault.ways, fault.quality))
            case SlowDisk():
                holds.step_delay_ms[fault.node] = fault.step_delay_ms
            case StalledDisk():
                holds.stalled.add(fault.node)
            case FullDisk():
                holds.free_bytes[fault.node] = fault.free_bytes
            case ClockJump():
                holds.skew_ms[fault.node] = fault.skew_ms
            case FailedOperation() | FlippedBit():
                pass  # they strike when they begin
            case _:
                assert_never(fault)
    return holds


class FaultTarget(Protocol):
    """What a simulated cluster lets be done to it. Nodes are named by their numbers."""

    def is_alive(self, node: int) -> bool:
        """False also for a node that has halted by itself."""
        ...

    async def kill(self, node: int) -> None: ...

    def stop(self, node: int) -> None:
        """Ask it to end, and do not wait until it has."""
        ...

    def crash_at(self, node: int, nth: int | None, *, is_power_loss: bool) -> None:
        """Let it die before that change to its disk; None: let it live."""
        ...

    async def power_loss(self, nodes: Sequence[int]) -> None:
        """At one moment. Of a node that is down already, its disk loses power."""
        ...

    async def restart(self, node: int) -> None:
        """Start a node that is down, on the disk it left, and do not wait until it serves.

        Its disk may be stalled, and the faults that come next are not to wait for it.
        """
        ...

    def pause(self, node: int) -> None: ...

    def resume(self, node: int) -> None: ...

    def cut(self, source: int, target: int) -> None: ...

    def mend(self, source: int, target: int) -> None: ...

    def set_quality(self, source: int, target: int, quality: LinkQuality | None) -> None:
        """None: as it was at the start."""
        ...

    def slow_disk(self, node: int, step_delay_ms: float) -> None: ...

    def stall_disk(self, node: int, is_stalled: bool) -> None: ...

    def limit_disk(self, node: int, free_bytes: int | None) -> None:
        """Let so many more bytes fit, or (None) any number."""
        ...

    def fail_disk(self, node: int, operation: DiskOperation, times: int) -> None:
        """Let the next operations of this kind fail with EIO."""
        ...

    def repair_disk(self, node: int) -> None:
        """Forget failures that were ordered and have not happened; nothing else."""
        ...

    def flip_bit(self, node: int, draw: int) -> None:
        """Damage a bit of some file; nothing if there is none."""
        ...

    def set_clock_skew(self, node: int, skew_ms: int) -> None: ...
