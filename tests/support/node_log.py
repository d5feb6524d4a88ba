"""What the nodes of a cluster print, and what of it nobody should ever print."""

from __future__ import annotations

from typing import Final

_MARKS: Final = ("Traceback (most recent call last)", "never retrieved", "was never awaited")
_LINES_AFTER: Final = 30


class NodeLog:
    """Give ``add`` to a cluster as its ``on_line``; keeps the newest lines and all that is odd."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._left: dict[int, int] = {}
        self._unforeseen: list[str] = []

    def add(self, node_id: int, line: str) -> None:
        text = f"node {node_id}: {line}"
        self.lines.append(text)
        if len(self.lines) > 20_000:
            del self.lines[:10_000]
        if any(mark in line for mark in _MARKS):
            self._left[node_id] = _LINES_AFTER
        if self._left.get(node_id, 0) > 0:
            self._left[node_id] -= 1
            self._unforeseen.append(text)

    def unforeseen(self) -> list[str]:
        """Exceptions that nobody handled, with the lines that followed; told once."""
        told, self._unforeseen = self._unforeseen, []
        return told
