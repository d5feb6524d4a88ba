"""From the name of a target to the target: what a run or a list has to start or to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.chaos.faults.table import COMPOSE, LOCAL, NETNS, Family, Fault
from tidelog.chaos.run_given import GivenCluster
from tidelog.chaos.targets.base import Target, TargetError

if TYPE_CHECKING:
    from tidelog.chaos.targets.local import LocalTarget
    from tidelog.chaos.targets.netns import NetnsTarget

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
    data_dir: Path | None = None,
) -> Target:
    """``local``, ``netns``, ``compose``, or the address of a cluster; raises TargetError.

    Nothing is started. What is not started after all is for ``discard``. Data and logs of nodes
    that are configured stay in ``data_dir``, if there is one; else they go with the target.
    """
    if name in CONFIGURED:
        return _processes(name)(
            nodes,
            settings=settings,
            is_rigged=is_rigged,
            unsafe_switches=unsafe_switches,
            data_dir=None if data_dir is None else _empty(data_dir),
            on_line=_ignore if data_dir is None else partial(_keep_line, data_dir),
        )
    if data_dir is not None:
        raise TargetError(f"target {name} keeps its data itself: --data-dir is for local and netns")
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


def _processes(name: str) -> type[LocalTarget | NetnsTarget]:
    if name == LOCAL:
        from tidelog.chaos.targets.local import LocalTarget

        return LocalTarget
    from tidelog.chaos.targets.netns import NetnsTarget

    return NetnsTarget


def _empty(directory: Path) -> Path:
    """Made if need be: topics of an earlier run would be taken for this one's."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        raise TargetError(f"nothing can be kept in {directory}: {error.strerror}") from error
    if not is_empty:
        raise TargetError(f"{directory} is not empty; data is kept in a directory of its own")
    return directory


def _ignore(node_id: int, line: str) -> None:
    pass


def _keep_line(directory: Path, node_id: int, line: str) -> None:
    with (directory / f"node-{node_id}.log").open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")


def discard(target: Target) -> None:
    """For a target that was made and never started: a compose project may be somebody's."""
    if target.name != COMPOSE:
        target.stop()
