"""What controllers say to each other, as protobuf, and back.

Only shape is checked here: that a message has all its parts and that they are of the right kind.
Whether it makes sense is the machine's to judge. One that cannot be converted comes from a defect
or from somebody who is no controller: the stream it came on is refused, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from tidelog.controller.quorum.batches import check_data
from tidelog.controller.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Body,
    Envelope,
    Hello,
    HelloBack,
    SnapshotAck,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.controller.raft.model import (
    Entry,
    EntryKind,
    ReplicaKey,
    SnapshotId,
    Term,
    Voters,
)
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, Uuid
from tidelog.kernel.peers import Stream
from tidelog.v1 import common_pb2, quorum_pb2
from tidelog.wire.errors import MalformedBatch

EXCHANGE: Final = Stream(
    "/tidelog.v1.Quorum/Exchange", quorum_pb2.QuorumMessage, quorum_pb2.QuorumMessage
)

_KINDS: Final = {
    EntryKind.DATA: quorum_pb2.ENTRY_KIND_DATA,
    EntryKind.LEADER_CHANGE: quorum_pb2.ENTRY_KIND_LEADER_CHANGE,
    EntryKind.VOTERS: quorum_pb2.ENTRY_KIND_VOTERS,
}
_KINDS_BACK: Final = {number: kind for kind, number in _KINDS.items()}


class MalformedMessage(ValueError):
    """Bytes that parse as a message of the quorum but say nothing that one can say."""


# --- there ---------------------------------------------------------------------------------------


def to_proto(envelope: Envelope) -> quorum_pb2.QuorumMessage:
    message = quorum_pb2.QuorumMessage(
        cluster_id=envelope.cluster_id,
        source=_key(envelope.source),
        target_id=envelope.target_id,
        term=envelope.term,
    )
    if envelope.target_directory is not None:
        message.target_directory_id = envelope.target_directory.raw
    _put_body(message, envelope)
    return message


def _put_body(message: quorum_pb2.QuorumMessage, envelope: Envelope) -> None:
    match envelope.body:
        case AppendRequest() as body:
            message.append_request.CopyFrom(_append_request(body))
        case AppendAccepted(match_end=end):
            message.append_accepted.match_end_offset = end
            message.append_accepted.SetInParent()
        case AppendRejected() as body:
            message.append_rejected.CopyFrom(_append_rejected(body))
        case SnapshotChunk() as body:
            message.snapshot_chunk.CopyFrom(_snapshot_chunk(body))
        case SnapshotAck(snapshot=snapshot, position=position, is_installed=is_installed):
            ack = quorum_pb2.SnapshotAck(position=position, is_installed=is_installed)
            ack.snapshot.CopyFrom(_snapshot_id(snapshot))
            message.snapshot_ack.CopyFrom(ack)
        case VoteRequest() as body:
            message.vote_request.CopyFrom(_vote_request(body))
        case VoteResponse() as body:
            message.vote_response.CopyFrom(_vote_response(body))
        case TimeoutNow():
            message.timeout_now.SetInParent()
        case Hello() as body:
            message.hello.CopyFrom(_hello(body))
        case HelloBack() as body:
            message.hello_back.CopyFrom(_hello_back(body))
        case body:
            assert_never(body)


def _key(key: ReplicaKey) -> common_pb2.VoterKey:
    return common_pb2.VoterKey(node_id=key.node_id, directory_id=key.directory_id.raw)


def _voters(voters: Voters) -> quorum_pb2.VoterSet:
    return quorum_pb2.VoterSet(keys=[_key(key) for key in voters])


def _snapshot_id(snapshot: SnapshotId) -> quorum_pb2.SnapshotId:
    return quorum_pb2.SnapshotId(end_offset=snapshot.end_offset, term=snapshot.term)


def _entry(entry: Entry) -> quorum_pb2.Entry:
    return quorum_pb2.Entry(
        base_offset=entry.base_offset,
        last_offset=entry.last_offset,
        term=entry.term,
        kind=_KINDS[entry.kind],
        data=entry.data,
        voters=None if entry.voters is None else _voters(entry.voters),
        leader_id=entry.leader_id,
    )


def _append_request(body: AppendRequest) -> quorum_pb2.AppendRequest:
    return quorum_pb2.AppendRequest(
        previous_end_offset=body.prev_end,
        previous_term=body.prev_term,
        entries=[_entry(entry) for entry in body.entries],
        committed_end_offset=body.commit,
        is_announcement=body.is_announcement,
    )


def _append_rejected(body: AppendRejected) -> quorum_pb2.AppendRejected:
    return quorum_pb2.AppendRejected(
        previous_end_offset=body.prev_end,
        conflict_term=body.conflict_term,
        conflict_start_offset=body.conflict_start,
    )


def _snapshot_chunk(body: SnapshotChunk) -> quorum_pb2.SnapshotChunk:
    return quorum_pb2.SnapshotChunk(
        snapshot=_snapshot_id(body.snapshot),
        voters=_voters(body.voters),
        position=body.position,
        total_bytes=body.total_bytes,
        data=body.data,
    )


def _vote_request(body: VoteRequest) -> quorum_pb2.VoteRequest:
    return quorum_pb2.VoteRequest(
        last_term=body.last_term,
        end_offset=body.end_offset,
        is_pre_vote=body.is_pre_vote,
        is_leadership_transfer=body.is_leadership_transfer,
    )


def _vote_response(body: VoteResponse) -> quorum_pb2.VoteResponse:
    return quorum_pb2.VoteResponse(
        is_granted=body.is_granted,
        is_pre_vote=body.is_pre_vote,
        asked_in_term=body.asked_in_term,
        leader_id=body.leader_id,
    )


def _hello(body: Hello) -> quorum_pb2.Hello:
    return quorum_pb2.Hello(
        is_log_empty=body.is_log_empty,
        is_founder=body.is_founder,
        configured_voter_ids=body.configured_voters,
    )


def _hello_back(body: HelloBack) -> quorum_pb2.HelloBack:
    return quorum_pb2.HelloBack(
        is_log_empty=body.is_log_empty,
        is_founder=body.is_founder,
        configured_voter_ids=body.configured_voters,
        leader_id=body.leader_id,
    )


# --- and back ------------------------------------------------------------------------------------


def from_proto(message: quorum_pb2.QuorumMessage) -> Envelope:
    """Raises ``MalformedMessage``."""
    try:
        directory = (
            _directory(message.target_directory_id)
            if message.HasField("target_directory_id")
            else None
        )
        return Envelope(
            message.cluster_id,
            _key_back(message.source),
            NodeId(message.target_id),
            directory,
            Term(message.term),
            _body_back(message),
        )
    except MalformedMessage:
        raise
    except (ValueError, MalformedBatch) as error:
        raise MalformedMessage(str(error)) from error


def _body_back(message: quorum_pb2.QuorumMessage) -> Body:
    match message.WhichOneof("body"):
        case "append_request":
            return _append_request_back(message.append_request)
        case "append_accepted":
            return AppendAccepted(Offset(message.append_accepted.match_end_offset))
        case "append_rejected":
            return _append_rejected_back(message.append_rejected)
        case "snapshot_chunk":
            return _snapshot_chunk_back(message.snapshot_chunk)
        case "snapshot_ack":
            ack = message.snapshot_ack
            return SnapshotAck(_snapshot_back(ack.snapshot), ack.position, ack.is_installed)
        case "vote_request":
            return _vote_request_back(message.vote_request)
        case "vote_response":
            return _vote_response_back(message.vote_response)
        case "timeout_now":
            return TimeoutNow()
        case "hello":
            hello = message.hello
            configured = _node_ids(hello.configured_voter_ids)
            return Hello(hello.is_log_empty, hello.is_founder, configured)
        case "hello_back":
            return _hello_back_back(message.hello_back)
        case _:
            raise MalformedMessage("a message without a body that is known here")


def _directory(raw: bytes) -> DirectoryId:
    return DirectoryId(Uuid(raw))


def _key_back(key: common_pb2.VoterKey) -> ReplicaKey:
    return ReplicaKey(NodeId(key.node_id), _directory(key.directory_id))


def _voters_back(voters: quorum_pb2.VoterSet) -> Voters:
    return Voters.of(_key_back(key) for key in voters.keys)


def _snapshot_back(snapshot: quorum_pb2.SnapshotId) -> SnapshotId:
    return SnapshotId(Offset(snapshot.end_offset), Term(snapshot.term))


def _node_ids(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def _entry_back(entry: quorum_pb2.Entry) -> Entry:
    kind = _KINDS_BACK.get(entry.kind)
    if kind is None:
        raise MalformedMessage(f"an entry of kind {entry.kind}")
    if kind is EntryKind.DATA:
        check_data(entry.data, entry.last_offset - entry.base_offset + 1)
    if (kind is EntryKind.LEADER_CHANGE) != entry.HasField("leader_id"):
        raise MalformedMessage(f"an entry of kind {kind.value} about a leader")
    return Entry(
        Offset(entry.base_offset),
        Offset(entry.last_offset),
        Term(entry.term),
        kind,
        entry.data,
        _voters_back(entry.voters) if entry.HasField("voters") else None,
        NodeId(entry.leader_id) if entry.HasField("leader_id") else None,
    )


def _append_request_back(body: quorum_pb2.AppendRequest) -> AppendRequest:
    return AppendRequest(
        Offset(body.previous_end_offset),
        Term(body.previous_term),
        tuple([_entry_back(entry) for entry in body.entries]),
        Offset(body.committed_end_offset),
        body.is_announcement,
    )


def _append_rejected_back(body: quorum_pb2.AppendRejected) -> AppendRejected:
    return AppendRejected(
        Offset(body.previous_end_offset),
        Term(body.conflict_term) if body.HasField("conflict_term") else None,
        Offset(body.conflict_start_offset),
    )


def _snapshot_chunk_back(body: quorum_pb2.SnapshotChunk) -> SnapshotChunk:
    return SnapshotChunk(
        _snapshot_back(body.snapshot),
        _voters_back(body.voters),
        body.position,
        body.total_bytes,
        body.data,
    )


def _vote_request_back(body: quorum_pb2.VoteRequest) -> VoteRequest:
    return VoteRequest(
        Term(body.last_term),
        Offset(body.end_offset),
        body.is_pre_vote,
        body.is_leadership_transfer,
    )


def _vote_response_back(body: quorum_pb2.VoteResponse) -> VoteResponse:
    return VoteResponse(
        body.is_granted,
        body.is_pre_vote,
        Term(body.asked_in_term),
        NodeId(body.leader_id) if body.HasField("leader_id") else None,
    )


def _hello_back_back(body: quorum_pb2.HelloBack) -> HelloBack:
    return HelloBack(
        body.is_log_empty,
        body.is_founder,
        _node_ids(body.configured_voter_ids),
        NodeId(body.leader_id) if body.HasField("leader_id") else None,
    )
