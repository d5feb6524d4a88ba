"""Consumer groups in the columns of kafka-consumer-groups, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.cli.brokers import Place, by_topic
from tidelog.cli.groups import Group, Listed, Member, Position
from tidelog.cli.tables import or_dash, table

OFFSETS_HEADER = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
    "HOST", "CLIENT-ID",
)  # fmt: skip


def list_text(groups: Sequence[Listed], *, with_state: bool, with_type: bool) -> str:
    if not with_state and not with_type:
        return "\n".join(one.group for one in groups)
    header = ["GROUP", *(["TYPE"] if with_type else []), *(["STATE"] if with_state else [])]
    rows = [
        [one.group, *([one.type] if with_type else []), *([one.state] if with_state else [])]
        for one in groups
    ]
    return table(header, rows)


def offsets_text(group: Group, positions: Sequence[Position]) -> str:
    rows: list[tuple[object, ...]] = [
        (
            group.name, one.topic, one.partition, or_dash(one.committed), or_dash(one.end),
            or_dash(one.lag), *_who(one.member),
        )
        for one in positions
    ]  # fmt: skip
    idle = [one for one in group.members if not one.assignment]
    rows += [(group.name, "-", "-", "-", "-", "-", *_who(one)) for one in idle]
    return table(OFFSETS_HEADER, rows)


def _who(member: Member | None) -> tuple[object, object, object]:
    if member is None:
        return "-", "-", "-"
    return member.member_id, or_dash(member.host), or_dash(member.client_id)


def members_text(group: Group, *, verbose: bool) -> str:
    header = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows: list[list[object]] = [
        [
            group.name, one.member_id, or_dash(one.instance_id), *_who(one)[1:],
            len(one.assignment), *([assignment_text(one.assignment)] if verbose else []),
        ]
        for one in group.members
    ]  # fmt: skip
    return table([*header, *(["ASSIGNMENT"] if verbose else [])], rows)


def assignment_text(places: Sequence[Place]) -> str:
    """``orders(0,1),payments(2)``."""
    parts = (f"{topic}({','.join(map(str, ps))})" for topic, ps in by_topic(places).items())
    return str(or_dash(",".join(parts)))


def state_text(groups: Sequence[Group]) -> str:
    header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    rows = [
        (
            one.name, f"{one.coordinator} ({one.coordinator_id})", or_dash(one.strategy),
            one.state, len(one.members),
        )
        for one in groups
    ]  # fmt: skip
    return table(header, rows)


def warning(group: Group) -> str | None:
    """What to know about a group whose numbers may surprise."""
    if group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        return f"Warning: Consumer group '{group.name}' is rebalancing."
    if not group.members:
        return f"Consumer group '{group.name}' has no active members."
    return None


def group_object(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "type": group.type,
        "state": group.state,
        "assignment_strategy": group.strategy,
        "coordinator": {"id": group.coordinator_id, "address": group.coordinator},
        "members": [
            {
                "member_id": one.member_id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "assignment": [
                    {"topic": topic, "partition": index} for topic, index in one.assignment
                ],
            }
            for one in group.members
        ],
    }


def position_object(one: Position) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "current_offset": one.committed,
        "log_end_offset": one.end,
        "lag": one.lag,
        "member_id": None if one.member is None else one.member.member_id,
    }
