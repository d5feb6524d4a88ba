"""Consumer groups as their coordinators describe them, whichever protocol their members speak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.cli.brokers import Brokers, Place, by_topic, error_text, fail_on, patiently
from tidelog.cli.failures import CommandFailed
from tidelog.cli.partition_offsets import LATEST, list_offsets
from tidelog.cli.questions import question
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

DEAD: Final = "Dead"
EMPTY: Final = "Empty"
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Listed:
    group: str
    type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    type: str
    state: str
    strategy: str
    coordinator_id: int
    coordinator: str
    members: tuple[Member, ...] = ()

    @property
    def is_active(self) -> bool:
        return self.state not in (EMPTY, DEAD)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a group is in one partition."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: Member | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


def list_groups(
    brokers: Brokers, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[Listed]:
    """Every broker tells of the groups it coordinates."""
    request = question(ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)
    found: dict[str, Listed] = {}
    for node_id in brokers.describe().live:
        connection = brokers.to(node_id)
        answer: Any = patiently(lambda connection=connection: connection.ask(request))  # type: ignore[misc]
        fail_on(answer, f"broker {node_id} does not list its groups")
        for one in answer.groups:
            found[str(one.group_id)] = Listed(
                str(one.group_id), str(one.group_type), str(one.group_state), str(one.protocol_type)
            )
    return [found[name] for name in sorted(found)]


def describe_group(brokers: Brokers, name: str) -> Group | None:
    """None if there is no such group."""
    node = brokers.coordinator_node(name)
    connection = brokers.at(node.address)
    if connection.serves(ApiKey.CONSUMER_GROUP_DESCRIBE, 0):
        request = question(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 0, group_ids=[name], include_authorized_operations=False
        )
        found = brokers.ask_coordinator(name, request, lambda answer: answer.groups[0])
        if int(found.error_code) != ErrorCode.GROUP_ID_NOT_FOUND:
            fail_on(found, f"group {name!r} cannot be described")
            members = tuple(_consumer_member(one) for one in found.members)
            strategy = str(found.assignor_name)
            state = str(found.group_state)
            return Group(name, "Consumer", state, strategy, node.node_id, node.address, members)
    return _describe_classic(brokers, name, node.node_id, node.address)


def _describe_classic(brokers: Brokers, name: str, node_id: int, address: str) -> Group | None:
    request = question(
        ApiKey.DESCRIBE_GROUPS, 5, groups=[name], include_authorized_operations=False
    )
    found = brokers.ask_coordinator(name, request, lambda answer: answer.groups[0])
    fail_on(found, f"group {name!r} cannot be described")
    if found.group_state == DEAD:
        return None
    members = tuple(_classic_member(one, str(found.protocol_type)) for one in found.members)
    strategy = str(found.protocol_data)
    return Group(name, "Classic", str(found.group_state), strategy, node_id, address, members)


def existing_group(brokers: Brokers, name: str) -> Group:
    group = describe_group(brokers, name)
    if group is None:
        raise CommandFailed(f"Consumer group '{name}' does not exist; tidelog group list")
    return group


def _consumer_member(member: Any) -> Member:
    places = (
        (str(topic.topic_name), int(partition))
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    )
    return Member(
        str(member.member_id),
        member.instance_id,
        str(member.client_id),
        str(member.client_host),
        tuple(sorted(places)),
    )


def _classic_member(member: Any, protocol_type: str) -> Member:
    return Member(
        str(member.member_id),
        member.group_instance_id,
        str(member.client_id),
        str(member.client_host),
        _assigned(bytes(member.member_assignment)) if protocol_type == "consumer" else (),
    )


def _assigned(data: bytes) -> tuple[Place, ...]:
    """What a member says it was given; other clients' bytes that nobody can read are nothing."""
    from tidelog.coordinator.record_fields import MalformedRecord
    from tidelog.coordinator.subscriptions import decode_assignment

    if not data:
        return ()
    try:
        partitions = decode_assignment(data).partitions
    except MalformedRecord:
        return ()
    return tuple(sorted((one.topic, int(one.partition)) for one in partitions))


def committed_offsets(
    brokers: Brokers, name: str, places: Iterable[Place] | None = None
) -> dict[Place, int]:
    """What a group has committed, of these partitions or of all; nothing for the others."""
    topics = None
    if places is not None:
        topics = [
            {"name": topic, "partition_indexes": partitions}
            for topic, partitions in by_topic(places).items()
        ]
    request = question(
        ApiKey.OFFSET_FETCH,
        8,
        groups=[{"group_id": name, "topics": topics}],
        require_stable=False,
    )
    answer = brokers.ask_coordinator(name, request, lambda answer: answer.groups[0])
    if int(answer.error_code) == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    fail_on(answer, f"the offsets of group {name!r}")
    found: dict[Place, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            place = str(topic.name), int(one.partition_index)
            if (problem := error_text(one)) is not None:
                raise CommandFailed(
                    f"the offset of group {name!r} in {place[0]}-{place[1]}: {problem}"
                )
            if int(one.committed_offset) != _NO_OFFSET:
                found[place] = int(one.committed_offset)
    return dict(sorted(found.items()))


def positions(brokers: Brokers, group: Group) -> list[Position]:
    """What the group has committed, and what its members have been given."""
    owners = {place: member for member in group.members for place in member.assignment}
    committed = committed_offsets(brokers, group.name)
    places = sorted({*committed, *owners})
    leaders = brokers.leaders()
    ends = list_offsets(brokers, leaders, places, LATEST)
    return [
        Position(
            *place,
            committed.get(place),
            None if ends[place].error is not None else ends[place].offset,
            owners.get(place),
        )
        for place in places
    ]
