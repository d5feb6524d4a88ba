"""Requests of consumer groups for simulated clients: both protocols, offsets, descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.simulation.kafka_messages import Structs
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
CONSUMER: Final = "consumer"


def find_coordinator(key_type: int, key: str) -> Any:
    s = Structs(ApiKey.FIND_COORDINATOR, 4)
    return s.FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))


# --- the classic protocol --------------------------------------------------------------


def join_group(
    group: str,
    member_id: str,
    instance_id: str | None,
    protocol: str,
    subscription: bytes,
    *,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
) -> Any:
    s = Structs(ApiKey.JOIN_GROUP, 9)
    return s.JoinGroupRequest(
        group_id=group,
        session_timeout=duration_i32(session_timeout_ms),
        rebalance_timeout=duration_i32(rebalance_timeout_ms),
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=CONSUMER,
        protocols=(s.JoinGroupRequestProtocol(name=protocol, metadata=subscription),),
    )


def sync_group(
    group: str,
    generation: int,
    member_id: str,
    instance_id: str | None,
    protocol: str,
    assignments: Mapping[str, bytes],
) -> Any:
    s = Structs(ApiKey.SYNC_GROUP, 5)
    return s.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=CONSUMER,
        protocol_name=protocol,
        assignments=tuple(
            s.SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            for member, assignment in assignments.items()
        ),
    )


def heartbeat(group: str, generation: int, member_id: str, instance_id: str | None) -> Any:
    s = Structs(ApiKey.HEARTBEAT, 4)
    return s.HeartbeatRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def leave_group(group: str, member_id: str, instance_id: str | None) -> Any:
    s = Structs(ApiKey.LEAVE_GROUP, 5)
    member = s.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
    return s.LeaveGroupRequest(group_id=group, members=(member,))


# --- KIP-848 ---------------------------------------------------------------------------


def consumer_heartbeat(
    group: str,
    member_id: str,
    member_epoch: int,
    *,
    instance_id: str | None = None,
    rebalance_timeout_ms: int = -1,
    topics: tuple[str, ...] | None = None,
    assignor: str | None = None,
    owned: Mapping[Any, Iterable[int]] | None = None,
) -> Any:
    """``owned`` by topic id; None stands for what was said before, in every place."""
    s = Structs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    told = None
    if owned is not None:
        told = tuple(
            s.TopicPartitions(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in owned.items()
        )
    return s.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=member_epoch,
        instance_id=instance_id,
        rebalance_timeout=duration_i32(rebalance_timeout_ms),
        subscribed_topic_names=topics,
        server_assignor=assignor,
        topic_partitions=told,
    )


# --- offsets ---------------------------------------------------------------------------


def offset_commit(
    group: str,
    generation: int,
    member_id: str,
    instance_id: str | None,
    topic: str,
    offsets: Mapping[int, int],
) -> Any:
    """With the offset as its own metadata, so that a reader can tell whether both belong."""
    s = Structs(ApiKey.OFFSET_COMMIT, 9)
    partitions = tuple(
        s.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=str(offset)
        )
        for index, offset in offsets.items()
    )
    return s.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(s.OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )


def offset_fetch(
    group: str,
    topic: str,
    partitions: Iterable[int],
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> Any:
    s = Structs(ApiKey.OFFSET_FETCH, 9)
    wanted = s.OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(partitions))
    of_group = s.OffsetFetchRequestGroup(
        group_id=group, member_id=member_id, member_epoch=member_epoch, topics=(wanted,)
    )
    return s.OffsetFetchRequest(groups=(of_group,), require_stable=True)


# --- descriptions ----------------------------------------------------------------------


def describe_group(group: str) -> Any:
    s = Structs(ApiKey.DESCRIBE_GROUPS, 5)
    return s.DescribeGroupsRequest(groups=(group,), include_authorized_operations=False)


def describe_consumer_group(group: str) -> Any:
    s = Structs(ApiKey.CONSUMER_GROUP_DESCRIBE, 1)
    return s.ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
