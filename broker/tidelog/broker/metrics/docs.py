"""Writes docs/METRICS.md from the table: `python -m tidelog.broker.metrics.docs`."""

from __future__ import annotations

from typing import Final

from tidelog.broker.metrics.table import SECTIONS, Metric

_INTRODUCTION: Final = """\
# Metrics

<!-- Made by `python -m tidelog.broker.metrics.docs > docs/METRICS.md`; do not edit. -->

Every node tells these at `http://…:9644/metrics` (`http.listener`), in Prometheus' text format.
Names that begin with `kafka_` are those that dashboards for Apache Kafka use; the others are
Tidelog's own. A node tells what belongs to its roles: a node that is only a controller has no
replicas.

Labels in brackets are on some samples only, and the sample without is the sum over all, also over
topics that were deleted since: write `{topic=""}` for the sum and `{topic!=""}` for the topics.
A histogram has the samples `_bucket`, `_sum` and `_count`, a summary has `quantile`, `_sum` and
`_count`. Times are in seconds, or in milliseconds where Kafka's name says so.

Of Kafka's names these have nothing to tell here: `MetadataErrorCount` (a node that cannot apply a
record of the metadata stops), `RequestQueueSize`, `EventQueueTimeMs` and the parts of
`TotalTimeMs` (one event loop serves without queues, and `tidelog_event_loop_lag_seconds` says how
late it is), `LastAppliedRecordLagMs` (compare the offsets), and what belongs to quotas.
"""


def render() -> str:
    """The whole page."""
    lines = [_INTRODUCTION]
    for title, metrics in SECTIONS.items():
        lines += [
            f"## {title}",
            "",
            "| metric | type | labels | what it tells |",
            "|---|---|---|---|",
        ]
        lines += [_row(metric) for metric in metrics]
        lines.append("")
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    names = [*metric.labels, *(f"[{name}]" for name in metric.optional)]
    return f"| `{metric.name}` | {metric.kind.value} | {', '.join(names)} | {metric.help} |"


if __name__ == "__main__":
    print(render(), end="")
