"""Bars of what was measured, one picture per kind of measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers.peer import Absence
from bench.peers.results import SELF, Results

PICTURES: Final = {
    "throughput": ("MB/s", ("produce 100 B", "produce 1 KB,", "produce 10 KB", "consume")),
    "latency": ("ms", ("produce latency", "end to end latency")),
    "growth": ("MB/s", ("produce 1 KB to", "produce 1 KB from")),
    "faults": ("s", ("start to", "failover", "recovery")),
    "memory": ("MB", ("idle memory, largest", "memory after", "memory with")),
}
"""By file: the unit, and how the names of its measures begin."""

_WIDE = ("ms", "s")
"""Units whose values lie so far apart that a straight scale would hide the small ones."""


def absence() -> Absence | None:
    try:
        import matplotlib  # noqa: F401 - whether it is there is the question
    except ImportError:
        return Absence("matplotlib is not installed", "make setup-peers")
    return None


def chosen(results: Results, beginnings: Sequence[str]) -> list[str]:
    """The measures of a picture that Tidelog and another peer have."""
    compared = {one.measure for one in results.measured if results.ratio(one) is not None}
    return [
        measure
        for measure in results.measures()
        if measure in compared and measure.startswith(tuple(beginnings))
    ]


def draw(results: Results, folder: Path, peers: Sequence[str]) -> Iterator[Path]:
    import matplotlib as mpl  # slow, and not installed everywhere

    mpl.use("Agg")
    from matplotlib import pyplot  # after its backend was chosen

    for name, (unit, beginnings) in PICTURES.items():
        measures = chosen(results, beginnings)
        if not measures:
            continue
        figure, axes = pyplot.subplots(figsize=(9, 1 + 0.5 * len(measures)))
        _bars(axes, results, measures, (SELF, *peers))
        is_wide = unit in _WIDE
        axes.set_xscale("log" if is_wide else "linear")
        axes.set_xlabel(f"{unit} (logarithmic)" if is_wide else unit)
        axes.set_title(f"{name}: three nodes and the client on one machine")
        figure.tight_layout()
        path = folder / f"peers_{name}.png"
        figure.savefig(path, dpi=90)
        pyplot.close(figure)
        yield path


def _bars(axes: Any, results: Results, measures: Sequence[str], peers: Sequence[str]) -> None:
    height = 0.8 / len(peers)
    for place, peer in enumerate(peers):
        found = [results.of(peer, measure) for measure in measures]
        axes.barh(
            [index + place * height for index in range(len(measures))],
            [0 if one is None else one.median for one in found],
            height,
            label=peer,
        )
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(measures))], measures)
    axes.invert_yaxis()
    axes.legend()
