"""Where to go instead: the new leader and its address, told with the error (KIP-951)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.kernel.ids import NO_LEADER_EPOCH, NO_NODE, LeaderEpoch, NodeId
from tidelog.wire.protocol.primitives import compact_string, tag_buffer, uvarint

_LEADER: Final = struct.Struct(">iiB")
_I32: Final = struct.Struct(">i")


class CurrentLeader(NamedTuple):
    leader_id: NodeId
    leader_epoch: LeaderEpoch


class NodeEndpoint(NamedTuple):
    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


UNKNOWN_LEADER: Final = CurrentLeader(NO_NODE, NO_LEADER_EPOCH)


def encode_leader(leader: CurrentLeader) -> bytes:
    """The value of the tagged field; both responses leave out ``UNKNOWN_LEADER``."""
    return _LEADER.pack(leader.leader_id, leader.leader_epoch, 0)


def encode_endpoints_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tag buffer that ends both responses: the addresses of all leaders named, as tag 0."""
    if not endpoints:
        return b"\0"
    pieces = [uvarint(len(endpoints) + 1)]
    for node in endpoints:
        pieces += (
            _I32.pack(node.node_id),
            compact_string(node.host),
            _I32.pack(node.port),
            compact_string(node.rack),
            b"\0",
        )
    return tag_buffer([(0, b"".join(pieces))])
