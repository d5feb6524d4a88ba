"""From the name of a target to the target: what a run or a list has to start or to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.chaos.faults.table import COMPOSE, LOCAL, NETNS, Family, Fault
from tidelog.chaos.run_given import GivenCluster
from tidelog.chaos.targets.base import Target, TargetError

OWN_TARGETS: Final = (LOCAL, NETNS, COMPOSE)
"""Those that a run starts; any other name is an address."""
CONFIGURED: Final = (LOCAL, NETNS)
"""Those whose nodes get their settings from the run."""
_NEED_RIGGED_NODES: Final = frozenset({Family.DISK, Family.CLOCK, Family.POWER})


def needs_rigged_nodes(faults: Sequence[Fault]) -> bool:
    """Disks that note what is synced cost a little, so nodes have them only where needed."""
    return any(fault.family in _NEED_RIGGED_NODES for fault in faults)


def make_target(
    name: str,
    nodes: int,
    settings: Mapping[str, str],
    *,
    is_rigged: bool = False,
    unsafe_switches: Sequence[str] = (),
    compose_file: Path | None = None,
) -> Target:
    """``local``, ``netns``, ``compose``, or the address of a cluster; raises TargetError.

    Nothing is started. What is not started after all is for ``discard``.
    """
    if name == LOCAL:
        from tidelog.chaos.targets.local import LocalTarget

        return LocalTarget(
            nodes, settings=settings, is_rigged=is_rigged, unsafe_switches=unsafe_switches
        )
    if name == NETNS:
        from tidelog.chaos.targets.netns import NetnsTarget

        return NetnsTarget(
            nodes, settings=settings, is_rigged=is_rigged, unsafe_switches=unsafe_switches
        )
    if settings or unsafe_switches:
        names = ", ".join([*settings, *unsafe_switches])
        raise TargetError(
            f"target {name} takes no settings ({names}): "
            "only nodes of local and netns are configured by the run"
        )
    if name == COMPOSE:
        from tidelog.chaos.targets.compose import ComposeTarget

        return ComposeTarget() if compose_file is None else ComposeTarget(compose_file)
    return GivenCluster(name)


def discard(target: Target) -> None:
    """For a target that was made and never started: a compose project may be somebody's."""
    if target.name != COMPOSE:
        target.stop()
