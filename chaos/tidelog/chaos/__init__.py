"""Breaking a real cluster on purpose, and judging what its clients saw.

``Cluster`` is for tests of your own: docs/CHAOS.md shows how. It is loaded when it is first asked
for, so that judging a history needs no client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.chaos.cluster import Cluster
    from tidelog.chaos.targets.base import TargetError

__all__ = ["Cluster", "TargetError"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.chaos import cluster

    return getattr(cluster, name)
