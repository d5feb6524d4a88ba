"""``quorum-state``: the term and the vote of this node, which it must never forget.

One JSON line with the names that Kafka uses, and what founding a quorum needs. A node that
forgot its vote could vote twice in a term, and two leaders would follow; so the line carries a
checksum, the file is replaced atomically and synced, and one that cannot be read stops the node.
"""

from __future__ import annotations

import json
from typing import Any, Final

from crc32c import crc32c

from tidelog.controller.quorum.errors import RefusedToStart
from tidelog.controller.raft.model import MAX_TERM, PersistentState, ReplicaKey, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Uuid
from tidelog.kernel.ports import Disk
from tidelog.storage.atomic import write_atomically

QUORUM_STATE: Final = "quorum-state"
_DATA_VERSION: Final = 1
_NOBODY: Final = -1
_MAX_BYTES: Final = 1 << 20


class CorruptQuorumState(Exception):
    """The file does not say what it must."""


def encode_quorum_state(state: PersistentState) -> bytes:
    content: dict[str, Any] = {
        "leaderId": _NOBODY,
        "leaderEpoch": state.term,
        "votedId": state.voted_for.node_id if state.voted_for else _NOBODY,
        "votedDirectoryId": str(state.voted_for.directory_id) if state.voted_for else None,
        "founding": None
        if state.founding is None
        else [[key.node_id, str(key.directory_id)] for key in state.founding],
        "foundingConfirmed": state.is_founding_confirmed,
        "data_version": _DATA_VERSION,
    }
    return _line(content | {"crc32c": _checksum(content)})


def decode_quorum_state(data: bytes) -> PersistentState:
    if len(data) > _MAX_BYTES:
        raise CorruptQuorumState(f"it has {len(data)} bytes")
    try:
        content = json.loads(data)
    except ValueError as error:
        raise CorruptQuorumState(f"it is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise CorruptQuorumState("it is no JSON object")
    stored = content.pop("crc32c", None)
    if stored != _checksum(content):
        raise CorruptQuorumState("its checksum is wrong")
    if content.get("data_version") != _DATA_VERSION:
        raise CorruptQuorumState(
            f"its data_version is {content.get('data_version')}, only {_DATA_VERSION} is known"
        )
    try:
        return _state_of(content)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptQuorumState(f"its content makes no sense: {error!r}") from None


def _state_of(content: dict[str, Any]) -> PersistentState:
    term, voted_id, founding = content["leaderEpoch"], content["votedId"], content["founding"]
    if not isinstance(term, int) or not 0 <= term <= MAX_TERM:
        raise ValueError(f"leaderEpoch is {term!r}")
    voted_for = None if voted_id == _NOBODY else _key(voted_id, content["votedDirectoryId"])
    voters = None if founding is None else Voters.of(_key(*pair) for pair in founding)
    return PersistentState(Term(term), voted_for, voters, content["foundingConfirmed"] is True)


def _key(node_id: int, directory_id: str) -> ReplicaKey:
    if not isinstance(node_id, int) or node_id < 0:
        raise ValueError(f"node id {node_id!r}")
    return ReplicaKey(NodeId(node_id), DirectoryId(Uuid.parse(directory_id)))


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"


def _checksum(content: dict[str, Any]) -> str:
    return f"{crc32c(_line(content)):08x}"


def write_quorum_state(disk: Disk, directory: str, state: PersistentState) -> None:
    """Durable on return."""
    write_atomically(disk, f"{directory}/{QUORUM_STATE}", encode_quorum_state(state))


def read_quorum_state(disk: Disk, directory: str) -> PersistentState | None:
    """None for a directory that was never used; raises ``RefusedToStart``."""
    path = f"{directory}/{QUORUM_STATE}"
    if disk.stat(path) is None:
        return None
    try:
        return decode_quorum_state(disk.read(path))
    except CorruptQuorumState as error:
        raise RefusedToStart(
            f"{path} cannot be believed: {error}; this node does not know for whom it voted",
            directory,
        ) from error
