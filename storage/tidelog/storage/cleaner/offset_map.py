"""The newest offset of each key, in a fixed amount of memory.

Theory: an open-addressing table of 24-byte slots, a digest of sixteen bytes and an offset, probed
by double hashing over a prime number of slots, so that every slot is reached. Whole columns of
keys are put and looked up at once: each round moves all keys that are not settled yet one probe
further. Where several new keys claim one slot, whoever is found in it afterwards has won, and the
others go on.

When the share of slots in use reaches the load factor, the map is full. The pass then covers only
what was put, and the next one goes on from there: little memory costs time and never records.

Of records that were put themselves it is enough to know which of their offsets are still in the
map: ``still_newest`` has that in order of offsets, and no key has to be hashed and found again.

Invariants: an offset is stored plus one, so that fresh (zeroed) memory is an empty table;
``latest_offset`` is the last offset the map speaks for.

Importing this module imports numpy.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.storage.cleaner.digests import Digests
from tidelog.wire.varint_columns import Int64s

Bools: TypeAlias = npt.NDArray[np.bool_]

SLOT_BYTES: Final = 24
_FEW: Final = 64
_ROOMY: Final = 0.7
"""A table that need not be any fuller is searched faster."""
_HALF: Final = np.uint64(32)
_SHARE_FOR_OFFSETS: Final = 8
_SLOTS_AT_A_TIME: Final = 1 << 18


class MapTooSmall(ValueError):
    """The memory given does not hold a single key."""


class OffsetMap:
    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int | None = None) -> None:
        """``most_keys`` saves memory where that few can come."""
        slots = memory_bytes // SLOT_BYTES
        if most_keys is not None and load_factor > 0:
            slots = min(slots, _FEW + int(most_keys / min(load_factor, _ROOMY)))
        self.slots = _largest_prime(slots)
        # One slot at least stays free: a search ends there.
        self.capacity = min(int(self.slots * load_factor), self.slots - 1)
        if self.capacity < 1:
            raise MapTooSmall(
                f"log.cleaner.dedupe.buffer.size gives {memory_bytes} bytes to a thread, of which "
                f"{load_factor:.0%} may be used: not enough for one key of {SLOT_BYTES} bytes"
            )
        self._table = np.zeros((self.slots, 3), np.int64)
        """Of each slot the digest's two halves and the offset, side by side: one cache miss."""
        self._offsets = self._table[:, 2]
        self.size = 0
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    @property
    def memory_bytes(self) -> int:
        return self.slots * SLOT_BYTES

    def put(self, digests: Digests, offsets: Int64s) -> int:
        """Remember these offsets, which rise; how many of them, in order, found room.

        As in Kafka nothing is put once the map is full, not even a key that it holds.
        """
        done = 0
        while done < len(offsets) and not self.is_full:
            room = self.capacity - self.size
            stop = min(len(offsets), done + room)
            if room < _FEW and stop < len(offsets):
                stop = self._next_new(digests, done) + 1
            self._put((digests[0][done:stop], digests[1][done:stop]), offsets[done:stop])
            done = min(stop, len(offsets))
        if done:
            self.latest_offset = max(self.latest_offset, int(offsets[done - 1]))
        return done

    def _next_new(self, digests: Digests, start: int) -> int:
        """The first row from ``start`` on whose key is not in the map."""
        is_new = self.get((digests[0][start:], digests[1][start:])) < 0
        return start + int(np.argmax(is_new)) if bool(is_new.any()) else start + len(is_new)

    def _put(self, digests: Digests, offsets: Int64s) -> None:
        first, last = digests[0].view(np.int64), digests[1].view(np.int64)
        slots, steps = self._probes(digests)
        stored = offsets + 1
        while len(stored):
            held = self._table.take(slots, axis=0)
            is_free = held[:, 2] == 0
            is_settled = (held[:, 0] == first) & (held[:, 1] == last) & ~is_free
            mine = np.flatnonzero(is_settled)
            # Of a key that comes more than once the last one is the newest, and the last one that
            # is stored stays (numpy: "the last value remains").
            self._offsets[slots[mine]] = np.maximum(held[mine, 2], stored[mine])
            free = np.flatnonzero(is_free)
            if len(free):
                is_settled[free] = self._claim(slots[free], first[free], last[free], stored[free])
            rest = np.flatnonzero(~is_settled)
            first, last, stored, steps = first[rest], last[rest], stored[rest], steps[rest]
            slots = slots[rest]
            # Who lost a free slot looks at it again: it may have gone to the same key.
            slots = np.where(is_free[rest], slots, self._next(slots, steps))

    def _claim(self, slots: Int64s, first: Int64s, last: Int64s, stored: Int64s) -> Bools:
        """Give each free slot to one of the keys that want it; who has got one."""
        self._offsets[slots] = stored
        has_won: Bools = self._offsets[slots] == stored  # no two offsets are the same
        won = np.flatnonzero(has_won)
        slots = slots[won]
        self._table[slots, 0] = first[won]
        self._table[slots, 1] = last[won]
        self.size += len(won)
        return has_won

    def get(self, digests: Digests) -> Int64s:
        """The newest offset of each key; −1 if it is not there."""
        first, last = digests[0].view(np.int64), digests[1].view(np.int64)
        slots, steps = self._probes(digests)
        held = self._table.take(slots, axis=0)
        is_mine = (held[:, 0] == first) & (held[:, 1] == last) & (held[:, 2] > 0)
        found = np.where(is_mine, held[:, 2], 0) - 1
        rows = np.flatnonzero(~is_mine & (held[:, 2] > 0))
        slots, steps = slots[rows], steps[rows]
        while len(rows):
            slots = self._next(slots, steps)
            held = self._table.take(slots, axis=0)
            is_mine = (held[:, 0] == first[rows]) & (held[:, 1] == last[rows])
            is_mine &= held[:, 2] > 0
            found[rows[is_mine]] = held[is_mine, 2] - 1
            is_open = ~is_mine & (held[:, 2] > 0)
            rows, slots, steps = rows[is_open], slots[is_open], steps[is_open]
        return found

    def still_newest(self, first: int) -> Bools:
        """Of each offset from ``first`` on: is it the newest of a key? Up to ``latest_offset``, or
        as far as an eighth of the map's memory goes."""
        count = self.latest_offset + 1 - first
        count = max(0, min(count, self.memory_bytes // _SHARE_FOR_OFFSETS))
        found = np.zeros(count, np.bool_)
        for start in range(0, self.slots, _SLOTS_AT_A_TIME):
            held = self._offsets[start : start + _SLOTS_AT_A_TIME] - (first + 1)
            found[held[(held >= 0) & (held < count)]] = True
        return found

    def _probes(self, digests: Digests) -> tuple[Int64s, Int64s]:
        """Where each key is looked for first, and how far apart its further places are."""
        slots = ((digests[0] >> _HALF) * np.uint64(self.slots)) >> _HALF
        steps = ((digests[1] >> _HALF) * np.uint64(max(1, self.slots - 1))) >> _HALF
        return slots.astype(np.int64), steps.astype(np.int64) + 1

    def _next(self, slots: Int64s, steps: Int64s) -> Int64s:
        moved = slots + steps
        moved[moved >= self.slots] -= self.slots
        return moved


def _largest_prime(most: int) -> int:
    """The largest prime that is not above ``most``; 0 if there is none."""
    for candidate in range(most, 1, -1):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            return candidate
    return 0
