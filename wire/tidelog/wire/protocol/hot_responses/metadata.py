"""Metadata responses, versions 0 to 13: brokers, topics and, by far the most, partitions.

A partition is packed in one go with a layout that depends on the version and on how many replicas
it has; there are only a few such layouts in a cluster, so they are kept.

Racks came with version 1, the cluster's id with 2, offline replicas with 5 (KIP-112), leader epochs
with 7 (KIP-320), authorized operations with 8 (KIP-430), flexible fields with 9, topic ids with 10
(KIP-516), null names with 12, the error of the whole response with 13 (KIP-1102).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_NODE,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    TopicId,
)
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.hot_responses.leaders import NodeEndpoint
from tidelog.wire.protocol.primitives import compact_string, string, uvarint

OPERATIONS_NOT_ASKED: Final = -(2**31)
_API: Final = APIS[ApiKey.METADATA]
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_LAYOUTS: Final = 1024


class MetadataPartition(NamedTuple):
    error_code: ErrorCode
    partition: PartitionIndex
    leader_id: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    replicas: Sequence[NodeId] = ()
    in_sync_replicas: Sequence[NodeId] = ()
    offline_replicas: Sequence[NodeId] = ()


class MetadataTopic(NamedTuple):
    error_code: ErrorCode
    name: str | None
    """Null only for an unknown topic id, from version 12 on."""
    topic_id: TopicId
    partitions: Sequence[MetadataPartition] = ()
    is_internal: bool = False
    authorized_operations: int = OPERATIONS_NOT_ASKED


class MetadataResponse(NamedTuple):
    brokers: Sequence[NodeEndpoint]
    cluster_id: str | None
    controller_id: NodeId
    topics: Sequence[MetadataTopic]
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED
    error_code: ErrorCode = ErrorCode.NONE


def encode_metadata(version: int, correlation_id: int, response: MetadataResponse) -> ResponseFrame:
    body = _flexible_body(version, response) if version >= 9 else _legacy_body(version, response)
    return frame_response(_API, version, correlation_id, b"".join(body))


def _legacy_body(version: int, response: MetadataResponse) -> list[bytes]:
    pieces: list[bytes] = []
    if version >= 3:
        pieces.append(_I32.pack(response.throttle_time_ms))
    pieces.append(_I32.pack(len(response.brokers)))
    for broker in response.brokers:
        pieces += (_I32.pack(broker.node_id), string(broker.host), _I32.pack(broker.port))
        if version >= 1:
            pieces.append(string(broker.rack))
    if version >= 2:
        pieces.append(string(response.cluster_id))
    if version >= 1:
        pieces.append(_I32.pack(response.controller_id))
    pieces.append(_I32.pack(len(response.topics)))
    for topic in response.topics:
        _write_legacy_topic(version, topic, pieces)
    if version >= 8:
        pieces.append(_I32.pack(response.cluster_authorized_operations))
    return pieces


def _write_legacy_topic(version: int, topic: MetadataTopic, pieces: list[bytes]) -> None:
    pieces += (_I16.pack(topic.error_code), string(_named(version, topic)))
    if version >= 1:
        pieces.append(b"\1" if topic.is_internal else b"\0")
    pieces.append(_I32.pack(len(topic.partitions)))
    for error, index, leader, epoch, replicas, in_sync, offline in topic.partitions:
        counts = len(replicas), len(in_sync), len(offline)
        layout = _legacy_layout(min(version, 7), *counts)
        fixed = (error, index, leader, epoch) if version >= 7 else (error, index, leader)
        nodes = (*fixed, counts[0], *replicas, counts[1], *in_sync)
        pieces.append(
            layout.pack(*nodes, counts[2], *offline) if version >= 5 else layout.pack(*nodes)
        )
    if version >= 8:
        pieces.append(_I32.pack(topic.authorized_operations))


@lru_cache(_LAYOUTS)
def _legacy_layout(version: int, replicas: int, in_sync: int, offline: int) -> struct.Struct:
    epoch = "i" if version >= 7 else ""
    last = f"i{offline}i" if version >= 5 else ""
    return struct.Struct(f">hii{epoch}i{replicas}ii{in_sync}i{last}")


def _flexible_body(version: int, response: MetadataResponse) -> list[bytes]:
    pieces = [_I32.pack(response.throttle_time_ms), uvarint(len(response.brokers) + 1)]
    for broker in response.brokers:
        pieces += (
            _I32.pack(broker.node_id),
            compact_string(broker.host),
            _I32.pack(broker.port),
            compact_string(broker.rack),
            b"\0",
        )
    pieces += (compact_string(response.cluster_id), _I32.pack(response.controller_id))
    pieces.append(uvarint(len(response.topics) + 1))
    for topic in response.topics:
        _write_flexible_topic(version, topic, pieces)
    if version <= 10:
        pieces.append(_I32.pack(response.cluster_authorized_operations))
    if version >= 13:
        pieces.append(_I16.pack(response.error_code))
    pieces.append(b"\0")
    return pieces


def _write_flexible_topic(version: int, topic: MetadataTopic, pieces: list[bytes]) -> None:
    pieces += (_I16.pack(topic.error_code), compact_string(_named(version, topic)))
    if version >= 10:
        pieces.append(topic.topic_id.raw)
    pieces.append(b"\1" if topic.is_internal else b"\0")
    pieces.append(uvarint(len(topic.partitions) + 1))
    for error, index, leader, epoch, replicas, in_sync, offline in topic.partitions:
        layout, first, second, third = _flexible_layout(len(replicas), len(in_sync), len(offline))
        pieces.append(
            layout.pack(
                error, index, leader, epoch, first, *replicas, second, *in_sync, third, *offline, 0
            )
        )
    pieces += (_I32.pack(topic.authorized_operations), b"\0")


@lru_cache(_LAYOUTS)
def _flexible_layout(
    replicas: int, in_sync: int, offline: int
) -> tuple[struct.Struct, bytes, bytes, bytes]:
    """The layout and the three counts as varints, whose length is part of the layout."""
    first, second, third = (uvarint(count + 1) for count in (replicas, in_sync, offline))
    nodes = f"{len(first)}s{replicas}i{len(second)}s{in_sync}i{len(third)}s{offline}i"
    return struct.Struct(f">hiii{nodes}B"), first, second, third


def _named(version: int, topic: MetadataTopic) -> str | None:
    if topic.name is None and version < 12:
        raise ValueError(f"Metadata v{version} cannot say that topic {topic.topic_id} has no name")
    return topic.name
