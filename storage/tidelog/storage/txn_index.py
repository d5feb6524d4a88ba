"""The aborted transactions whose markers lie in a segment (KIP-98, "Transaction Index").

Theory: a consumer that reads only committed data is told, with each fetch, which producers'
batches to skip. Unlike the other indexes this is no hint: a missing entry would show aborted
records. The file is therefore written and synced before the recovery point passes its segment,
and recovery rebuilds what may have been lost. Until then entries are in memory only, so that a
full disk cannot come between a batch and its account.

Most segments never see an abort and have no file: it is made by the first entry.

Owner: the segment, on the event loop.

Invariants: entries are in the order of their markers' offsets; the file is memory up to
``_written`` entries, packed.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.ids import Offset, ProducerId
from tidelog.kernel.ports import Disk, File
from tidelog.storage.index import CorruptIndex

VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Where the abort marker is."""
    last_stable_offset: Offset
    """Up to which everything was decided once this marker was written."""


def encode_aborted_txn(txn: AbortedTxn) -> bytes:
    return _ENTRY.pack(
        VERSION, txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
    )


def decode_aborted_txns(data: bytes, path: str) -> list[AbortedTxn]:
    """The entries of a file; ``path`` is for the message if they make no sense."""
    if len(data) % ENTRY_SIZE:
        raise CorruptIndex(f"{path}: {len(data)} bytes are not a multiple of {ENTRY_SIZE}")
    txns: list[AbortedTxn] = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptIndex(
                f"{path}: entry {len(txns)} has version {version}, only {VERSION} is known"
            )
        if not 0 <= first <= last or (txns and last <= txns[-1].last_offset):
            raise CorruptIndex(
                f"{path}: entry {len(txns)} spans {first} to {last}, which cannot follow "
                f"{txns[-1].last_offset if txns else 'nothing'}"
            )
        txns.append(AbortedTxn(producer_id, first, last, stable))
    return txns


class TxnIndex:
    __slots__ = ("_disk", "_file", "_txns", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        """Nothing is read or made before it is needed."""
        self.path = path
        self._disk = disk
        self._file: File | None = None
        self._txns: list[AbortedTxn] | None = None
        self._written = 0

    def _loaded(self) -> list[AbortedTxn]:
        if self._txns is None:
            try:
                data = self._disk.read(self.path)
            except FileNotFoundError:
                data = b""
            self._txns = decode_aborted_txns(data, self.path)
            self._written = len(self._txns)
        return self._txns

    def all(self) -> list[AbortedTxn]:
        return list(self._loaded())

    @property
    def is_empty(self) -> bool:
        return not self._loaded()

    def collect(self, fetch_offset: int, upper: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that touch [``fetch_offset``, ``upper``), and whether these are all.

        Once everything below ``upper`` was decided when a marker was written, no later marker
        can belong to a transaction below it, and later segments need not be asked.
        """
        found: list[AbortedTxn] = []
        for txn in self._loaded():
            if txn.last_offset >= fetch_offset and txn.first_offset < upper:
                found.append(txn)
            if txn.last_stable_offset >= upper:
                return found, True
        return found, False

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry; only memory changes."""
        txns = self._loaded()
        if txns and txn.last_offset <= txns[-1].last_offset:
            raise ValueError(
                f"{self.path}: a marker at {txn.last_offset} cannot follow "
                f"one at {txns[-1].last_offset}"
            )
        txns.append(txn)

    def write_back(self) -> None:
        """Bring the file up to date with memory; not yet durable."""
        if self._txns is not None and len(self._txns) > self._written:
            data = b"".join(map(encode_aborted_txn, self._txns[self._written :]))
            self._writable_file().pwrite(data, self._written * ENTRY_SIZE)
            self._written = len(self._txns)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above ``offset``."""
        txns = self._loaded()
        kept = sum(1 for txn in txns if txn.last_offset < offset)
        if kept < self._written:
            self._writable_file().truncate(kept * ENTRY_SIZE)
            self._written = kept
        del txns[kept:]

    def reset(self) -> None:
        """Start over, whatever the file holds; none is made if there is none."""
        if self._file is not None or self._disk.stat(self.path) is not None:
            self._writable_file().truncate(0)
        self._txns = []
        self._written = 0

    def sanity_check(self, min_offset: int) -> None:
        """Read the file now; no marker may lie below the segment's base offset."""
        for txn in self._loaded():
            if txn.last_offset < min_offset:
                raise CorruptIndex(
                    f"{self.path}: a marker at {txn.last_offset} lies below "
                    f"the segment, which starts at {min_offset}"
                )

    def _writable_file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file

    def file_to_sync(self) -> File | None:
        """The file, if there is one; its ``sync`` may run off the event loop.

        It stays open until ``close``, ``unload`` or ``delete``.
        """
        self.write_back()
        if self._file is None and self._disk.stat(self.path) is None:
            return None
        return self._writable_file()

    def sync(self) -> None:
        """Make the entries durable, if there are any."""
        file = self.file_to_sync()
        if file is not None:
            file.sync()

    def unload(self) -> None:
        """Give memory and descriptor back; the file is read again when it is needed."""
        self.close()
        self._txns = None

    def rename(self, new_path: str) -> None:
        with suppress(FileNotFoundError):
            self._disk.rename(self.path, new_path)
        self.path = new_path

    def delete(self) -> None:
        self.discard()
        self._disk.unlink(self.path)

    def discard(self) -> None:
        """Let the file go as it is. It is not closed: a flush may still be syncing it."""
        self._file = None
        self._txns = None

    def close(self) -> None:
        self.write_back()
        if self._file is not None:
            self._file.close()
            self._file = None
