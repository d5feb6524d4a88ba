"""Who may commit and fetch offsets of a group of the consumer protocol.

A commit with the member's epoch is accepted, whatever the group is doing. One with an older epoch
is accepted for partitions that the member has had since that epoch or before (KIP-1251): nobody
else can have committed for them meanwhile, and the member only missed an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.commit_checks import Committer
from tidelog.coordinator.consumer.members import Member
from tidelog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from tidelog.coordinator.offsets import Place
from tidelog.kernel.errors import ErrorCode

FIRST_VERSION_WITH_EPOCHS = 9
"""Of OffsetCommit: from here on its generation may be a member epoch."""


def check_consumer_commit(
    group: ConsumerGroup, sender: Committer, version: int, places: Iterable[Place]
) -> ErrorCode:
    """The error of a whole OffsetCommit, or NONE."""
    if group.state is ConsumerGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if sender.generation < 0 and group.state is ConsumerGroupState.EMPTY:
        return ErrorCode.NONE
    member = group.member(sender.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not member.is_classic and version < FIRST_VERSION_WITH_EPOCHS:
        return ErrorCode.UNSUPPORTED_VERSION
    return _check_epoch(group, member, sender.generation, places)


def check_consumer_transactional_commit(
    group: ConsumerGroup, sender: Committer, places: Iterable[Place]
) -> ErrorCode:
    """As for a plain commit, but producers need not be members (KIP-447): then all is allowed."""
    if group.state is ConsumerGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if sender == Committer():
        return ErrorCode.NONE
    member = group.member(sender.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _check_epoch(group, member, sender.generation, places)


def check_consumer_fetch(
    group: ConsumerGroup, member_id: str | None, member_epoch: int
) -> ErrorCode:
    """The error of an OffsetFetch for the group; who gives no member id and epoch may see all."""
    if group.state is ConsumerGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = group.member(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.epoch else _wrong_epoch(member)


def _check_epoch(
    group: ConsumerGroup, member: Member, epoch: int, places: Iterable[Place]
) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    if member.is_classic or epoch > member.epoch:
        return _wrong_epoch(member)
    for topic, partition in places:
        since = group.holds_since(member, topic, partition)
        if since is None or since > epoch:
            return _wrong_epoch(member)
    return ErrorCode.NONE


def _wrong_epoch(member: Member) -> ErrorCode:
    """In the words that each kind of member knows."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
