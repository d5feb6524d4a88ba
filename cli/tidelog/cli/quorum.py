"""The state of the controllers' quorum, in the columns of kafka-metadata-quorum."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidelog.cli.ask import Connection
from tidelog.cli.failures import CommandFailed
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID
from tidelog.wire.protocol.kio_values import from_kio_uuid

_METADATA_TOPIC = "__cluster_metadata"
_LABEL_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Replica:
    node_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    """−1 if the leader does not know."""
    last_caught_up_ms: int
    status: str
    endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quorum:
    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[Replica, ...]
    observers: tuple[Replica, ...]

    @property
    def leader(self) -> Replica:
        return next(voter for voter in self.voters if voter.node_id == self.leader_id)

    @property
    def max_follower_lag(self) -> int:
        return self.leader.log_end_offset - self._last().log_end_offset

    @property
    def max_follower_lag_ms(self) -> int:
        last = self._last()
        if last is self.leader:
            return 0
        if min(last.last_caught_up_ms, self.leader.last_caught_up_ms) < 0:
            return -1
        return self.leader.last_caught_up_ms - last.last_caught_up_ms

    def _last(self) -> Replica:
        return min(self.voters, key=lambda voter: voter.log_end_offset)

    def rows(self) -> list[Replica]:
        """The leader first."""
        followers = (voter for voter in self.voters if voter is not self.leader)
        return [self.leader, *followers, *self.observers]


def describe_quorum(
    bootstrap: str, *, replication: bool, human_readable: bool, as_json: bool
) -> None:
    with Connection(bootstrap) as connection:
        quorum = ask_quorum(connection)
    if as_json:
        print(json.dumps(as_object(quorum)))
    elif replication:
        print("\n".join(replication_table(quorum, _now_ms() if human_readable else None)))
    else:
        print("\n".join(status_lines(quorum)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def ask_quorum(connection: Connection) -> Quorum:
    from kio.schema.describe_cluster.v0.request import DescribeClusterRequest
    from kio.schema.describe_quorum.v2.request import (
        DescribeQuorumRequest,
        PartitionData,
        TopicData,
    )
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    asked = TopicData(
        topic_name=TopicName(_METADATA_TOPIC),
        partitions=(PartitionData(partition_index=i32(0)),),
    )
    answer = connection.ask(DescribeQuorumRequest(topics=(asked,)))
    _fail_on(answer.error_code, answer.error_message)
    partition = answer.topics[0].partitions[0]
    _fail_on(partition.error_code, partition.error_message)
    if partition.leader_id not in {voter.replica_id for voter in partition.current_voters}:
        raise CommandFailed("the quorum has no leader at the moment; ask again in a second")
    cluster = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    return _quorum(str(cluster.cluster_id), partition, answer.nodes)


def _fail_on(code: int, message: str | None) -> None:
    if int(code) != ErrorCode.NONE:
        error = ErrorCode(int(code))
        raise CommandFailed(f"the quorum cannot be described: {message or error.message}")


def _quorum(cluster_id: str, partition: Any, nodes: Sequence[Any]) -> Quorum:
    endpoints = {
        int(node.node_id): tuple(f"{one.name}://{one.host}:{one.port}" for one in node.listeners)
        for node in nodes
    }
    leader_id = int(partition.leader_id)

    def replica(state: Any, status: str) -> Replica:
        node_id = int(state.replica_id)
        return Replica(
            node_id,
            str(from_kio_uuid(state.replica_directory_id)),
            int(state.log_end_offset),
            int(state.last_fetch_timestamp),
            int(state.last_caught_up_timestamp),
            "Leader" if node_id == leader_id else status,
            endpoints.get(node_id, ()),
        )

    return Quorum(
        cluster_id,
        leader_id,
        int(partition.leader_epoch),
        int(partition.high_watermark),
        tuple(replica(state, "Follower") for state in partition.current_voters),
        tuple(replica(state, "Observer") for state in partition.observers),
    )


def status_lines(quorum: Quorum) -> list[str]:
    values = {
        "ClusterId": quorum.cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": quorum.max_follower_lag,
        "MaxFollowerLagTimeMs": quorum.max_follower_lag_ms,
        "CurrentVoters": _members(quorum.voters),
        "CurrentObservers": _members(quorum.observers),
    }
    return [f"{f'{label}:':<{_LABEL_WIDTH}}{value}" for label, value in values.items()]


def _members(replicas: Sequence[Replica]) -> str:
    members = []
    for replica in replicas:
        member: dict[str, Any] = {"id": replica.node_id}
        if replica.directory_id != str(ZERO_UUID):
            member["directoryId"] = replica.directory_id
        if replica.endpoints:
            member["endpoints"] = list(replica.endpoints)
        members.append(member)
    return json.dumps(members)


def replication_table(quorum: Quorum, now_ms: int | None) -> list[str]:
    """``now_ms`` turns timestamps into ages."""
    header = (
        "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp",
        "LastCaughtUpTimestamp", "Status",
    )  # fmt: skip
    rows = [header]
    for row in quorum.rows():
        rows.append(
            (
                str(row.node_id),
                row.directory_id,
                str(row.log_end_offset),
                str(quorum.leader.log_end_offset - row.log_end_offset),
                _moment(row.last_fetch_ms, now_ms),
                _moment(row.last_caught_up_ms, now_ms),
                row.status,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(r, widths, strict=True)) for r in rows
    ]


def _moment(timestamp_ms: int, now_ms: int | None) -> str:
    if now_ms is None or timestamp_ms < 0:
        return str(timestamp_ms)
    return f"{max(0, now_ms - timestamp_ms)} ms ago"


def as_object(quorum: Quorum) -> dict[str, Any]:
    return {
        "cluster_id": quorum.cluster_id,
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "max_follower_lag": quorum.max_follower_lag,
        "max_follower_lag_ms": quorum.max_follower_lag_ms,
        "replicas": [
            asdict(row) | {"lag": quorum.leader.log_end_offset - row.log_end_offset}
            for row in quorum.rows()
        ],
    }
