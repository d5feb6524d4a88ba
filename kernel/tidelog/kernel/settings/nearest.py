"""The name somebody probably meant: the nearest by edit distance (Levenshtein)."""

from __future__ import annotations

from collections.abc import Iterable


def distance(one: str, other: str, limit: int) -> int:
    """How many letters to insert, delete or change; anything above `limit` is `limit` + 1."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, wanted in enumerate(other, start=1):
            changed = diagonal + (letter != wanted)
            diagonal = row[j]
            row[j] = min(changed, row[j] + 1, row[j - 1] + 1)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def nearest(name: str, names: Iterable[str], limit: int) -> str | None:
    """The name within `limit` edits of `name` that is nearest to it; the first of equals."""
    best: str | None = None
    for candidate in sorted(names):
        found = distance(name, candidate, limit)
        if found <= limit:
            best, limit = candidate, found - 1
    return best
