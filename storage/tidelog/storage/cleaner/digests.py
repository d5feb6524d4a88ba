"""128-bit digests of many keys at once.

Theory: the offset map takes equal digests for equal keys, as Kafka does with MD5. Here the digest
is four independent *multilinear* hashes of 32 bits (Lemire and Kaser, "Strongly universal string
hashing is fast", §2): ``(m₀ + m₁·length + Σ mᵢ·wordᵢ) mod 2⁶⁴`` shifted down by 32. For two
different keys each collides with probability 2⁻³², and all four with 2⁻¹²⁸, whatever the keys
are, because the multipliers are drawn anew for every pass and never leave the process: nobody can
prepare keys that collide. It needs nothing but additions and products of whole columns.

Very long keys, which would need a multiplier for each of their words, go through keyed BLAKE2b.

Importing this module imports numpy.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.wire.varint_columns import Bytes, Int64s

UInt64s: TypeAlias = npt.NDArray[np.uint64]
Digests: TypeAlias = tuple[UInt64s, UInt64s]
"""The first and the last eight bytes of each."""

PADDING: Final = 8
"""Bytes that a buffer must have behind the last key: keys are read eight bytes at a time."""

SECRET_BYTES: Final = 32
_LONGEST: Final = 512
"""Keys up to this many bytes are hashed in columns."""
_HASHES: Final = 4
_WORD: Final = 8
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD + 1)], np.uint64)


def words_at_every_byte(buffer: Bytes) -> UInt64s:
    """The eight bytes that begin at each position, without a copy."""
    return np.ndarray((max(0, len(buffer) - _WORD + 1),), "<u8", buffer=buffer, strides=(1,))


class KeyDigests:
    """One family of hashes, drawn from a secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        count = 2 + _LONGEST // 4
        drawn = hashlib.shake_256(secret).digest(count * _HASHES * 8)
        self._multipliers: UInt64s = np.frombuffer(drawn, np.uint64).reshape(count, _HASHES)

    def of(self, buffer: Bytes, starts: Int64s, lengths: Int64s) -> Digests:
        """The digests of the keys at ``starts``, none of which is null."""
        words = words_at_every_byte(buffer)
        sizes = lengths.astype(np.uint64)
        sums = [sizes * self._multipliers[1, i] + self._multipliers[0, i] for i in range(_HASHES)]
        shortest = int(lengths.min()) if len(lengths) else 0
        longest = min(int(lengths.max()), _LONGEST) if len(lengths) else 0
        for at in range(0, longest, _WORD):
            if at + _WORD <= shortest:
                self._add(sums, slice(None), words[starts + at], at)
            elif at < shortest:
                masks = _MASKS.take(lengths - at, mode="clip")
                self._add(sums, slice(None), words[starts + at] & masks, at)
            else:
                rows = np.flatnonzero(lengths > at)
                masks = _MASKS.take(lengths[rows] - at, mode="clip")
                self._add(sums, rows, words[starts[rows] + at] & masks, at)
        first = sums[0] & ~_LOW | sums[1] >> _HALF
        last = sums[2] & ~_LOW | sums[3] >> _HALF
        if len(lengths) and int(lengths.max()) > _LONGEST:
            self._add_long(buffer, starts, lengths, first, last)
        return first, last

    def _add(self, sums: list[UInt64s], rows: slice | Int64s, word: UInt64s, at: int) -> None:
        low, high = word & _LOW, word >> _HALF
        lower, upper = self._multipliers[2 + at // 4], self._multipliers[3 + at // 4]
        product, other = np.empty_like(low), np.empty_like(low)
        for i in range(_HASHES):
            np.multiply(low, lower[i], out=product)
            np.multiply(high, upper[i], out=other)
            product += other
            if isinstance(rows, slice):
                sums[i] += product
            else:
                sums[i][rows] += product

    def _add_long(
        self, buffer: Bytes, starts: Int64s, lengths: Int64s, first: UInt64s, last: UInt64s
    ) -> None:
        for row in np.flatnonzero(lengths > _LONGEST).tolist():
            start = int(starts[row])
            key = buffer[start : start + int(lengths[row])].tobytes()
            digest = hashlib.blake2b(key, digest_size=16, key=self._secret).digest()
            first[row] = int.from_bytes(digest[:8], "little")
            last[row] = int.from_bytes(digest[8:], "little")
