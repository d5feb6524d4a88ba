"""What a run is asked to do, and whether it can be done here, said before anything is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.chaos.faults.schedule import CALM_S
from tidelog.chaos.faults.table import FAULTS, Fault, UnknownFault, named, too_few_nodes
from tidelog.chaos.targets.base import Target
from tidelog.chaos.workloads.all_workloads import WORKLOADS


class RunRefused(Exception):
    """What was asked for cannot be done; nothing was done. The text says all that is wrong."""


class RunFailed(Exception):
    """The run could not go on; what it knew until then is in its history."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    workload: str
    faults: tuple[str, ...]
    """Names of faults and of families of faults; none: only the workload."""
    duration_s: float
    """How long things are broken; with ``counts``, at most."""
    seed: int
    rate: float = 2_000.0
    topic_prefix: str = ""
    removes_topics: bool = False
    """Whether the topics go when the run ends: on a cluster that stays."""
    has_new_groups: bool = True
    """Whether the cluster knows the group protocol of KIP-848."""
    calm_s: tuple[float, float] = CALM_S
    """Between two faults."""
    command: str = ""
    """What repeats the run."""
    counts: tuple[tuple[str, int], ...] = ()
    """How often each fault is to be done, one after another without calm; none: whatever of
    ``faults`` finds time."""


def check_options(options: RunOptions, target: Target) -> list[Fault]:
    """The faults meant; raises RunRefused, naming everything that stands in the way."""
    faults = check_names(options)
    problems = too_few_nodes(faults, len(target.nodes))
    reasons: dict[str, list[str]] = {}
    for fault in faults:
        reason = None if too_few_nodes([fault], len(target.nodes)) else target.cannot(fault.name)
        if reason is not None:
            reasons.setdefault(reason, []).append(fault.name)
    for reason, names in reasons.items():
        is_named = len(names) == 1 and names[0] in reason
        problems.append(reason if is_named else f"{', '.join(names)}: {reason}")
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise RunRefused(f"on target {target.name} this cannot be done:\n{lines}")
    return faults


def check_names(options: RunOptions) -> list[Fault]:
    """What can be said without a target."""
    if options.workload not in WORKLOADS:
        names = ", ".join(WORKLOADS)
        raise RunRefused(f"there is no workload {options.workload!r}; there are {names}")
    if not options.rate > 0:
        raise RunRefused(f"a rate of {options.rate:g} records per second is none; it must be > 0")
    if not options.duration_s > 0:
        raise RunRefused(f"a run cannot last {options.duration_s:g} s; it must be > 0")
    try:
        return named(options.faults)
    except UnknownFault as error:
        raise RunRefused(str(error)) from None


def parse_counts(text: str) -> tuple[tuple[str, int], ...]:
    """``kill-leader=300,cut=100``; raises RunRefused."""
    counts: dict[str, int] = {}
    for part in split_names(text):
        name, _, number = part.partition("=")
        name, number = name.strip(), number.strip()
        if not number.isdecimal() or int(number) == 0:
            raise RunRefused(f"{part!r} is no count of a fault; write it as kill-leader=300")
        if name not in FAULTS:
            raise RunRefused(f"there is no fault {name!r} to count; there are {', '.join(FAULTS)}")
        if name in counts:
            raise RunRefused(f"{name} is counted twice")
        counts[name] = int(number)
    if not counts:
        raise RunRefused("no fault is counted; write it as kill-leader=300,cut=100")
    return tuple(counts.items())


def split_names(text: str) -> Sequence[str]:
    """``a,b`` as people write it."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
