"""``tidelog group explain``: why a group rebalanced, how long each took, and who held it up.

The coordinator remembers; who that is may have changed, so that all brokers are asked and what
they remember is put in order of time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tidelog.cli.brokers import Brokers
from tidelog.cli.failures import CommandFailed
from tidelog.cli.groups import existing_group
from tidelog.cli.node_http import NoHttp, fetch, find_http, quoted

_NEVER_RAN: Final = (
    "no broker tells of rebalances over HTTP; set http.listener so that this machine reaches it, "
    "or look for the group's name in the brokers' logs"
)


@dataclass(frozen=True, slots=True)
class Remembered:
    """One rebalance, as the broker that led it remembers it."""

    broker: int
    started_ms: int
    joined_ms: int | None
    ended_ms: int | None
    generation: int | None
    causes: tuple[tuple[str, str], ...]
    """Members, and what they did."""
    causes_left_out: int
    last_to_join: str | None
    dropped: tuple[str, ...]

    @property
    def duration_ms(self) -> int | None:
        return None if self.ended_ms is None else self.ended_ms - self.started_ms


def explain(bootstrap: str, name: str, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        existing_group(brokers, name)
        found, problems = _ask_all(brokers, name)
    for text in problems:
        print(text, file=sys.stderr)
    if found is None:
        raise CommandFailed(_NEVER_RAN)
    if as_json:
        print(json.dumps([_as_object(one) for one in found]))
    elif not found:
        print(f"Group '{name}' has not rebalanced since its coordinator took over.")
    else:
        print("\n".join(line for one in found for line in lines(one)))


def _ask_all(brokers: Brokers, name: str) -> tuple[list[Remembered] | None, list[str]]:
    """None if the group's coordinator was not among those that answered."""
    found: list[Remembered] = []
    problems = []
    is_coordinated = False
    for node_id, node in brokers.describe().live.items():
        try:
            address = find_http(brokers, node)
            told = fetch(address, f"/v1/groups/{quoted(name)}/rebalances").document
        except (NoHttp, CommandFailed) as problem:
            problems.append(f"broker {node_id}: {problem}")
            continue
        is_coordinated |= bool(told["coordinated_here"])
        found += [remembered(node_id, one) for one in told["rebalances"]]
    found.sort(key=lambda one: one.started_ms)
    return found if is_coordinated or found else None, problems


def remembered(broker: int, one: dict[str, Any]) -> Remembered:
    return Remembered(
        broker,
        one["started_ms"],
        one["joined_ms"],
        one["ended_ms"],
        one["generation"],
        tuple((cause["member_id"], cause["kind"]) for cause in one["causes"]),
        one["causes_left_out"],
        one["last_to_join"],
        tuple(one["dropped"]),
    )


def lines(one: Remembered) -> Iterator[str]:
    generation = "" if one.generation is None else f"  generation {one.generation}"
    yield f"{_moment(one.started_ms)}{generation}  {_took(one)}  (broker {one.broker})"
    for member, kind in one.causes:
        yield f"    because {member} {kind}"
    if one.causes_left_out:
        yield f"    and {one.causes_left_out} more causes"
    yield from _held_up(one)


def _held_up(one: Remembered) -> Iterator[str]:
    if one.dropped:
        yield f"    held up by {_listed(one.dropped)}, who did not join again in time"
    elif one.last_to_join is not None and one.joined_ms is not None:
        yield f"    last to join: {one.last_to_join}, after {one.joined_ms - one.started_ms} ms"


def _took(one: Remembered) -> str:
    if one.duration_ms is None:
        return "not finished" if one.joined_ms is None else "waits for the assignment"
    if one.joined_ms is None:
        return f"took {one.duration_ms} ms"
    joining_ms = one.joined_ms - one.started_ms
    syncing_ms = (one.ended_ms or one.joined_ms) - one.joined_ms
    return f"took {one.duration_ms} ms: {joining_ms} ms to join, {syncing_ms} ms to be assigned"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _moment(timestamp_ms: int) -> str:
    seconds, rest_ms = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest_ms:03d}"


def _as_object(one: Remembered) -> dict[str, Any]:
    return {
        "broker": one.broker,
        "started_ms": one.started_ms,
        "joined_ms": one.joined_ms,
        "ended_ms": one.ended_ms,
        "duration_ms": one.duration_ms,
        "generation": one.generation,
        "causes": [{"member_id": member, "kind": kind} for member, kind in one.causes],
        "causes_left_out": one.causes_left_out,
        "last_to_join": one.last_to_join,
        "dropped": list(one.dropped),
    }
