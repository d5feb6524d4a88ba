"""Chance on a real machine: for jitter, back-off and ids, not for secrets."""

from __future__ import annotations

import os
import random


class SystemRandom(random.Random):
    """A ``Random`` seeded from the operating system, or from a given seed to repeat a run."""

    def __init__(self, seed: int | None = None) -> None:
        self.initial_seed = int.from_bytes(os.urandom(16), "big") if seed is None else seed
        super().__init__(self.initial_seed)
