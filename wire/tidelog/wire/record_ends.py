"""Where the records of a batch end: the one step that has to go from record to record.

A record starts with its length, so each end is known only when the one before it is. But records
of one batch are often of one size, and then a guess can be checked for many at once: if the next
hundred records were as long as this one, the bytes at their starts would be those at its start. As
far as that holds they *are* their starts. Where sizes change all the time a loop goes from length
to length, and tries another guess the less often the longer that goes on. A small batch is walked
at once: preparing a guess would take as long.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tidelog.kernel.ports import ByteView
from tidelog.wire.errors import InvalidRecord
from tidelog.wire.varint_columns import Bytes, Int64s
from tidelog.wire.varints import read_varint

_FIRST_GUESS: Final = 64
_GROWTH: Final = 8
"""After a guess that held for all records it was about, the next is about so many times more."""
_SHORT_RUN: Final = 16
"""Below this the loop would have been faster."""
_FIRST_STEPS: Final = 256
_FEW: Final = 128
_LENGTH_BYTES: Final = 5
_LARGE: Final = 512
"""Records of so many bytes are walked where they are: to look at a byte there takes longer than in
a copy, but making the copy takes longer still."""


def record_ends(section: Bytes, count: int) -> Int64s:
    """Positions behind each of the ``count`` records that fill ``section``."""
    ends = np.empty(count, np.int64)
    blob: ByteView | None = None
    done = position = 0
    guess, steps = _FIRST_GUESS, _FIRST_STEPS
    if count <= _FEW:
        position, done = _walk(_walkable(section, count), 0, ends, 0, count), count
    while done < count:
        asked = min(guess, count - done)
        run, size = _run_of_one_size(section, position, asked)
        if run:
            ends[done : done + run] = np.arange(1, run + 1) * size + position
            done, position = done + run, position + run * size
        guess = guess * _GROWTH if run == asked else _FIRST_GUESS
        if run >= _SHORT_RUN:
            steps = _FIRST_STEPS
        elif done < count:
            blob = blob or _walkable(section, count)
            end = min(done + steps, count)
            position = _walk(blob, position, ends, done, end)
            done, steps = end, steps * _GROWTH
    if position != len(section):
        raise InvalidRecord(
            f"the {count} records declared take {position} bytes, there are {len(section)}"
        )
    return ends


def _run_of_one_size(section: Bytes, position: int, most: int) -> tuple[int, int]:
    """How many records from here on are as long as the first; 0 if there is no telling."""
    front = section[position : position + _LENGTH_BYTES].tobytes()
    try:
        length, width = read_varint(front, 0)
    except InvalidRecord:
        return 0, 0
    size = width + length
    most = min(most, (len(section) - position) // size) if length >= 0 else 0
    if not most:
        return 0, 0
    starts = section[position : position + most * size].reshape(most, size)
    same = starts[:, 0] == front[0]
    for index in range(1, width):
        same &= starts[:, index] == front[index]
    return most if same.all() else int(same.argmin()), size


def _walkable(section: Bytes, count: int) -> ByteView:
    return section.data if len(section) >= count * _LARGE else section.tobytes()


def _walk(blob: ByteView, position: int, ends: Int64s, start: int, stop: int) -> int:
    """Fill in ``ends[start:stop]`` from length to length; the position behind the last."""
    found: list[int] = []
    add = found.append
    try:
        for _ in range(start, stop):
            low = blob[position]
            if low < 0x80:
                position += (low >> 1) + 1
            elif (high := blob[position + 1]) < 0x80:
                position += (high << 6) + (low >> 1) - 62  # (low − 128 + 128·high) / 2 + 2
            else:
                length, position = read_varint(blob, position)
                position += max(length, 0)  # the sign is looked at by the caller
            add(position)
    except IndexError:
        raise InvalidRecord(
            f"record {start + len(found)} of {len(ends)} starts at byte {position}, "
            f"the records end at {len(blob)}"
        ) from None
    ends[start:stop] = found
    return position
