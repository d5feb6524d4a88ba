"""What a cluster must let be done to it, whatever it runs on.

Every method acts at once and blocks until it has acted; a fault is healed by the method that is
named for that, and ``heal_all`` undoes whatever is still in force. Node ids are those of the
cluster. What a target cannot do on this machine is said by ``cannot`` before a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tidelog.kernel.real.rigging import SOUND, Rigging

__all__ = ["SOUND", "Rigging", "Target", "TargetDown", "TargetError"]


class TargetError(Exception):
    """The target is not up, or could not be broken or healed as asked; the text says why."""


class TargetDown(TargetError):
    """It could be loaded or broken if only it were up."""


class Target(Protocol):
    name: str
    """``local``, ``netns`` or ``compose``."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def nodes(self) -> Sequence[int]:
        """The ids of all nodes, running or not."""
        ...

    def start(self) -> None:
        """Bring the cluster up and wait until it serves."""
        ...

    def stop(self) -> None:
        """Heal, stop and remove what ``start`` made."""
        ...

    def cannot(self, fault: str) -> str | None:
        """Why a fault of this name cannot be done here, and what would help; None: it can."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Versions and settings, for the report."""
        ...

    def log_dirs(self, node: int) -> Sequence[Path]:
        """Where a node's files can be read on this machine; empty: they cannot."""
        ...

    # --- processes ---------------------------------------------------------------------

    def is_running(self, node: int) -> bool: ...

    def kill(self, node: int) -> None:
        """SIGKILL, and wait for the end."""
        ...

    def terminate(self, node: int) -> None:
        """SIGTERM, and wait for the end."""
        ...

    def start_node(self, node: int) -> None:
        """Start it again unless it runs; does not wait until it serves."""
        ...

    def pause(self, node: int) -> None: ...

    def resume(self, node: int) -> None: ...

    # --- network between nodes ---------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        """Nothing that ``source`` sends reaches ``target``; call twice for both directions."""
        ...

    def mend(self, source: int, target: int) -> None: ...

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        """Delay and limit one direction; 0 means no delay, no limit."""
        ...

    def reset_link(self, source: int, target: int) -> None:
        """Close the connections from ``source`` to ``target``; new ones may be made."""
        ...

    def lose(self, source: int, target: int, share: float) -> None:
        """Lose this share of the packets of one direction; 0 means none."""
        ...

    # --- disk and calendar -------------------------------------------------------------

    def rig(self, node: int, rigging: Rigging) -> None:
        """From now on and until it is rigged otherwise, across restarts."""
        ...

    def lose_unsynced(self, node: int) -> str:
        """Take from a stopped node's disk what power loss may take; says what that was."""
        ...

    # --- everything --------------------------------------------------------------------

    def heal_all(self) -> None:
        """Mend every link, resume every paused node, start every stopped one."""
        ...
