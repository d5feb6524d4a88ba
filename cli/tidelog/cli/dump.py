"""``tidelog log dump``: choose the reader for each file by its name and write what it yields."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tidelog.cli import dump_index, dump_log, dump_state, exit_codes
from tidelog.cli.dump_items import Item, Problem, write_json, write_text
from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk
from tidelog.kernel.real.disk import OsDisk
from tidelog.storage import names


@dataclass(frozen=True, slots=True)
class DumpOptions:
    print_data: bool = False
    deep: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None
    skip_record_metadata: bool = False


Reader = Callable[[], Iterator[Item]]


def dump_files(
    paths: Sequence[str],
    options: DumpOptions,
    *,
    as_json: bool,
    out: BinaryIO | None = None,
    err: BinaryIO | None = None,
) -> int:
    """Dump the files one after the other; returns the exit code."""
    out = out or sys.stdout.buffer
    err = err or sys.stderr.buffer
    disk = OsDisk()
    readers = [reader_for(disk, path, options) for path in paths]
    foreign = [path for path, reader in zip(paths, readers, strict=True) if reader is None]
    if foreign:
        _explain_foreign(foreign, err)
        return exit_codes.USAGE
    write = write_json if as_json else write_text
    problems = 0
    for path, reader in zip(paths, readers, strict=True):
        if reader is not None:
            problems += write(path, _guarded(path, reader), out, err)
    out.flush()
    return exit_codes.PROBLEM if problems else exit_codes.OK


def reader_for(disk: Disk, path: str, options: DumpOptions) -> Reader | None:
    """What reads a file of this name; None if no file of a log has such a name."""
    name = os.path.basename(path)
    parsed = names.parse_segment_file(name)
    if parsed is not None:
        return _segment_reader(disk, path, parsed.base_offset, parsed.suffix, options)
    small = dump_state.READERS.get(name)
    return None if small is None else lambda: small(disk, path)


def _segment_reader(
    disk: Disk, path: str, base_offset: Offset, suffix: str, options: DumpOptions
) -> Reader:
    depth = dump_log.Depth(
        records=options.deep,
        data=options.print_data,
        metadata=not options.skip_record_metadata,
    )
    mode = dump_index.Mode(sanity_only=options.index_sanity_check, quiet=options.verify_index_only)
    match suffix:
        case names.LOG_SUFFIX:
            return lambda: dump_log.log_items(disk, path, base_offset, depth, options.max_bytes)
        case names.INDEX_SUFFIX:
            return lambda: dump_index.offset_index_items(disk, path, base_offset, mode)
        case names.TIME_INDEX_SUFFIX:
            return lambda: dump_index.time_index_items(disk, path, base_offset, mode)
        case names.TXN_INDEX_SUFFIX:
            return lambda: dump_state.txn_index_items(disk, path)
        case names.SNAPSHOT_SUFFIX:
            return lambda: dump_state.snapshot_items(disk, path)
        case _:
            raise ValueError(f"{path}: no reader for {suffix}")


def _guarded(path: str, reader: Reader) -> Iterator[Item]:
    """A file that cannot be read is a problem of that file; the others are still dumped."""
    try:
        yield from reader()
    except OSError as error:
        yield Problem(f"{path}: {error.strerror or error}")


def _explain_foreign(paths: Sequence[str], err: BinaryIO) -> None:
    for path in paths:
        err.write(f"{path}: not the name of a file of a log\n".encode(errors="surrogateescape"))
    known = ", ".join(sorted(dump_state.READERS))
    err.write(
        "Known are twenty digits with .log, .index, .timeindex, .txnindex or .snapshot"
        f" (and .deleted, .cleaned or .swap behind it), and {known}.\n".encode()
    )
