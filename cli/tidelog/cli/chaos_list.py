"""``tidelog chaos list``: what can be asked for, and where it can be done."""

from __future__ import annotations

import json
from collections.abc import Mapping

import typer

from tidelog.chaos.faults.table import FAULTS, Family
from tidelog.chaos.run_targets import OWN_TARGETS, discard, make_target
from tidelog.chaos.targets.base import TargetError
from tidelog.chaos.workloads.all_workloads import WORKLOADS
from tidelog.cli.tables import table

_NODES = 3


def list_chaos(*, as_json: bool) -> None:
    reasons = {name: cannot_here(name) for name in OWN_TARGETS}
    typer.echo(as_text(reasons) if not as_json else json.dumps(as_document(reasons), indent=2))


def cannot_here(target: str) -> Mapping[str, str]:
    """By fault: why this machine cannot do it to such a target."""
    try:
        asked = make_target(target, _NODES, {}, is_rigged=True)
    except TargetError as error:
        return dict.fromkeys(FAULTS, str(error))
    try:
        answers = {fault: asked.cannot(fault) for fault in FAULTS}
    finally:
        discard(asked)
    return {fault: reason for fault, reason in answers.items() if reason is not None}


def as_text(reasons: Mapping[str, Mapping[str, str]]) -> str:
    rows = [
        (
            fault.name,
            *("no" if fault.name in reasons[target] else "yes" for target in reasons),
            f"{fault.min_nodes}",
            _lasts(*fault.lasts_s),
            fault.doc,
        )
        for fault in FAULTS.values()
    ]
    families = [
        (family.value, ", ".join(f.name for f in FAULTS.values() if f.family is family))
        for family in Family
    ]
    parts = [
        "Workloads",
        table(("NAME", "WHAT"), [(name, row.doc) for name, row in WORKLOADS.items()]),
        "\nFaults, and whether this machine can do them to each target",
        table(("NAME", *(t.upper() for t in reasons), "NODES", "LASTS", "WHAT"), rows),
        "\nFamilies of faults",
        table(("NAME", "FAULTS"), families),
    ]
    if whys := _whys(reasons):
        parts += ["\nWhy not", table(("TARGET", "REASON", "FAULTS"), whys)]
    return "\n".join(parts)


def as_document(reasons: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    return {
        "workloads": [{"name": name, "doc": row.doc} for name, row in WORKLOADS.items()],
        "faults": [
            {
                "name": fault.name,
                "family": fault.family.value,
                "doc": fault.doc,
                "min_nodes": fault.min_nodes,
                "lasts_s": list(fault.lasts_s),
                "targets": {target: reasons[target].get(fault.name) for target in reasons},
            }
            for fault in FAULTS.values()
        ],
    }


def _lasts(low_s: float, high_s: float) -> str:
    return "-" if high_s == 0 else f"{low_s:g}–{high_s:g} s"


def _whys(reasons: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Faults that have a reason in common share a line."""
    rows = []
    for target, by_fault in reasons.items():
        faults: dict[str, list[str]] = {}
        for fault, reason in by_fault.items():
            faults.setdefault(reason.removeprefix(fault).lstrip(": "), []).append(fault)
        for reason, names in faults.items():
            shown = "all" if len(names) == len(FAULTS) else ", ".join(names)
            rows.append((target, reason, shown))
    return rows
