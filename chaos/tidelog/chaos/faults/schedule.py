"""Which fault acts when, drawn from a seed. Pure.

Faults follow one another with calm between them, so that every gap in the service has one cause.
Each of the names asked for comes once before any comes again, in a new order each time; of a plan
that counts, each comes as often as was asked for and as soon as the cluster has got over the last.
All that is left to chance is drawn here: the same seed gives the same plan on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tidelog.chaos.faults.table import Family, Fault, named, too_few_nodes

CALM_S: Final = (3.0, 6.0)
_FIRST_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class PlannedFault:
    number: int
    """Counts the faults of a plan from 1."""
    at_s: float
    name: str
    duration_s: float
    draw: int
    """Decides what can be decided only when it acts: which partition's leader, which file."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Whatever the fault's words leave open: ``node``, ``delay_ms``, ``skew_s``, …"""


def schedule(
    seed: int,
    names: Sequence[str],
    duration_s: float,
    nodes: Sequence[int],
    *,
    calm_s: tuple[float, float] = CALM_S,
) -> list[PlannedFault]:
    """What fits into ``duration_s``, with calm before, between and after the faults.

    Raises ``UnknownFault``, and ``ValueError`` where there are too few nodes.
    """
    faults = named(names)
    if problems := too_few_nodes(faults, len(nodes)):
        raise ValueError("; ".join(problems))
    random = Random(seed)
    plan: list[PlannedFault] = []
    at_s = _FIRST_S
    for fault in _in_turn(faults, random):
        lasts_s = _between(random, *fault.lasts_s)
        calm = random.uniform(*calm_s)
        if at_s + lasts_s + calm > duration_s:
            return plan
        parameters = _parameters(fault, random, nodes)
        draw = random.getrandbits(31)
        plan.append(PlannedFault(len(plan) + 1, at_s, fault.name, lasts_s, draw, parameters))
        at_s = round(at_s + lasts_s + calm, 3)
    return plan


def counted_schedule(
    seed: int, counts: Mapping[str, int], nodes: Sequence[int]
) -> list[PlannedFault]:
    """So many of each, in a drawn order; each is due at once, when the last one is got over.

    Raises ``UnknownFault``, and ``ValueError`` where there are too few nodes.
    """
    faults = {name: fault for name in counts for fault in named([name])}
    if problems := too_few_nodes(list(faults.values()), len(nodes)):
        raise ValueError("; ".join(problems))
    random = Random(seed)
    names = [name for name, count in counts.items() for _ in range(count)]
    random.shuffle(names)
    return [
        _drawn(number, 0.0, faults[name], random, nodes) for number, name in enumerate(names, 1)
    ]


def _drawn(
    number: int, at_s: float, fault: Fault, random: Random, nodes: Sequence[int]
) -> PlannedFault:
    parameters = _parameters(fault, random, nodes)
    lasts_s = _between(random, *fault.lasts_s)
    return PlannedFault(number, at_s, fault.name, lasts_s, random.getrandbits(31), parameters)


def draw_one(seed: int, name: str, nodes: Sequence[int]) -> PlannedFault:
    """One fault by itself, to be done at once."""
    (fault,) = named([name])
    return _drawn(1, 0.0, fault, Random(seed), nodes)


def _in_turn(faults: Sequence[Fault], random: Random) -> Iterator[Fault]:
    while faults:
        yield from random.sample(faults, len(faults))


def _between(random: Random, low: float, high: float) -> float:
    """Short ones are as likely as long ones, octave for octave."""
    if low <= 0.0 or low == high:
        return low
    return round(math.exp(random.uniform(math.log(low), math.log(high))), 3)


def _parameters(fault: Fault, random: Random, nodes: Sequence[int]) -> dict[str, float]:
    chosen: dict[str, float] = {"node": random.choice(nodes)}
    match fault.name:
        case "delay":
            chosen["delay_ms"] = round(_between(random, 20.0, 400.0))
        case "bandwidth":
            chosen["bytes_per_s"] = round(_between(random, 32.0, 512.0)) * 1024
        case "loss":
            chosen["share"] = round(_between(random, 0.01, 0.2), 3)
        case "disk-slow":
            chosen["sync_ms"] = round(_between(random, 50.0, 500.0))
        case "clock-skew":
            chosen["skew_s"] = random.choice((-1, 1)) * round(_between(random, 1.0, 3600.0))
        case _ if fault.family is Family.CORRUPTION:
            chosen["bytes"] = random.randint(1, 8)
    return chosen
