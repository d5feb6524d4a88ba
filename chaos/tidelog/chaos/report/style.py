"""How a report looks: one sheet, in light and in dark, on paper-wide screens and on phones."""

from __future__ import annotations

from typing import Final

_NODES: Final = ("#4269d0", "#3ca951", "#9c6b4e", "#97bbf5", "#5f6b7a", "#a5c94a", "#a463f2",
                 "#6cc5b0", "#c9a27c")  # fmt: skip
"""The first ones, which most clusters have, are none of the first ones of faults."""
_FAULTS: Final = ("#e45756", "#f2a900", "#7b6ad8", "#2a9d8f", "#d6499a", "#4c8bf5", "#8a9a3b",
                  "#b5653c")  # fmt: skip

_SHEET: Final = """
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --ink: #1d2125; --soft: #656d76; --rule: #e3e3de;
  --grid: #ecece8; --curve: #2f6fde; --area: #2f6fde22; --p50: #2f6fde; --p99: #d9822b;
  --good: #1a7f37; --good-tint: #dcf5e3; --bad: #c4262e; --bad-tint: #fde7e7; --warn: #8a6100;
  --warn-tint: #fff4d6; --down: #d5d5cf; --code: #f1f1ee;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121416; --card: #1a1d20; --ink: #e8eaec; --soft: #9aa4ae; --rule: #2c3136;
    --grid: #262b30; --curve: #6ea0ff; --area: #6ea0ff2a; --p50: #6ea0ff; --p99: #f0a35e;
    --good: #57c878; --good-tint: #16301f; --bad: #ff7b7b; --bad-tint: #3a1b1d; --warn: #e6b84f;
    --warn-tint: #332a12; --down: #3a4046; --code: #22262a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1200px; margin: 0 auto; padding: 28px 20px 64px; }
header { display: flex; flex-wrap: wrap; gap: 6px 16px; align-items: center; margin-bottom: 20px; }
h1 { font-size: 25px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 2px; letter-spacing: -0.005em; }
h3 { font-size: 15px; margin: 20px 0 4px; }
p { margin: 0 0 10px; }
.soft, .lead { color: var(--soft); }
.lead { flex-basis: 100%; margin: 0; }
.verdict { border-radius: 999px; padding: 3px 14px; font-weight: 650; }
.verdict.good { color: var(--good); background: var(--good-tint); }
.verdict.bad { color: var(--bad); background: var(--bad-tint); }
section {
  background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: 18px 20px; margin-top: 16px;
}
section > .soft { font-size: 13.5px; }
section.bad { border-color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(5, 1fr); gap: 12px; }
.tile {
  background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 12px 16px;
}
.tile b { display: block; font-size: 21px; line-height: 1.25; letter-spacing: -0.01em; }
.tile span { color: var(--soft); font-size: 13px; }
.caveats {
  background: var(--warn-tint); color: var(--warn); border-radius: 12px; padding: 12px 20px;
  margin: 16px 0 0; list-style: none; overflow-wrap: anywhere;
}
.scroll { overflow-x: auto; margin: 8px -4px 0; }
svg { display: block; width: 100%; min-width: 820px; height: auto; }
svg text { font-size: 11.5px; fill: var(--soft); }
svg text.caption, svg text.strong { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--grid); stroke-width: 1; }
.area { fill: var(--area); }
.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.curve.throughput { stroke: var(--curve); }
.curve.in-vain { stroke: var(--bad); stroke-dasharray: 3 2; }
.curve.p50 { stroke: var(--p50); }
.curve.p99 { stroke: var(--p99); }
.tint { fill: var(--c); opacity: 0.13; }
.mark { fill: var(--c); }
.mark.failed { opacity: 0.35; }
.dot { fill: var(--c); opacity: 0.55; }
.stroke { stroke-width: 2.5; stroke: var(--ink); }
.stroke.p99 { stroke: var(--p99); }
.lane { fill: var(--c); }
.lane.faint { opacity: 0.4; }
.lane.down { fill: var(--down); }
.lane.none, .isr { fill: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0 0; padding: 0;
  list-style: none; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; background: var(--c); }
.legend i.line { height: 3px; vertical-align: 3px; }
.legend i.throughput { --c: var(--curve); } .legend i.p50 { --c: var(--p50); }
.legend i.p99 { --c: var(--p99); } .legend i.in-vain, .legend i.isr { --c: var(--bad); }
.legend i.none { --c: var(--bad); } .legend i.down { --c: var(--down); }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 10px; font-size: 14px; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--rule);
  white-space: nowrap; vertical-align: top; }
th { color: var(--soft); font-weight: 550; font-size: 13px; }
td.n, th.n { text-align: right; }
td + td.n + td, th.n + th:not(.n) { padding-left: 14px; }
td.wide { white-space: normal; overflow-wrap: anywhere; min-width: 220px; }
td.hit { color: var(--bad); font-weight: 650; }
td i.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px;
  background: var(--c); margin-right: 8px; }
tr:last-child td { border-bottom: 0; }
details { margin-top: 10px; }
summary { cursor: pointer; color: var(--soft); }
.anomaly { border-top: 1px solid var(--rule); padding: 10px 0; }
.anomaly p { margin: 0; overflow-wrap: anywhere; }
.names { font-size: 13px; overflow-wrap: anywhere; columns: auto 150px; padding: 0;
  list-style: none; }
pre, code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--code); border-radius: 8px; padding: 10px 14px; overflow-x: auto;
  margin: 8px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: minmax(110px, max-content) 1fr; gap: 3px 20px;
  margin: 10px 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 900px) { .tiles { grid-template-columns: repeat(3, 1fr); } }
@media (max-width: 640px) {
  main { padding: 16px 12px 40px; } section { padding: 14px; border-radius: 10px; }
  h1 { font-size: 21px; } .tiles { grid-template-columns: repeat(2, 1fr); gap: 8px; }
  .tile { padding: 10px 12px; } .tile b { font-size: 18px; }
}
@media print { section, .tile { break-inside: avoid; } body { background: #fff; } }
"""


def sheet() -> str:
    nodes = "".join(f".n{at} {{ --c: {colour}; }}\n" for at, colour in enumerate(_NODES))
    faults = "".join(f".f{at} {{ --c: {colour}; }}\n" for at, colour in enumerate(_FAULTS))
    return _SHEET + nodes + faults
