"""Every fault that a run may ask for, by name: what it does and what it needs. Pure data.

How long a fault lasts is drawn from its row, and ``schedule`` does the drawing; how it acts on a
target stands in ``applying``. What a machine or a target cannot do is asked of the target
(``Target.cannot``) before a run begins; the row says only what no target could do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

LOCAL: Final = "local"
NETNS: Final = "netns"
COMPOSE: Final = "compose"
EVERYWHERE: Final = frozenset({LOCAL, NETNS, COMPOSE})
_OWN_PROCESSES: Final = frozenset({LOCAL, NETNS})


class Family(Enum):
    """A family's name stands for all of its faults wherever faults are named."""

    KILL = "kills"
    TERMINATE = "terminates"
    PAUSE = "pauses"
    RESTART = "restarts"
    CUT = "cuts"
    LINK = "links"
    DISK = "disks"
    CORRUPTION = "corruptions"
    CLOCK = "clocks"
    ADMINISTRATION = "administrations"
    POWER = "powers"


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    family: Family
    doc: str
    lasts_s: tuple[float, float]
    """Between which bounds its duration is drawn; until it is healed."""
    min_nodes: int = 3
    targets: frozenset[str] = EVERYWHERE
    """The kinds of target on which it may be possible at all."""


VICTIMS: Final[Mapping[str, str]] = MappingProxyType({
    "leader": "the leader of a partition",
    "controller": "the active controller",
    "follower": "a follower in a partition's ISR",
    "coordinator": "the coordinator of a group",
    "random": "any node",
    "all": "all nodes",
})  # fmt: skip
"""Whom the faults of processes hit: the end of their name."""

_VERBS: Final = (
    ("kill", Family.KILL, "Kill {} (SIGKILL) and start it again.", (0.3, 4.0)),
    ("terminate", Family.TERMINATE, "Stop {} (SIGTERM) and start it again.", (0.3, 3.0)),
    ("pause", Family.PAUSE, "Stop {} in its tracks (SIGSTOP), then let it go on.", (1.0, 20.0)),
)
_MIN_NODES: Final = {"follower": 2, "random": 1, "all": 1}
CORRUPTIBLE: Final = ("index", "timeindex", "snapshot", "log-tail", "checkpoint")
"""The kinds of file that ``corrupt-…`` harms."""


def _of_processes() -> Iterable[Fault]:
    for verb, family, doc, lasts_s in _VERBS:
        for victim, words in VICTIMS.items():
            yield Fault(
                f"{verb}-{victim}", family, doc.format(words), lasts_s,
                _MIN_NODES.get(victim, 3),
            )  # fmt: skip


def _of_files() -> Iterable[Fault]:
    for kind in CORRUPTIBLE:
        yield Fault(
            f"corrupt-{kind}", Family.CORRUPTION,
            f"Stop one node, flip bytes in a file of it ({kind}), start it again.",
            (0.3, 2.0), 3, _OWN_PROCESSES,
        )  # fmt: skip


_ROWS: Final = (
    *_of_processes(),
    Fault("restart", Family.RESTART, "Stop any node and start it at once.", (0.0, 0.0), 1),
    Fault("rolling-restart", Family.RESTART,
          "Stop and start every node in turn, each when the last is in sync again.", (0.0, 0.0), 2),
    Fault("cut", Family.CUT, "One node and all others cannot reach each other.", (1.0, 12.0)),
    Fault("cut-leader", Family.CUT,
          "The leader of a partition and all others cannot reach each other.", (1.0, 12.0)),
    Fault("cut-one-way", Family.CUT,
          "Nothing that one node sends reaches the others; it hears them.", (1.0, 12.0)),
    Fault("cut-from-controllers", Family.CUT,
          "The leader of a partition and the active controller cannot reach each other; "
          "all others can reach both.", (1.0, 12.0)),
    Fault("ring", Family.CUT,
          "Every node reaches only its two neighbours; of three, each only the next.",
          (1.0, 8.0)),
    Fault("delay", Family.LINK, "What one node sends arrives 20 to 400 ms late.", (3.0, 10.0), 2),
    Fault("bandwidth", Family.LINK, "One node can send 32 to 512 KiB a second to each other node.",
          (3.0, 10.0), 2),
    Fault("reset", Family.LINK, "All connections that one node has opened to others are reset.",
          (0.0, 0.0), 2),
    Fault("loss", Family.LINK, "1 to 20 % of the packets that one node sends are lost.",
          (3.0, 10.0), 2),
    Fault("disk-full", Family.DISK, "One node's disk has no room left.", (2.0, 6.0), 3,
          _OWN_PROCESSES),
    Fault("disk-slow", Family.DISK, "Every sync of one node's disk takes 50 to 500 ms longer.",
          (3.0, 10.0), 2, _OWN_PROCESSES),
    Fault("read-only", Family.DISK, "One node's disk takes no writes.", (2.0, 6.0), 3,
          _OWN_PROCESSES),
    *_of_files(),
    Fault("clock-skew", Family.CLOCK, "One node's calendar is up to an hour fast or slow.",
          (5.0, 15.0), 1, _OWN_PROCESSES),
    Fault("administration", Family.ADMINISTRATION,
          "Create topics, add partitions, alter settings, delete the topics again.", (1.0, 3.0), 1),
    Fault("power-loss", Family.POWER,
          "Kill one node and lose what it had not synced; start it again.", (0.3, 2.0), 1,
          _OWN_PROCESSES),
    Fault("power-loss-all", Family.POWER,
          "Kill all nodes and lose what they had not synced; start them again.", (0.3, 2.0), 1,
          _OWN_PROCESSES),
)  # fmt: skip

FAULTS: Final[Mapping[str, Fault]] = MappingProxyType({fault.name: fault for fault in _ROWS})


class UnknownFault(ValueError):
    """A name that stands for no fault and no family; the text lists those that do."""


def named(names: Iterable[str]) -> list[Fault]:
    """The faults of these names, in the table's order; families and ``all`` stand for theirs."""
    chosen: set[str] = set()
    for name in names:
        found = [f.name for f in FAULTS.values() if name in (f.name, f.family.value, "all")]
        if not found:
            families = ", ".join(family.value for family in Family)
            raise UnknownFault(
                f"there is no fault {name!r}; there are {', '.join(FAULTS)}; "
                f"and these for several: {families}, all"
            )
        chosen.update(found)
    return [fault for fault in FAULTS.values() if fault.name in chosen]


def too_few_nodes(faults: Sequence[Fault], nodes: int) -> list[str]:
    """What cannot be done with this many nodes, in words; empty: all of it can."""
    return [
        f"{fault.name} needs {fault.min_nodes} nodes, and there are {nodes}"
        for fault in faults
        if nodes < fault.min_nodes
    ]
