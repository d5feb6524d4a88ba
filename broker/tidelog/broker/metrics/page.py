"""A page of metrics in Prometheus' text format.

Written here and not by prometheus-client, which makes the page of a node with 2,000 partitions
(some 24,000 samples) in several times the time, nearly all of it for copying labels, and at one
go: that would hold the event loop up for longer than anything may. `make bench-scrape` measures
both. Tests read the pages with prometheus-client, so that the two agree on the format.

A sample that is not in the table cannot be added. Samples of one metric stand together, as the
format demands, in the order of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.broker.metrics.table import METRICS
from tidelog.kernel.meters import Spread, quantile

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def labels(*pairs: tuple[str, object]) -> str:
    """What stands in braces, the braces left out."""
    return ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs)


class Page:
    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {name: [] for name in METRICS}
        self.count = 0

    def add(self, name: str, value: float, labelled: str = "") -> None:
        braces = f"{{{labelled}}}" if labelled else ""
        self._samples[name].append(f"{name}{braces} {value}\n")
        self.count += 1

    def add_rows(self, name: str, rows: Iterable[tuple[str, int]]) -> None:
        """Samples with labels, many at a time."""
        lines = [f"{name}{{{labelled}}} {value}\n" for labelled, value in rows]
        self._samples[name].extend(lines)
        self.count += len(lines)

    def add_seconds(self, name: str, spread: Spread, labelled: str = "") -> None:
        """A histogram, told in seconds."""
        comma = "," if labelled else ""
        lines, below = self._samples[name], 0
        for bound, count in zip(spread.bounds, spread.counts, strict=False):
            below += count
            lines.append(f'{name}_bucket{{{labelled}{comma}le="{bound / 1000:g}"}} {below}\n')
        below += spread.counts[-1]
        lines.append(f'{name}_bucket{{{labelled}{comma}le="+Inf"}} {below}\n')
        braces = f"{{{labelled}}}" if labelled else ""
        lines.append(f"{name}_sum{braces} {spread.total / 1000}\n")
        lines.append(f"{name}_count{braces} {below}\n")
        self.count += len(spread.counts) + 2

    def add_quantiles(
        self, name: str, spread: Spread, recent: list[int], labelled: str = ""
    ) -> None:
        """A summary; ``recent`` are the counts that the quantiles are of."""
        comma = "," if labelled else ""
        lines = self._samples[name]
        for share in QUANTILES:
            value = quantile(spread.bounds, recent, share)
            lines.append(f'{name}{{{labelled}{comma}quantile="{share}"}} {value:g}\n')
        braces = f"{{{labelled}}}" if labelled else ""
        lines.append(f"{name}_sum{braces} {spread.total}\n")
        lines.append(f"{name}_count{braces} {spread.count}\n")
        self.count += len(QUANTILES) + 2

    def blocks(self) -> Iterator[bytes]:
        """The text, one metric after the other; what has no samples is left out."""
        for name, lines in self._samples.items():
            if lines:
                metric = METRICS[name]
                text = metric.help.translate(_HELP_ESCAPES)
                head = f"# HELP {name} {text}\n# TYPE {name} {metric.kind.value}\n"
                yield (head + "".join(lines)).encode()
