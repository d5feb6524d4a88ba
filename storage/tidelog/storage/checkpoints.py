"""The text checkpoints: offsets by partition for a log directory, leader epochs for a partition.

Every one has a line with the version (0), a line with the number of entries, and one line per
entry. An empty file, and none at all, means no entries. Files are replaced atomically, so
anything else that does not parse was damaged from outside and is refused by name and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from tidelog.kernel.ids import Offset, PartitionIndex, TopicPartition
from tidelog.kernel.ports import Disk
from tidelog.storage.atomic import write_atomically
from tidelog.storage.epoch_cache import EpochEntry
from tidelog.storage.names import MAX_OFFSET, MAX_PARTITION

T = TypeVar("T")

VERSION: Final = 0
_MAX_DIGITS: Final = 19


class CorruptCheckpoint(Exception):
    """A checkpoint file that nobody can have written; the message names file and line."""


def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    return decode_offsets(_read(disk, path), path)


def write_offset_checkpoint(
    disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]
) -> None:
    """Sorted, so that the same offsets give the same file."""
    write_atomically(disk, path, encode_offsets(dict(sorted(offsets.items()))))


def read_epoch_checkpoint(disk: Disk, path: str) -> list[EpochEntry]:
    return decode_epochs(_read(disk, path), path)


def write_epoch_checkpoint(disk: Disk, path: str, entries: Iterable[EpochEntry]) -> None:
    write_atomically(disk, path, encode_epochs(entries))


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return _encode([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    """``path`` is for the message if the text makes no sense."""
    offsets: dict[TopicPartition, Offset] = {}
    for number, (tp, offset) in enumerate(_decode(data, path, _offset_entry), start=3):
        if tp in offsets:
            raise CorruptCheckpoint(f"{path}, line {number}: {tp} is listed twice")
        offsets[tp] = offset
    return offsets


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _encode([entry.to_line() for entry in entries])


def decode_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """``path`` is for the message if the text makes no sense."""
    return _decode(data, path, EpochEntry.from_line)


def _read(disk: Disk, path: str) -> bytes:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return b""


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode("ascii")


def _decode(data: bytes, path: str, parse: Callable[[str], T]) -> list[T]:
    if not data:
        return []
    try:
        lines = data.decode("ascii").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: byte {error.start} is not ASCII") from None
    if lines[0] != str(VERSION):
        raise CorruptCheckpoint(f"{path}, line 1: version is {lines[0]!r}, only {VERSION} is known")
    count = len(lines) - 2
    if count < 0 or lines[1] != str(count):
        stated = repr(lines[1]) if count >= 0 else "nothing"
        raise CorruptCheckpoint(f"{path}, line 2: says {stated}, there are {max(count, 0)} entries")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(parse(line))
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}, line {number}: {error}") from None
    return entries


def _offset_entry(line: str) -> tuple[TopicPartition, Offset]:
    parts = line.split(" ")
    if len(parts) != 3 or not parts[0]:
        raise ValueError(f"{line!r} is not a topic, a partition and an offset")
    partition = _number(parts[1], MAX_PARTITION)
    return TopicPartition(parts[0], PartitionIndex(partition)), Offset(
        _number(parts[2], MAX_OFFSET)
    )


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) > most:
        raise ValueError(f"{text!r} is not a number from 0 to {most}")
    return int(text)
