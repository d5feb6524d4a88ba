"""Target ``local``: processes on this machine, and a TCP proxy for every ordered pair of them.

Needs no rights. Only what nodes say to each other goes through proxies, by
``peer.dial.overrides``; clients reach every node that runs. Lost packets are beyond a proxy,
which sees streams; a cut is the whole of that.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import permutations
from typing import Final

from tidelog.chaos.targets.base import TargetError
from tidelog.chaos.targets.processes import ProcessTarget
from tidelog.testing.link_proxies import LinkProxies

_NO_LOSS: Final = (
    "loss cannot be done to target local: its proxies carry streams, not packets; "
    "--target netns can, as root"
)


class LocalTarget(ProcessTarget):
    """Use as a context manager, or call ``start`` and ``stop``."""

    name = "local"

    _proxies: LinkProxies | None = None

    def start(self) -> None:
        proxies = self._proxies = LinkProxies()
        for source, target in permutations(self.nodes, 2):
            proxy = proxies.open(source, target, self._cluster.nodes[target].rpc)
            dialled = self._cluster.node_settings.setdefault(source, {})
            others = dialled.get("peer.dial.overrides")
            dialled["peer.dial.overrides"] = ",".join(filter(None, [others, f"{target}@{proxy}"]))
        with ExitStack() as undo:
            undo.callback(proxies.close)
            super().start()
            undo.pop_all()

    def stop(self) -> None:
        with ExitStack() as stack:
            if self._proxies is not None:
                stack.callback(self._proxies.close)
                self._proxies.heal_all()
            super().stop()

    def cannot(self, fault: str) -> str | None:
        return _NO_LOSS if fault == "loss" else super().cannot(fault)

    # --- network between nodes ---------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        self._links.cut(source, target)

    def mend(self, source: int, target: int) -> None:
        self._links.mend(source, target)

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        self._links.slow(source, target, delay_ms, bytes_per_s)

    def reset_link(self, source: int, target: int) -> None:
        self._links.reset(source, target)

    def lose(self, source: int, target: int, share: float) -> None:
        raise TargetError(_NO_LOSS)

    @property
    def _links(self) -> LinkProxies:
        if self._proxies is None:
            raise TargetError("the cluster was not started")
        return self._proxies

    def heal_all(self) -> None:
        self._links.heal_all()
        super().heal_all()
