"""What a spread has counted lately, from two looks at it that are a minute apart. Pure."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.meters import Spread

WINDOW_S: Final = 60.0


class Recent:
    """Of each spread the counts of the last one to two minutes, if it is looked at that often."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[list[int], list[int], float]] = {}
        """By name: the counts to measure from, the next ones to measure from, and since when."""

    def counts(self, name: str, spread: Spread, now_s: float) -> list[int]:
        current = list(spread.counts)
        base, following, since_s = self._looks.get(name, ([0] * len(current), current, now_s))
        if now_s - since_s >= WINDOW_S:
            base, following, since_s = following, current, now_s
        self._looks[name] = (base, following, since_s)
        return [now - before for now, before in zip(current, base, strict=True)]
