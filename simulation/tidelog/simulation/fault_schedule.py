"""Which faults a run has, and when: drawn from a seed, within what replication promises. Pure.

A schedule that asks for more than the promise covers cannot be made: at most a minority of the
nodes may be lossy in one run. Everything else may strike everybody at once (power loss of all
nodes, when acknowledgements wait for fsync): then the cluster may stop, but not forget.

``str(schedule)`` is for people; ``repr(schedule)`` is code that makes it again. ``shrink`` finds
a small schedule that still fails by leaving faults out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.simulation.faults import (
    LONGEST_STALL_MS,
    BadLinks,
    ClockJump,
    Crash,
    Cut,
    DiskOperation,
    FailedOperation,
    Fault,
    FlippedBit,
    FullDisk,
    Kill,
    Pause,
    PowerLoss,
    SlowDisk,
    StalledDisk,
    Stop,
    Way,
    end_ms,
    lossy_nodes,
)
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.random import SimRandom


class BudgetExceeded(ValueError):
    """A schedule breaks more than replication promises to survive."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Who may be struck, and by how much."""

    nodes: tuple[int, ...]
    controllers: tuple[int, ...] = ()
    """Those of the nodes that are voters of the quorum."""
    is_power_loss_lossy: bool = False
    """Where acknowledgements do not wait for fsync."""

    @property
    def max_lossy(self) -> int:
        """A minority of the nodes, and of the voters if those are fewer."""
        members = min(len(self.nodes), len(self.controllers) or len(self.nodes))
        return (members - 1) // 2

    def check(self, faults: Sequence[Fault]) -> None:
        lossy = lossy_nodes(faults, is_power_loss_lossy=self.is_power_loss_lossy)
        if len(lossy) > self.max_lossy:
            what = f"nodes {list(lossy)} of {list(self.nodes)} may lose data"
            raise BudgetExceeded(f"{what}; replication survives {self.max_lossy} such nodes")


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    budget: Budget
    faults: tuple[Fault, ...] = field(default=())

    def __post_init__(self) -> None:
        self.budget.check(self.faults)

    @property
    def end_ms(self) -> int:
        """When the last fault is over."""
        return max((end_ms(fault) for fault in self.faults), default=0)

    def only(self, faults: Sequence[Fault]) -> FaultSchedule:
        return FaultSchedule(self.budget, tuple(faults))

    def __str__(self) -> str:
        lines = [f"{len(self.faults)} faults on nodes {list(self.budget.nodes)}"]
        for fault in sorted(self.faults, key=lambda one: one.at_ms):
            lines.append(f"  {fault.at_ms:>7} – {end_ms(fault):>7} ms  {fault}")
        return "\n".join(lines)


class _Draw:
    """One drawing: how long things last and whom they strike."""

    def __init__(self, random: SimRandom, budget: Budget, duration_ms: int) -> None:
        self.random = random
        self.budget = budget
        self.duration_ms = duration_ms
        shuffled = list(budget.nodes)
        random.shuffle(shuffled)
        self.lossy = sorted(shuffled[: budget.max_lossy])

    def at_ms(self) -> int:
        return self.random.randrange(0, max(1, self.duration_ms))

    def between(self, low: int, high: int) -> int:
        """Low values more often: most faults are short, a few outlast every time-out."""
        return low + int((high - low) * self.random.random() ** 2)

    def node(self) -> int:
        return self.random.choice(self.budget.nodes)

    def some_nodes(self) -> tuple[int, ...]:
        count = self.random.randrange(1, len(self.budget.nodes) + 1)
        return tuple(sorted(self.random.sample(self.budget.nodes, count)))

    def ways(self) -> tuple[Way, ...]:
        """A shape of a cut: one way, a pair, a node alone, two halves, a ring, the controllers."""
        nodes = self.budget.nodes
        if len(nodes) < 2:
            return ()
        one, other = self.random.sample(nodes, 2)
        inside = self.random.sample(nodes, self.random.randrange(1, len(nodes)))
        rest = [node for node in nodes if node not in inside]
        shapes: list[set[Way]] = [
            {(one, other)},
            {(one, other), (other, one)},
            {(one, far) for far in nodes if far != one},
            _between([one], [far for far in nodes if far != one]),
            _between(inside, rest),
            _ring(nodes),
            _between([one], [voter for voter in self.budget.controllers if voter != one]),
        ]
        return tuple(sorted(self.random.choice([shape for shape in shapes if shape])))


def _between(one: Sequence[int], other: Sequence[int]) -> set[Way]:
    return {way for near in one for far in other for way in ((near, far), (far, near))}


def _ring(nodes: Sequence[int]) -> set[Way]:
    """Each node hears only its neighbours in a circle, so that no two see the same group."""
    count = len(nodes)
    apart = range(2, count - 1)
    pairs = {(nodes[i], nodes[(i + step) % count]) for i in range(count) for step in apart}
    return {way for near, far in pairs for way in ((near, far), (far, near))}


def _kill(draw: _Draw) -> Fault | None:
    return Kill(draw.at_ms(), draw.between(50, 12_000), draw.node())


def _power_loss(draw: _Draw) -> Fault | None:
    if not draw.budget.is_power_loss_lossy:
        return PowerLoss(draw.at_ms(), draw.between(200, 15_000), draw.some_nodes())
    if not draw.lossy:
        return None
    return PowerLoss(draw.at_ms(), draw.between(200, 15_000), (draw.random.choice(draw.lossy),))


def _stop(draw: _Draw) -> Fault | None:
    return Stop(draw.at_ms(), draw.between(1_000, 12_000), draw.node())


def _crash(draw: _Draw) -> Fault | None:
    is_power_loss = draw.random.random() < 0.5
    node = draw.node()
    if is_power_loss and draw.budget.is_power_loss_lossy:
        if not draw.lossy:
            return None
        node = draw.random.choice(draw.lossy)
    nth = draw.between(1, 60)
    return Crash(draw.at_ms(), draw.between(500, 8_000), node, nth, is_power_loss)


def _pause(draw: _Draw) -> Fault | None:
    return Pause(draw.at_ms(), draw.between(20, 20_000), draw.node())


def _cut(draw: _Draw) -> Fault | None:
    ways = draw.ways()
    return Cut(draw.at_ms(), draw.between(50, 20_000), ways) if ways else None


def _bad_links(draw: _Draw) -> Fault | None:
    ways = draw.ways()
    if not ways:
        return None
    share = draw.random.choice((0.0, 0.01, 0.1))
    quality = LinkQuality(
        max_delay_ms=draw.between(1, 1_500),
        spike=draw.random.choice((0.0, 0.05)),
        loss=share,
        reset=draw.random.choice((0.0, 0.0, 0.01, 0.05)),
        duplicate=draw.random.choice((0.0, 0.1)),
        bytes_per_s=draw.random.choice((20_000.0, 1e6, 1e9)),
    )
    return BadLinks(draw.at_ms(), draw.between(500, 20_000), ways, quality)


def _slow_disk(draw: _Draw) -> Fault | None:
    delay_ms = float(draw.between(5, 800))
    return SlowDisk(draw.at_ms(), draw.between(500, 20_000), draw.node(), delay_ms)


def _stalled_disk(draw: _Draw) -> Fault | None:
    node = draw.node()
    longest_ms = 20_000 if node in draw.lossy else LONGEST_STALL_MS
    return StalledDisk(draw.at_ms(), draw.between(100, longest_ms), node)


def _full_disk(draw: _Draw) -> Fault | None:
    free_bytes = draw.between(0, 20_000)
    return FullDisk(draw.at_ms(), draw.between(500, 15_000), draw.node(), free_bytes)


def _failed_operation(draw: _Draw) -> Fault | None:
    if not draw.lossy:
        return None
    operations: tuple[DiskOperation, ...] = ("sync", "sync", "write", "read")
    operation = draw.random.choice(operations)
    times = draw.random.choice((1, 1, 3))
    node = draw.random.choice(draw.lossy)
    return FailedOperation(draw.at_ms(), draw.between(2_000, 15_000), node, operation, times)


def _flipped_bit(draw: _Draw) -> Fault | None:
    if not draw.lossy:
        return None
    where = draw.random.randrange(0, 1 << 32)
    node = draw.random.choice(draw.lossy)
    return FlippedBit(draw.at_ms(), draw.between(500, 5_000), node, where)


def _clock_jump(draw: _Draw) -> Fault | None:
    ahead_ms = draw.between(10, 3_600_000)
    skew_ms = ahead_ms if draw.random.random() < 0.5 else -ahead_ms
    return ClockJump(draw.at_ms(), draw.between(500, 20_000), draw.node(), skew_ms)


_DrawKind: TypeAlias = Callable[[_Draw], Fault | None]
KINDS: Final[dict[str, _DrawKind]] = {
    "kill": _kill,
    "power loss": _power_loss,
    "stop": _stop,
    "crash": _crash,
    "pause": _pause,
    "cut": _cut,
    "bad links": _bad_links,
    "slow disk": _slow_disk,
    "stalled disk": _stalled_disk,
    "full disk": _full_disk,
    "failed operation": _failed_operation,
    "flipped bit": _flipped_bit,
    "clock jump": _clock_jump,
}
"""Every kind of fault by name; a run has a subset of them."""


def draw_schedule(
    random: SimRandom,
    budget: Budget,
    *,
    duration_ms: int,
    kinds: Sequence[str] = tuple(KINDS),
    max_faults: int = 12,
) -> FaultSchedule:
    """Faults that begin within ``duration_ms``: of few kinds, so that each seed is another mix."""
    draw = _Draw(random, budget, duration_ms)
    chosen = [kind for kind in kinds if random.random() < 0.4] or [random.choice(kinds)]
    drawn = [KINDS[random.choice(chosen)](draw) for _ in range(random.randrange(1, max_faults + 1))]
    faults = sorted((fault for fault in drawn if fault is not None), key=lambda one: one.at_ms)
    while True:
        try:
            return FaultSchedule(budget, tuple(faults))
        except BudgetExceeded:  # stalls that come one after the other are as bad as a long one
            stalls = [f for f in faults if isinstance(f, StalledDisk) and f.node not in draw.lossy]
            faults.remove(stalls[-1])


def shrink(schedule: FaultSchedule, fails: Callable[[FaultSchedule], bool]) -> FaultSchedule:
    """A part of the schedule that still fails, from which no single fault can be left out.

    Delta debugging (Zeller, 2002): leave out halves, then quarters, down to single faults.
    ``fails`` must say True for ``schedule`` itself.
    """
    faults = list(schedule.faults)
    pieces = 2
    while len(faults) > 0:
        size = max(1, len(faults) // pieces)
        for start in range(0, len(faults), size):
            rest = faults[:start] + faults[start + size :]
            if fails(schedule.only(rest)):
                faults, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(faults), pieces * 2)
    return schedule.only(faults)
