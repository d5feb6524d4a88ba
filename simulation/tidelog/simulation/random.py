"""Chance from a seed, split by purpose so that one consumer never shifts another's draws."""

from __future__ import annotations

import hashlib
import random


class SimRandom(random.Random):
    """``random.Random`` that knows its seed and can be forked by name."""

    def __init__(self, seed: int) -> None:
        self.initial_seed = seed
        super().__init__(seed)

    def fork(self, name: str) -> SimRandom:
        """An independent source for one purpose.

        It depends on the seed and the name alone, not on how many numbers were drawn so far.
        The built-in ``hash`` is of no use here: it differs from process to process.
        """
        digest = hashlib.sha256(f"{self.initial_seed}/{name}".encode()).digest()
        return SimRandom(int.from_bytes(digest[:16], "big"))
