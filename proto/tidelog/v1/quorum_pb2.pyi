from tidelog.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTRY_KIND_UNSPECIFIED: _ClassVar[EntryKind]
    ENTRY_KIND_DATA: _ClassVar[EntryKind]
    ENTRY_KIND_LEADER_CHANGE: _ClassVar[EntryKind]
    ENTRY_KIND_VOTERS: _ClassVar[EntryKind]
ENTRY_KIND_UNSPECIFIED: EntryKind
ENTRY_KIND_DATA: EntryKind
ENTRY_KIND_LEADER_CHANGE: EntryKind
ENTRY_KIND_VOTERS: EntryKind

class QuorumMessage(_message.Message):
    __slots__ = ("cluster_id", "source", "target_id", "target_directory_id", "term", "append_request", "append_accepted", "append_rejected", "snapshot_chunk", "snapshot_ack", "vote_request", "vote_response", "timeout_now", "hello", "hello_back")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPEND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPEND_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    APPEND_REJECTED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ACK_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_BACK_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    source: _common_pb2.VoterKey
    target_id: int
    target_directory_id: bytes
    term: int
    append_request: AppendRequest
    append_accepted: AppendAccepted
    append_rejected: AppendRejected
    snapshot_chunk: SnapshotChunk
    snapshot_ack: SnapshotAck
    vote_request: VoteRequest
    vote_response: VoteResponse
    timeout_now: TimeoutNow
    hello: Hello
    hello_back: HelloBack
    def __init__(self, cluster_id: _Optional[str] = ..., source: _Optional[_Union[_common_pb2.VoterKey, _Mapping]] = ..., target_id: _Optional[int] = ..., target_directory_id: _Optional[bytes] = ..., term: _Optional[int] = ..., append_request: _Optional[_Union[AppendRequest, _Mapping]] = ..., append_accepted: _Optional[_Union[AppendAccepted, _Mapping]] = ..., append_rejected: _Optional[_Union[AppendRejected, _Mapping]] = ..., snapshot_chunk: _Optional[_Union[SnapshotChunk, _Mapping]] = ..., snapshot_ack: _Optional[_Union[SnapshotAck, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_response: _Optional[_Union[VoteResponse, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., hello_back: _Optional[_Union[HelloBack, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("is_log_empty", "configured_voter_ids", "is_founder")
    IS_LOG_EMPTY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_VOTER_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_FOUNDER_FIELD_NUMBER: _ClassVar[int]
    is_log_empty: bool
    configured_voter_ids: _containers.RepeatedScalarFieldContainer[int]
    is_founder: bool
    def __init__(self, is_log_empty: bool = ..., configured_voter_ids: _Optional[_Iterable[int]] = ..., is_founder: bool = ...) -> None: ...

class HelloBack(_message.Message):
    __slots__ = ("is_log_empty", "configured_voter_ids", "is_founder", "leader_id")
    IS_LOG_EMPTY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_VOTER_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_FOUNDER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    is_log_empty: bool
    configured_voter_ids: _containers.RepeatedScalarFieldContainer[int]
    is_founder: bool
    leader_id: int
    def __init__(self, is_log_empty: bool = ..., configured_voter_ids: _Optional[_Iterable[int]] = ..., is_founder: bool = ..., leader_id: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("last_term", "end_offset", "is_pre_vote", "is_leadership_transfer")
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    IS_LEADERSHIP_TRANSFER_FIELD_NUMBER: _ClassVar[int]
    last_term: int
    end_offset: int
    is_pre_vote: bool
    is_leadership_transfer: bool
    def __init__(self, last_term: _Optional[int] = ..., end_offset: _Optional[int] = ..., is_pre_vote: bool = ..., is_leadership_transfer: bool = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("is_granted", "is_pre_vote", "asked_in_term", "leader_id")
    IS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    ASKED_IN_TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    is_granted: bool
    is_pre_vote: bool
    asked_in_term: int
    leader_id: int
    def __init__(self, is_granted: bool = ..., is_pre_vote: bool = ..., asked_in_term: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("base_offset", "last_offset", "term", "kind", "data", "voters", "leader_id")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    last_offset: int
    term: int
    kind: EntryKind
    data: bytes
    voters: VoterSet
    leader_id: int
    def __init__(self, base_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., term: _Optional[int] = ..., kind: _Optional[_Union[EntryKind, str]] = ..., data: _Optional[bytes] = ..., voters: _Optional[_Union[VoterSet, _Mapping]] = ..., leader_id: _Optional[int] = ...) -> None: ...

class VoterSet(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[_common_pb2.VoterKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[_common_pb2.VoterKey, _Mapping]]] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("previous_end_offset", "previous_term", "entries", "committed_end_offset", "is_announcement")
    PREVIOUS_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    previous_end_offset: int
    previous_term: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    committed_end_offset: int
    is_announcement: bool
    def __init__(self, previous_end_offset: _Optional[int] = ..., previous_term: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., committed_end_offset: _Optional[int] = ..., is_announcement: bool = ...) -> None: ...

class AppendAccepted(_message.Message):
    __slots__ = ("match_end_offset",)
    MATCH_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    match_end_offset: int
    def __init__(self, match_end_offset: _Optional[int] = ...) -> None: ...

class AppendRejected(_message.Message):
    __slots__ = ("previous_end_offset", "conflict_term", "conflict_start_offset")
    PREVIOUS_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_TERM_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    previous_end_offset: int
    conflict_term: int
    conflict_start_offset: int
    def __init__(self, previous_end_offset: _Optional[int] = ..., conflict_term: _Optional[int] = ..., conflict_start_offset: _Optional[int] = ...) -> None: ...

class SnapshotId(_message.Message):
    __slots__ = ("end_offset", "term")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    term: int
    def __init__(self, end_offset: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("snapshot", "voters", "position", "total_bytes", "data")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    snapshot: SnapshotId
    voters: VoterSet
    position: int
    total_bytes: int
    data: bytes
    def __init__(self, snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., voters: _Optional[_Union[VoterSet, _Mapping]] = ..., position: _Optional[int] = ..., total_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class SnapshotAck(_message.Message):
    __slots__ = ("snapshot", "position", "is_installed")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    IS_INSTALLED_FIELD_NUMBER: _ClassVar[int]
    snapshot: SnapshotId
    position: int
    is_installed: bool
    def __init__(self, snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., is_installed: bool = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
