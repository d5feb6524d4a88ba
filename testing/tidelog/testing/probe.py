"""Asking a node directly, over one short connection and without a client library.

Used to wait until a cluster serves: the answer to Metadata names the brokers that are alive. What
is asked here any Kafka-compatible node can answer.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import (
    frame_request,
    parse_response_header,
    read_frame_size,
)
from tidelog.wire.protocol.responses import decode_response

_METADATA_VERSION: Final = 9
_FIND_COORDINATOR_VERSION: Final = 1
_NO_TOPICS: Final = b"\x01\x00\x00\x00\x00"
"""An empty array of topics, no auto-creation, no authorized operations, no tags (version 9)."""
_METADATA_PARTITION: Final = b"\x02\x13__cluster_metadata\x02\x00\x00\x00\x00\x00\x00\x00"
"""DescribeQuorum version 0 of partition 0 of the metadata log."""
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


class ProbeFailed(Exception):
    """The node did not answer, or not with what was asked for."""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, SocketAddress]


def load_decoder() -> None:
    """What ``ask_cluster`` would else load with the first answer in its hands."""
    APIS[ApiKey.METADATA].load_response_type(_METADATA_VERSION)


def ask_cluster(address: SocketAddress, timeout_s: float) -> ClusterAnswer:
    """Which brokers the node at ``address`` believes to be alive."""
    metadata = _ask(address, ApiKey.METADATA, _METADATA_VERSION, _NO_TOPICS, timeout_s)
    brokers = {
        int(broker.node_id): SocketAddress(broker.host, int(broker.port))
        for broker in metadata.brokers
    }
    return ClusterAnswer(metadata.cluster_id, int(metadata.controller_id), brokers)


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_own_word: bool
    """It is the leader that says so."""


def ask_topics(
    address: SocketAddress, topics: Sequence[str], timeout_s: float
) -> list[PartitionAnswer]:
    """The partitions of those of the topics that the node at ``address`` knows."""
    if not topics:
        return []
    named = b"".join(_compact(topic) + b"\x00" for topic in topics)
    body = _varint(len(topics) + 1) + named + b"\x00\x00\x00\x00"
    metadata = _ask(address, ApiKey.METADATA, _METADATA_VERSION, body, timeout_s)
    asked = {b.node_id for b in metadata.brokers if SocketAddress(b.host, b.port) == address}
    return [
        PartitionAnswer(
            topic.name,
            int(partition.partition_index),
            int(partition.leader_id) if partition.leader_id >= 0 else None,
            int(partition.leader_epoch),
            tuple(map(int, partition.replica_nodes)),
            tuple(map(int, partition.isr_nodes)),
            partition.leader_id in asked,
        )
        for topic in metadata.topics
        for partition in topic.partitions
    ]


def ask_coordinator(address: SocketAddress, group: str, timeout_s: float) -> int:
    """Which node coordinates a consumer group."""
    name = group.encode()
    body = struct.pack(">h", len(name)) + name + b"\x00"
    answer = _ask(address, ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, body, timeout_s)
    if answer.error_code != 0:
        raise ProbeFailed(f"{address}: no coordinator of {group} ({answer.error_code!r})")
    return int(answer.node_id)


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    leader_id: int
    term: int
    high_watermark: int


def ask_quorum(address: SocketAddress, timeout_s: float) -> QuorumAnswer:
    """Who leads the metadata quorum, as the node at ``address`` finds out by asking it."""
    quorum = _ask(address, ApiKey.DESCRIBE_QUORUM, 0, _METADATA_PARTITION, timeout_s)
    if quorum.error_code != 0 or not quorum.topics:
        raise ProbeFailed(f"{address}: the quorum did not answer ({quorum.error_code!r})")
    state = quorum.topics[0].partitions[0]
    return QuorumAnswer(int(state.leader_id), int(state.leader_epoch), int(state.high_watermark))


def _ask(
    address: SocketAddress, key: ApiKey, version: int, request: bytes, timeout_s: float
) -> Any:
    api = APIS[key]
    frame = frame_request(api, version, 1, "tidelog-probe", request)
    try:
        answer = _exchange(address, frame, timeout_s)
        _, body = parse_response_header(api, version, answer)
        return decode_response(key, version, body)
    except (OSError, MalformedRequest) as error:
        raise ProbeFailed(f"{address}: {error}") from error


def _compact(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


def _varint(number: int) -> bytes:
    """Unsigned, seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _exchange(address: SocketAddress, frame: bytes, timeout_s: float) -> bytes:
    with socket.create_connection((address.host, address.port), timeout_s) as connection:
        connection.sendall(frame)
        size = read_frame_size(_receive(connection, 4))
        if not 4 <= size <= _MAX_ANSWER_BYTES:
            raise MalformedRequest(f"an answer of {size} bytes is none of the Kafka protocol")
        return _receive(connection, size)


def _receive(connection: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = connection.recv(min(length, 1 << 16))
        if not part:
            raise ConnectionResetError("the node hung up")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
