"""The names on a simulated disk: directories, and the changes to them that are not yet durable.

Theory: a directory is a small file of its own. Creating, renaming or unlinking changes it in
memory; the change is durable only after ``sync_dir``, and until then power loss keeps any
combination of the changes. That also goes for a file whose *data* was synced: without its
name it is gone (hazard 43).

Three things cannot happen on any file system in use, so they do not happen here:
- of two changes to one name the later survives without the earlier;
- a renamed file loses its old name before it has the new one (it may have both for a while,
  and after power loss these are two files with equal content);
- a renamed directory has two names: that change is kept or lost as a whole.

Owner: ``SimDisk``, which changes ``entries`` only together with recording the change here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from tidelog.kernel.ids import TimestampMs
from tidelog.simulation.disk_content import FileContent
from tidelog.simulation.random import SimRandom


class Directory:
    """Names now, and names on the medium. Compared and hashed by identity."""

    __slots__ = ("durable", "entries", "mtime_ms")

    def __init__(self, mtime_ms: TimestampMs) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.mtime_ms = mtime_ms


Node: TypeAlias = FileContent | Directory


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """One name in one directory gets a new meaning; None removes it."""

    directory: Directory
    name: str
    node: Node | None

    def apply_to(self, names: dict[str, Node]) -> None:
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Edits that become durable together, and only after the changes numbered in ``after``."""

    number: int
    edits: tuple[Edit, ...]
    after: tuple[int, ...]


class NameJournal:
    """The changes since the last sync of their directories, numbered in the order made."""

    def __init__(self) -> None:
        self._next_number = 0
        self._pending: dict[int, Change] = {}
        self._latest_by_name: dict[tuple[Directory, str], Change] = {}
        self._by_directory: dict[Directory, dict[int, Change]] = {}

    def bind(self, directory: Directory, name: str, node: Node) -> None:
        """A file or directory was made."""
        self._record((Edit(directory, name, node),))

    def remove(self, directory: Directory, name: str) -> None:
        """A name was unlinked."""
        self._record((Edit(directory, name, None),))

    def move(self, source: Directory, old: str, target: Directory, new: str, node: Node) -> None:
        """A name was changed, perhaps across directories."""
        added = Edit(target, new, node)
        removed = Edit(source, old, None)
        if isinstance(node, Directory):
            self._record((added, removed))
        else:
            self._record((removed,), requires=(self._record((added,)),))

    def is_pending(self, directory: Directory, name: str) -> bool:
        """Whether power loss may give this name another meaning than it has now."""
        return (directory, name) in self._latest_by_name

    def sync(self, directory: Directory) -> None:
        """Make every change in one directory durable, with what those changes require."""
        self._settle(self._with_requirements(self._by_directory.get(directory, {}).values()))

    def write_back(self, random: SimRandom) -> None:
        """What the system does at any time by itself: some changes become durable."""
        self._settle(self._chosen(random))

    def survivors(self, random: SimRandom) -> dict[Directory, dict[str, Node]]:
        """The names each changed directory has after power loss; this state stays as it is."""
        names: dict[Directory, dict[str, Node]] = {}
        for change in self._chosen(random):
            for edit in change.edits:
                directory = edit.directory
                edit.apply_to(names.setdefault(directory, dict(directory.durable)))
        return names

    def _record(self, edits: tuple[Edit, ...], requires: tuple[int, ...] = ()) -> int:
        number = self._next_number
        self._next_number += 1
        names = [(edit.directory, edit.name) for edit in edits]
        earlier = [
            self._latest_by_name[name].number for name in names if name in self._latest_by_name
        ]
        change = self._pending[number] = Change(number, edits, (*requires, *earlier))
        for name in names:
            self._latest_by_name[name] = change
            self._by_directory.setdefault(name[0], {})[number] = change
        return number

    def _chosen(self, random: SimRandom) -> list[Change]:
        chance = random.choice((0.0, 0.3, 0.7, 1.0))
        kept = [change for change in self._pending.values() if random.random() < chance]
        return self._with_requirements(kept)

    def _with_requirements(self, wanted: Iterable[Change]) -> list[Change]:
        """The wanted changes and all that must come before them, in order."""
        found: dict[int, Change] = {}
        waiting = [change.number for change in wanted]
        while waiting:
            change = self._pending.get(waiting.pop())  # None: durable already
            if change is not None and change.number not in found:
                found[change.number] = change
                waiting.extend(change.after)
        return [found[number] for number in sorted(found)]

    def _settle(self, changes: list[Change]) -> None:
        for change in changes:
            del self._pending[change.number]
            for edit in change.edits:
                directory, name = edit.directory, edit.name
                edit.apply_to(directory.durable)
                if self._latest_by_name[directory, name] is change:
                    del self._latest_by_name[directory, name]
                self._by_directory[directory].pop(change.number, None)
            for directory in {edit.directory: None for edit in change.edits}:
                if not self._by_directory[directory]:
                    del self._by_directory[directory]


class PowerLoss:
    """One draw of what is left of a disk. The disk it is drawn from stays as it is."""

    def __init__(self, journal: NameJournal, random: SimRandom) -> None:
        self._random = random
        self._changed = journal.survivors(random)
        self._survivors: dict[FileContent, FileContent] = {}

    def survivor_of(self, before: Directory) -> Directory:
        """A new directory with what is left of the names and files of this one."""
        directory = Directory(before.mtime_ms)
        names = self._changed.get(before, before.durable)
        for name in sorted(names):
            node = names[name]
            match node:
                case Directory():
                    directory.entries[name] = self.survivor_of(node)
                case FileContent():
                    directory.entries[name] = self._survivor_of_file(node)
                case _:
                    assert_never(node)
        directory.durable = dict(directory.entries)
        return directory

    def _survivor_of_file(self, before: FileContent) -> FileContent:
        survivor = self._survivors.get(before)
        if survivor is None:
            survivor = self._survivors[before] = before.after_power_loss(self._random)
        else:
            survivor = survivor.twin()
        survivor.names = 1
        return survivor
