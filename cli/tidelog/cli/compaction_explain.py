"""``tidelog explain compaction``: what of a topic is compacted, what is not, and why not.

Each replica compacts by itself, so every broker is asked for its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from tidelog.cli.brokers import Brokers
from tidelog.cli.failures import CommandFailed
from tidelog.cli.node_http import NoHttp, fetch, find_http, quoted

_NOBODY: Final = (
    "no broker told of this topic; set http.listener so that this machine reaches it, or use "
    "`tidelog log compact --dry-run` on a broker's files"
)


def explain(bootstrap: str, topic: str, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        found, problems = _ask_all(brokers, topic)
        if not found:
            brokers.leaders([topic])  # fails if there is no such topic, which says more
    for text in problems:
        print(text, file=sys.stderr)
    if not found:
        raise CommandFailed(_NOBODY)
    found.sort(key=lambda one: (one["partition"], one["broker"]))
    if as_json:
        print(json.dumps(found))
    else:
        print("\n".join(line for one in found for line in lines(topic, one)))


def _ask_all(brokers: Brokers, topic: str) -> tuple[list[dict[str, Any]], list[str]]:
    found: list[dict[str, Any]] = []
    problems = []
    for node_id, node in brokers.describe().live.items():
        try:
            told = fetch(find_http(brokers, node), f"/v1/topics/{quoted(topic)}/compaction")
        except (NoHttp, CommandFailed) as problem:
            problems.append(f"broker {node_id}: {problem}")
            continue
        found += [{"broker": node_id, **one} for one in told.document["replicas"]]
    return found, problems


def lines(topic: str, one: dict[str, Any]) -> Iterator[str]:
    """One replica, for people."""
    state = "is being cleaned" if one["in_progress"] else "due" if one["due"] else "not due"
    yield (
        f"{topic}-{one['partition']} on broker {one['broker']} ({one['role']}): {state}, dirty "
        f"ratio {one['dirty_ratio']:.2f}: clean below offset {one['clean_point']} "
        f"({one['clean_bytes']} bytes), cleanable below {one['first_uncleanable']} "
        f"({one['cleanable_bytes']} bytes)"
    )
    for reason in one["reasons"]:
        yield f"    held back: {_reason(reason)}"
    yield f"    tombstones and markers may go below offset {one['clean_floor']}"
    if one["waits_for"]:
        names = ", ".join(str(node) for node in one["waits_for"])
        yield f"    some have outlived their time and wait until broker {names} has cleaned"
    if one["next_horizon_ms"] is not None:
        yield f"    the next may go from {_moment(one['next_horizon_ms'])} on; delete.retention.ms"


def _reason(reason: dict[str, Any]) -> str:
    where = "" if reason["offset"] is None else f" from offset {reason['offset']}"
    detail = f" ({reason['detail']})" if reason["detail"] else ""
    setting = "" if reason["setting"] is None else f"; see {reason['setting']}"
    return f"{reason['hold']}{where}{detail}{setting}"


def _moment(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
