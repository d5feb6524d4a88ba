"""A simulated disk as a checker sees it: no fault strikes, and none that is due is used up."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from tidelog.simulation.disk import SimDisk
from tidelog.simulation.disk_content import FileContent
from tidelog.simulation.disk_names import Directory, Node


class ViewedFile(NamedTuple):
    name: str
    content: FileContent
    has_safe_name: bool
    """Whether it is found under its name after power loss, whatever is drawn."""

    @property
    def safe_bytes(self) -> int:
        """How much of the start survives power loss, whatever is drawn."""
        return self.content.safe_bytes if self.has_safe_name else 0


class DiskView:
    """Of one ``SimDisk``, which may be in use or not."""

    __slots__ = ("_disk",)

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def paths(self) -> list[str]:
        """Every file, sorted."""
        found: list[str] = []
        waiting = [("", self._disk._root)]
        while waiting:
            path, directory = waiting.pop()
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    waiting.append((f"{path}/{name}", node))
                else:
                    found.append(f"{path}/{name}")
        return sorted(found)

    def names(self, path: str) -> list[str]:
        """What a directory contains, sorted; nothing if there is none."""
        node, _ = self._look_up(path)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def files(self, path: str, suffix: str) -> list[ViewedFile]:
        """Those of a directory whose names end so, sorted; nothing if there is none."""
        directory, is_safe = self._look_up(path)
        if not isinstance(directory, Directory):
            return []
        is_pending = self._disk._journal.is_pending
        return [
            ViewedFile(name, node, is_safe and not is_pending(directory, name))
            for name, node in sorted(directory.entries.items(), key=itemgetter(0))
            if name.endswith(suffix) and isinstance(node, FileContent)
        ]

    def size(self, path: str) -> int:
        content = self._file(path)
        return 0 if content is None else content.size

    def read(self, path: str, position: int = 0, length: int | None = None) -> bytes:
        """What a process would read here now; nothing if there is no such file."""
        content = self._file(path)
        if content is None:
            return b""
        return content.read(content.size if length is None else length, position)

    def _file(self, path: str) -> FileContent | None:
        node, _ = self._look_up(path)
        return node if isinstance(node, FileContent) else None

    def _look_up(self, path: str) -> tuple[Node | None, bool]:
        """What a path means now, and whether it means that after power loss for sure."""
        node: Node | None = self._disk._root
        is_safe = True
        is_pending = self._disk._journal.is_pending
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None, False
            is_safe = is_safe and not is_pending(node, part)
            node = node.entries.get(part)
        return node, is_safe


@lru_cache(maxsize=1_000)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))
