"""The report of a run: one page that needs nothing but itself. Pure.

Everything is drawn before the page is written, so it shows without scripts, can be printed and can
be kept beside the history it tells of.
"""

from __future__ import annotations

from tidelog.chaos.availability import run_end_ms
from tidelog.chaos.history import History
from tidelog.chaos.report.drawing import element, escaped
from tidelog.chaos.report.gaps import draw_gaps
from tidelog.chaos.report.lanes import MOST_PARTITIONS, draw_lanes, node_classes, partitions_of
from tidelog.chaos.report.style import sheet
from tidelog.chaos.report.tables import (
    anomalies_of_kind,
    anomaly_counts,
    fault_effects,
    fault_summaries,
    notes,
)
from tidelog.chaos.report.timeline import draw_timeline, fault_colours
from tidelog.chaos.verdict import Verdict
from tidelog.chaos.verdict_text import milliseconds


def render_report(history: History, verdict: Verdict) -> str:
    """A whole HTML page."""
    run = history.header
    title = f"Chaos: {run.workload} on {run.target}, seed {run.seed}"
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        + element("title", escaped(title))
        + element("style", sheet())
    )
    body = "".join([
        _header(history, verdict),
        _tiles(history, verdict),
        _caveats(verdict),
        _anomalies(verdict) if not verdict.is_good else "",
        _timeline(history),
        _leadership(history),
        _faults(history, verdict),
        _anomalies(verdict) if verdict.is_good else "",
        _repeat(history),
        _notes(history),
    ])  # fmt: skip
    page = element("head", head) + element("body", element("main", body))
    return f"<!DOCTYPE html>\n{element('html', page, lang='en')}\n"


def _header(history: History, verdict: Verdict) -> str:
    run = history.header
    count = len(verdict.anomalies)
    plural = "anomaly" if count == 1 else "anomalies"
    said = "no anomaly" if verdict.is_good else f"{count:,} {plural}"
    badge = element(
        "span", said, class_=f"verdict {'good' if verdict.is_good else 'bad'}", id="verdict"
    )
    lead = f"{', '.join(run.faults) or 'no faults'} · seed {run.seed} · {run.started_at}"
    return element(
        "header",
        element("h1", escaped(f"Chaos: {run.workload} on {run.target}"))
        + badge
        + element("p", escaped(lead), class_="lead"),
    )


def _tiles(history: History, verdict: Verdict) -> str:
    totals, figures = verdict.totals, verdict.availability
    gaps = [one.gap_ms for one in figures.effects if one.gap_ms is not None]
    tiles = [
        (f"{totals.acknowledged:,}", "records acknowledged"),
        (f"{figures.acknowledged_per_s:,.0f}/s", "acknowledged on average"),
        (f"{totals.unknown:,}", "without an answer"),
        (f"{totals.failed:,}", "refused"),
        (f"{totals.read:,}", "records read"),
        (milliseconds(figures.latency_p50_ms), "latency p50"),
        (milliseconds(figures.latency_p99_ms), "latency p99"),
        (f"{len(history.faults):,}", "faults"),
        (milliseconds(max(gaps, default=None)), "longest gap"),
        (f"{totals.lasted_s:,.1f} s", "the run took"),
    ]
    return element(
        "div",
        "".join(
            element(
                "div", element("b", escaped(value)) + element("span", escaped(name)), class_="tile"
            )
            for value, name in tiles
        ),
        class_="tiles",
    )


def _caveats(verdict: Verdict) -> str:
    if not verdict.caveats:
        return ""
    return element(
        "ul", "".join(element("li", escaped(text)) for text in verdict.caveats), class_="caveats"
    )


def _section(title: str, said: str, content: str, class_: str | None = None) -> str:
    lead = element("p", escaped(said), class_="soft") if said else ""
    return element("section", element("h2", escaped(title)) + lead + content, class_=class_)


def _timeline(history: History) -> str:
    entries = [("line throughput", "acknowledged"), ("line in-vain", "refused or no answer")]
    entries += [("line p50", "latency p50"), ("line p99", "latency p99")]
    entries += [(class_, name) for name, class_ in fault_colours(history.faults).items()]
    return _section(
        "Throughput and latency",
        "A coloured band is a fault at work; rest the pointer on its mark to see which.",
        draw_timeline(history, run_end_ms(history)) + _legend(entries),
    )


def _leadership(history: History) -> str:
    drawn = draw_lanes(history.samples, history.faults, run_end_ms(history))
    if not drawn:
        return _section("Leadership and ISR", "The cluster was not asked about itself.", "")
    entries = [(class_, f"node {node}") for node, class_ in node_classes(history.samples).items()]
    entries += [("none", "nobody leads"), ("line isr", "ISR not full"), ("down", "not up")]
    left = len(partitions_of(history.samples)) - MOST_PARTITIONS
    more = f" {left} more partitions are not drawn." if left > 0 else ""
    return _section(
        "Leadership and ISR",
        "The colour of a lane is the node that leads; a red line below it means that replicas are "
        f"out of sync.{more}",
        drawn + _legend(entries),
    )


def _legend(entries: list[tuple[str, str]]) -> str:
    items = [element("li", element("i", class_=class_) + escaped(text)) for class_, text in entries]
    return element("ul", "".join(items), class_="legend")


def _faults(history: History, verdict: Verdict) -> str:
    figures = verdict.availability
    if not figures.effects:
        return _section("Faults", "There were none.", "")
    colours = fault_colours(history.faults)
    each = element("summary", f"Each of the {len(figures.effects):,} faults")
    return _section(
        "Gaps per fault",
        "A gap is the longest time, of any partition, in which a write waited and none was "
        "acknowledged while the fault acted; writes in transactions, which wait for more, are "
        "counted apart. The strokes are p50 and p99.",
        draw_gaps(figures, colours)
        + fault_summaries(figures.summaries, colours)
        + element("details", each + fault_effects(figures.effects, colours)),
    )


def _anomalies(verdict: Verdict) -> str:
    if verdict.is_good:
        return _section(
            "Anomalies", "None was found among all that was looked for.", anomaly_counts(verdict)
        )
    found = "".join(
        anomalies_of_kind(kind, [one for one in verdict.anomalies if one.kind is kind])
        for kind, count in verdict.counts().items()
        if count
    )
    return _section("Anomalies", "", anomaly_counts(verdict) + found, "bad")


def _repeat(history: History) -> str:
    run = history.header
    facts = {
        "seed": str(run.seed),
        "started": run.started_at,
        "target": run.target,
        "workload": run.workload,
        "faults": ", ".join(run.faults) or "none",
        "duration": f"{run.duration_s:g} s",
        **run.environment,
    }
    rows = "".join(
        element("dt", escaped(name)) + element("dd", escaped(value))
        for name, value in facts.items()
    )
    return _section(
        "To repeat it",
        "The seed draws the same faults at the same times; what the machine makes of them differs.",
        element("pre", escaped(run.command)) + element("dl", rows),
    )


def _notes(history: History) -> str:
    return _section("Notes of the run", "", notes(history.notes)) if history.notes else ""
