from tidelog.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QuorumMessage(_message.Message):
    __slots__ = ("hello", "vote_request", "vote_response", "append_request", "append_response", "snapshot_chunk", "snapshot_ack", "timeout_now")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    APPEND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPEND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ACK_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    vote_request: VoteRequest
    vote_response: VoteResponse
    append_request: AppendRequest
    append_response: AppendResponse
    snapshot_chunk: SnapshotChunk
    snapshot_ack: SnapshotAck
    timeout_now: TimeoutNow
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_response: _Optional[_Union[VoteResponse, _Mapping]] = ..., append_request: _Optional[_Union[AppendRequest, _Mapping]] = ..., append_response: _Optional[_Union[AppendResponse, _Mapping]] = ..., snapshot_chunk: _Optional[_Union[SnapshotChunk, _Mapping]] = ..., snapshot_ack: _Optional[_Union[SnapshotAck, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("cluster_id", "sender", "is_log_empty", "configured_voters")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    IS_LOG_EMPTY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_VOTERS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    sender: _common_pb2.VoterKey
    is_log_empty: bool
    configured_voters: _containers.RepeatedCompositeFieldContainer[_common_pb2.Voter]
    def __init__(self, cluster_id: _Optional[str] = ..., sender: _Optional[_Union[_common_pb2.VoterKey, _Mapping]] = ..., is_log_empty: bool = ..., configured_voters: _Optional[_Iterable[_Union[_common_pb2.Voter, _Mapping]]] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("term", "candidate", "voter", "last_term", "end_offset", "is_pre_vote", "is_leadership_transfer")
    TERM_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    IS_LEADERSHIP_TRANSFER_FIELD_NUMBER: _ClassVar[int]
    term: int
    candidate: _common_pb2.VoterKey
    voter: _common_pb2.VoterKey
    last_term: int
    end_offset: int
    is_pre_vote: bool
    is_leadership_transfer: bool
    def __init__(self, term: _Optional[int] = ..., candidate: _Optional[_Union[_common_pb2.VoterKey, _Mapping]] = ..., voter: _Optional[_Union[_common_pb2.VoterKey, _Mapping]] = ..., last_term: _Optional[int] = ..., end_offset: _Optional[int] = ..., is_pre_vote: bool = ..., is_leadership_transfer: bool = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("term", "is_granted", "is_pre_vote", "leader_id")
    TERM_FIELD_NUMBER: _ClassVar[int]
    IS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    term: int
    is_granted: bool
    is_pre_vote: bool
    leader_id: int
    def __init__(self, term: _Optional[int] = ..., is_granted: bool = ..., is_pre_vote: bool = ..., leader_id: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("base_offset", "last_offset", "term", "data")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    last_offset: int
    term: int
    data: bytes
    def __init__(self, base_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., term: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("term", "leader_id", "previous_end_offset", "previous_term", "entries", "committed_end_offset", "round")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    term: int
    leader_id: int
    previous_end_offset: int
    previous_term: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    committed_end_offset: int
    round: int
    def __init__(self, term: _Optional[int] = ..., leader_id: _Optional[int] = ..., previous_end_offset: _Optional[int] = ..., previous_term: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., committed_end_offset: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("term", "is_accepted", "round", "flushed_end_offset", "conflict_term", "conflict_offset")
    TERM_FIELD_NUMBER: _ClassVar[int]
    IS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_TERM_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    term: int
    is_accepted: bool
    round: int
    flushed_end_offset: int
    conflict_term: int
    conflict_offset: int
    def __init__(self, term: _Optional[int] = ..., is_accepted: bool = ..., round: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., conflict_term: _Optional[int] = ..., conflict_offset: _Optional[int] = ...) -> None: ...

class SnapshotId(_message.Message):
    __slots__ = ("end_offset", "term")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    term: int
    def __init__(self, end_offset: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("term", "leader_id", "snapshot", "position", "total_bytes", "data")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    term: int
    leader_id: int
    snapshot: SnapshotId
    position: int
    total_bytes: int
    data: bytes
    def __init__(self, term: _Optional[int] = ..., leader_id: _Optional[int] = ..., snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., total_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class SnapshotAck(_message.Message):
    __slots__ = ("term", "snapshot", "received_bytes", "is_installed")
    TERM_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_INSTALLED_FIELD_NUMBER: _ClassVar[int]
    term: int
    snapshot: SnapshotId
    received_bytes: int
    is_installed: bool
    def __init__(self, term: _Optional[int] = ..., snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., received_bytes: _Optional[int] = ..., is_installed: bool = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ("term", "leader_id")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    term: int
    leader_id: int
    def __init__(self, term: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...
