"""``tidelog server`` and ``tidelog controller``: handed over to the node, as they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NODE_COMMANDS: Final = {
    "server": "Run one node: a broker, a controller, or both (process.roles).",
    "controller": "Run one node that is only a controller.",
}


def run_node(command: str, arguments: Sequence[str]) -> int:
    from tidelog.broker.process import main

    # The last override of a name wins, so nothing given before can bring the broker back.
    roles = ["-o", "process.roles=controller"] if command == "controller" else []
    return main([*arguments, *roles])
