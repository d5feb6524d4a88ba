"""Which nodes have done anything since they were last looked at.

What a node knows changes only while one of its callbacks runs (see ``processes``). A checker that
compares a node with what it saw of it before need not look again while none was run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.processes import SimProcess


class Changes:
    """As one checker sees them; a new life is a change."""

    def __init__(self, cluster: SimCluster) -> None:
        self._nodes = cluster.nodes
        self._looked_at: dict[int, tuple[SimProcess, int]] = {}

    def among(self, numbers: Iterable[int]) -> Iterator[tuple[int, SimProcess]]:
        """Those that changed since they were last yielded, and their processes."""
        for number in numbers:
            process = self._nodes[number].process
            if process is None:
                continue
            known = self._looked_at.get(number)
            if known is None or known[0] is not process or known[1] != process.steps:
                self._looked_at[number] = (process, process.steps)
                yield number, process
