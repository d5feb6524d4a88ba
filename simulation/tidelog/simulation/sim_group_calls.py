"""Single calls of a consumer group's members: join and fall silent, commit, look.

For tests of what becomes of groups over time. Members that live on are in ``classic_member``.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages
from tidelog.simulation.group_messages import GROUP_KEY
from tidelog.simulation.sim_answers import CallFailed, check
from tidelog.simulation.sim_client import SimKafkaClient
from tidelog.simulation.sim_coordination import Coordinator

_CALL_S: Final = 5.0
_PROTOCOL: Final = "range"
_NO_GENERATION: Final = -1


async def join_group(client: SimKafkaClient, group: str, session_timeout_ms: int) -> str:
    """Join and take no partition; the member's id.

    Others are waited for until their sessions are over, if they are silent.
    """
    coordinator = Coordinator(client, GROUP_KEY, group)
    member = ""
    while True:
        request = group_messages.join_group(
            group,
            member,
            None,
            _PROTOCOL,
            b"",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
        )
        answer = await coordinator.ask(request, session_timeout_ms / 1000 + _CALL_S)
        member = str(answer.member_id)
        if ErrorCode(int(answer.error_code)) is not ErrorCode.MEMBER_ID_REQUIRED:
            break
    check(f"group {group!r} took no member", answer.error_code)
    shares = {member: b""} if str(answer.leader) == member else {}
    request = group_messages.sync_group(
        group, int(answer.generation_id), member, None, _PROTOCOL, shares
    )
    synced = await coordinator.ask(request, _CALL_S)
    check(f"group {group!r} gave its member nothing", synced.error_code)
    return member


async def group_members(client: SimKafkaClient, group: str) -> tuple[str, ...]:
    """The ids of those whose sessions are not over."""
    request = group_messages.describe_group(group)
    answer = await Coordinator(client, GROUP_KEY, group).ask(request, _CALL_S)
    (found,) = answer.groups
    code = ErrorCode(int(found.error_code))
    if code is not ErrorCode.GROUP_ID_NOT_FOUND:
        check(f"group {group!r} could not be described", code)
    return tuple(str(one.member_id) for one in found.members)


async def commit(
    client: SimKafkaClient, group: str, topic: str, partition: int, offset: int
) -> None:
    """As a program that is no member does, of a group that has none."""
    request = group_messages.offset_commit(
        group, _NO_GENERATION, "", None, topic, {partition: offset}
    )
    answer = await Coordinator(client, GROUP_KEY, group).ask(request, _CALL_S)
    (row,) = answer.topics[0].partitions
    check(f"group {group!r} could not commit {topic}-{partition}", row.error_code)


async def committed(client: SimKafkaClient, group: str, topic: str, partition: int) -> int | None:
    request = group_messages.offset_fetch(group, topic, [partition])
    answer = await Coordinator(client, GROUP_KEY, group).ask(request, _CALL_S)
    (found,) = answer.groups
    check(f"offsets of group {group!r} could not be read", found.error_code)
    (row,) = found.topics[0].partitions
    if ErrorCode(int(row.error_code)) is not ErrorCode.NONE:
        raise CallFailed(f"{topic}-{partition}", ErrorCode(int(row.error_code)))
    offset = int(row.committed_offset)
    return offset if offset >= 0 else None
