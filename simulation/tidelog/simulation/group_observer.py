"""What a coordinator says of a group to somebody who is no member: state, members, offsets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages
from tidelog.simulation.group_member import GroupPlan
from tidelog.simulation.group_messages import GROUP_KEY
from tidelog.simulation.history import Violation
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.simulation.sim_coordination import Coordinator

E = ErrorCode
_RETRY_S: Final = 0.100
_PATIENCE_S: Final = 30.0
_STABLE: Final = "Stable"


@dataclass(frozen=True, slots=True)
class GroupState:
    """Of a group; ``members`` with their assignments, in order of their ids."""

    coordinator: int
    state: str
    epochs: tuple[int, ...]
    members: tuple[tuple[object, ...], ...]
    offsets: dict[int, int]

    @property
    def is_stable(self) -> bool:
        return self.state == _STABLE

    @property
    def comparable(self) -> tuple[object, ...]:
        """All that the next coordinator must know too."""
        return (self.state, self.epochs, self.members, sorted(self.offsets.items()))


class NotTold(Exception):
    """The coordinator does not tell, for now."""


async def observe(
    client: SimKafkaClient, plan: GroupPlan, *, not_at: int | None = None
) -> GroupState:
    """As soon as a coordinator (another than this node) tells all of it."""
    coordinator = Coordinator(client, GROUP_KEY, plan.group)
    deadline_s = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        try:
            state = await _observe(coordinator, plan)
            if state.coordinator != not_at:
                return state
            problem = f"node {not_at} still coordinates"
        except (NoAnswer, NotTold) as reason:
            problem = f"node {coordinator.node}: {reason}"
        if asyncio.get_running_loop().time() > deadline_s:
            raise Violation(f"{plan.group} is not told of for {_PATIENCE_S:g} s: {problem}")
        coordinator.node = None
        await asyncio.sleep(_RETRY_S)


async def _observe(coordinator: Coordinator, plan: GroupPlan) -> GroupState:
    offsets = await _offsets(coordinator, plan)
    describe = _describe_classic if plan.is_classic else _describe_consumer
    state, epochs, members = await describe(coordinator, plan.group)
    assert coordinator.node is not None
    return GroupState(coordinator.node, state, epochs, members, offsets)


def _require_told(code: Any, what: str) -> None:
    if int(code) != E.NONE:
        raise NotTold(f"{what} was answered {ErrorCode(int(code)).name}")


async def _offsets(coordinator: Coordinator, plan: GroupPlan) -> dict[int, int]:
    request = group_messages.offset_fetch(plan.group, plan.topic, range(plan.partitions))
    (group,) = (await coordinator.ask(request, 3.0)).groups
    _require_told(group.error_code, "OffsetFetch")
    rows = group.topics[0].partitions
    for row in rows:
        _require_told(row.error_code, "OffsetFetch")
    return {
        int(row.partition_index): int(row.committed_offset)
        for row in rows
        if int(row.committed_offset) > 0
    }


_Described = tuple[str, tuple[int, ...], tuple[tuple[object, ...], ...]]


async def _describe_classic(coordinator: Coordinator, name: str) -> _Described:
    answer = await coordinator.ask(group_messages.describe_group(name), 3.0)
    (group,) = answer.groups
    _require_told(group.error_code, "DescribeGroups")
    members = sorted(
        (str(one.member_id), str(one.group_instance_id), bytes(one.member_assignment).hex())
        for one in group.members
    )
    return str(group.group_state), (), tuple(members)


async def _describe_consumer(coordinator: Coordinator, name: str) -> _Described:
    answer = await coordinator.ask(group_messages.describe_consumer_group(name), 3.0)
    (group,) = answer.groups
    _require_told(group.error_code, "ConsumerGroupDescribe")
    members = sorted(
        (
            str(one.member_id), str(one.instance_id), int(one.member_epoch),
            _partitions(one.assignment), _partitions(one.target_assignment),
        )
        for one in group.members
    )  # fmt: skip
    epochs = (int(group.group_epoch), int(group.assignment_epoch))
    return str(group.group_state), epochs, tuple(members)


def _partitions(assignment: Any) -> tuple[int, ...]:
    return tuple(
        sorted(int(index) for topic in assignment.topic_partitions for index in topic.partitions)
    )
