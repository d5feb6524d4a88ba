"""Which partition a row goes to: Java's default, so that keys stay together whoever writes them.

A row's own partition comes first, then the hash of its key (murmur2, the variant of Kafka's
``Utils.murmur2``), and rows without a key stick to one partition until a batch of it is full.

The hash goes through all keys four bytes at a time, one vectorised step each. Keys that are much
longer than the others are finished one by one, so that a single long key does not cost a step of
numpy for every four of its bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.pipeline.errors import WrongRows
from tidelog.wire.varint_columns import Bytes, Int64s

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_FEW_ROWS: Final = 16

UInt64s = npt.NDArray[np.uint64]


def murmur2(key: bytes) -> int:
    """Of one key, 32 bits without a sign."""
    mixed = _from(key, 0, _SEED ^ len(key))
    return mixed


def _from(key: bytes, at: int, hashed: int) -> int:
    """The rest of the hash, from the word at ``at`` on."""
    end = len(key) & ~3
    for start in range(at, end, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        hashed = (hashed * _MIX & _MASK) ^ word
    if tail := key[end:]:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15


def murmur2_of_all(blob: Bytes, start: Int64s, length: Int64s) -> Int64s:
    """``murmur2(blob[start : start + length])`` of each row; lengths are not negative."""
    hashed = (_SEED ^ length).astype(np.uint64)
    rows = np.flatnonzero(length >= 4)
    at = 0
    while rows.size >= _FEW_ROWS:
        word = _words(blob, start[rows] + at, 4) * _U_MIX & _U_MASK
        word = (word ^ word >> np.uint64(24)) * _U_MIX & _U_MASK
        hashed[rows] = (hashed[rows] * _U_MIX & _U_MASK) ^ word
        at += 4
        rows = rows[length[rows] >= at + 4]
    unfinished = {int(row): int(hashed[row]) for row in rows}
    _mix_tails(blob, start, length, hashed)
    hashed = (hashed ^ hashed >> np.uint64(13)) * _U_MIX & _U_MASK
    found = (hashed ^ hashed >> np.uint64(15)).astype(np.int64)
    for row, so_far in unfinished.items():
        key = blob[start[row] : start[row] + length[row]].tobytes()
        found[row] = _from(key, at, so_far)
    return found


_U_MIX: Final = np.uint64(_MIX)
_U_MASK: Final = np.uint64(_MASK)


def _words(blob: Bytes, at: Int64s, size: int) -> UInt64s:
    word = blob[at].astype(np.uint64)
    for byte in range(1, size):
        word |= blob[at + byte].astype(np.uint64) << np.uint64(8 * byte)
    return word


def _mix_tails(blob: Bytes, start: Int64s, length: Int64s, hashed: UInt64s) -> None:
    """The one to three bytes behind the last word."""
    left = length & 3
    for size in (1, 2, 3):
        rows = np.flatnonzero(left == size)
        if rows.size:
            tail = _words(blob, start[rows] + (length[rows] & ~np.int64(3)), size)
            hashed[rows] = (hashed[rows] ^ tail) * _U_MIX & _U_MASK


def partitions_of_keys(blob: Bytes, start: Int64s, length: Int64s, count: int) -> Int64s:
    """Kafka's ``toPositive(murmur2(key)) % count``; −1 for a row without a key (length −1)."""
    chosen = np.full(len(start), -1, np.int64)
    rows = np.flatnonzero(length >= 0)
    if rows.size:
        hashed = murmur2_of_all(blob, start[rows], length[rows])
        chosen[rows] = (hashed & 0x7FFFFFFF) % count
    return chosen


def refuse_partitions(topic: str, given: Int64s, count: int) -> None:
    """``given``: those that rows name themselves."""
    wrong = given[(given < 0) | (given >= count)]
    if wrong.size:
        raise WrongRows(
            f"a row names partition {wrong[0]} of topic {topic!r}, which has the partitions "
            f"0 to {count - 1}"
        )
