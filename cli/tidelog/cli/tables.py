"""Rows in aligned columns, for people and for scripts that split at white space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, bare: bool = False) -> str:
    """``bare`` leaves the header out. Nothing at the ends of lines."""
    cells = [[str(one) for one in row] for row in rows]
    lines = cells if bare else [list(header), *cells]
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def or_dash(value: object) -> object:
    return "-" if value is None or value == "" else value
