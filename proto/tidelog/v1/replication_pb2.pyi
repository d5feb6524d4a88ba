from tidelog.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("correlation_id", "broker_epoch", "max_wait_ms", "min_bytes", "max_bytes", "is_full", "partitions", "forgotten")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_full: bool
    partitions: _containers.RepeatedCompositeFieldContainer[FetchPartition]
    forgotten: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionKey]
    def __init__(self, correlation_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., is_full: bool = ..., partitions: _Optional[_Iterable[_Union[FetchPartition, _Mapping]]] = ..., forgotten: _Optional[_Iterable[_Union[_common_pb2.PartitionKey, _Mapping]]] = ...) -> None: ...

class FetchPartition(_message.Message):
    __slots__ = ("topic_id", "partition", "current_leader_epoch", "fetch_offset", "flushed_end", "last_fetched_epoch", "log_start_offset", "max_bytes", "clean_point", "held_back_to")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLEAN_POINT_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_TO_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    flushed_end: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    clean_point: int
    held_back_to: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., current_leader_epoch: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., flushed_end: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., clean_point: _Optional[int] = ..., held_back_to: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("correlation_id", "error_code", "partitions", "has_more")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    error_code: int
    partitions: _containers.RepeatedCompositeFieldContainer[FetchedPartition]
    has_more: bool
    def __init__(self, correlation_id: _Optional[int] = ..., error_code: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[FetchedPartition, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class FetchedPartition(_message.Message):
    __slots__ = ("topic_id", "partition", "error_code", "leader_epoch", "high_watermark", "log_start_offset", "log_end_offset", "diverging_epoch", "fetch_offset", "records", "records_remaining", "min_clean_point", "leader_id", "wanted_clean_point")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_REMAINING_FIELD_NUMBER: _ClassVar[int]
    MIN_CLEAN_POINT_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    WANTED_CLEAN_POINT_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    error_code: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    diverging_epoch: _common_pb2.EpochEnd
    fetch_offset: int
    records: bytes
    records_remaining: int
    min_clean_point: int
    leader_id: int
    wanted_clean_point: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., diverging_epoch: _Optional[_Union[_common_pb2.EpochEnd, _Mapping]] = ..., fetch_offset: _Optional[int] = ..., records: _Optional[bytes] = ..., records_remaining: _Optional[int] = ..., min_clean_point: _Optional[int] = ..., leader_id: _Optional[int] = ..., wanted_clean_point: _Optional[int] = ...) -> None: ...

class OffsetsForEpochRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[EpochQuestion]
    def __init__(self, partitions: _Optional[_Iterable[_Union[EpochQuestion, _Mapping]]] = ...) -> None: ...

class EpochQuestion(_message.Message):
    __slots__ = ("topic_id", "partition", "current_leader_epoch", "epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    current_leader_epoch: int
    epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., current_leader_epoch: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class OffsetsForEpochResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[EpochAnswer]
    def __init__(self, partitions: _Optional[_Iterable[_Union[EpochAnswer, _Mapping]]] = ...) -> None: ...

class EpochAnswer(_message.Message):
    __slots__ = ("topic_id", "partition", "error_code", "end")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    error_code: int
    end: _common_pb2.EpochEnd
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ..., end: _Optional[_Union[_common_pb2.EpochEnd, _Mapping]] = ...) -> None: ...
