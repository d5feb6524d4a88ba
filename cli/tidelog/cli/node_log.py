"""The log lines of several nodes on one screen: whose a line is, and whether it matters enough.

A line without a level belongs to the one before it (a traceback, say) and shares its fate.
"""

from __future__ import annotations

import re
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL: Final = re.compile(rf"(?:\S+ +)?({'|'.join(LEVELS)})\b")
_COLOURS: Final = (36, 33, 35, 32, 34)


class NodeLog:
    def __init__(self, least: str, *, colours: bool) -> None:
        self._least = LEVELS.index(least)
        self._colours = colours
        self._is_shown: dict[int, bool] = {}

    def shown(self, node_id: int, line: str) -> str | None:
        """The line as it is printed, or None if it is below the level asked for."""
        level = _LEVEL.match(line)
        if level is not None:
            self._is_shown[node_id] = LEVELS.index(level.group(1)) >= self._least
        return f"{self._prefix(node_id)} {line}" if self._is_shown.get(node_id, True) else None

    def _prefix(self, node_id: int) -> str:
        if not self._colours:
            return f"[{node_id}]"
        return f"\x1b[{_COLOURS[node_id % len(_COLOURS)]}m[{node_id}]\x1b[0m"
