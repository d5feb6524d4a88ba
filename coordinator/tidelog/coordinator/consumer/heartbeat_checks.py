"""What is wrong with a heartbeat before anybody looks at the group, in Kafka's order."""

from __future__ import annotations

from tidelog.coordinator.consumer.context import ConsumerGroupSettings
from tidelog.coordinator.consumer.events import ConsumerHeartbeat
from tidelog.coordinator.consumer.members import AWAY, JOINING
from tidelog.kernel.errors import ErrorCode

Refusal = tuple[ErrorCode, str]


def check_heartbeat(
    group_id: str, event: ConsumerHeartbeat, settings: ConsumerGroupSettings
) -> Refusal | None:
    wrong = _empty_text(group_id, event) or _wrong_epoch(event)
    if wrong is not None:
        return ErrorCode.INVALID_REQUEST, wrong
    asked = event.server_assignor
    if asked is not None and asked not in settings.assignors:
        offered = ", ".join(settings.assignors)
        message = f"there is no server assignor {asked!r}; on offer are: {offered}"
        return ErrorCode.UNSUPPORTED_ASSIGNOR, message
    return None


def _empty_text(group_id: str, event: ConsumerHeartbeat) -> str | None:
    if not event.member_id and (event.has_own_id or event.member_epoch != JOINING):
        return "the member id must not be empty"
    if not group_id:
        return "the group id must not be empty"
    if event.instance_id == "":
        return "the instance id must not be empty"
    if event.rack_id == "":
        return "the rack id must not be empty"
    return None


def _wrong_epoch(event: ConsumerHeartbeat) -> str | None:
    if event.member_epoch < AWAY:
        return f"{event.member_epoch} is not a member epoch"
    if event.member_epoch == AWAY and event.instance_id is None:
        return "only a member with an instance id can leave for a while"
    if event.member_epoch != JOINING:
        return None
    if event.rebalance_timeout_ms == -1:
        return "who joins must give its rebalance time-out"
    if event.owned is None or event.owned:
        return "who joins must own no partitions, and say so"
    if event.topic_names is None and event.topic_regex is None:
        return "who joins must subscribe to topics by name or by a regular expression"
    return None
