from tidelog.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WriteTxnMarkersRequest(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[TxnMarker]
    def __init__(self, markers: _Optional[_Iterable[_Union[TxnMarker, _Mapping]]] = ...) -> None: ...

class TxnMarker(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "is_commit", "coordinator_epoch", "transaction_version", "partitions", "decision", "leader_epochs")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionKey]
    decision: int
    leader_epochs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., is_commit: bool = ..., coordinator_epoch: _Optional[int] = ..., transaction_version: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.PartitionKey, _Mapping]]] = ..., decision: _Optional[int] = ..., leader_epochs: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteTxnMarkersResponse(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[TxnMarkerResult]
    def __init__(self, markers: _Optional[_Iterable[_Union[TxnMarkerResult, _Mapping]]] = ...) -> None: ...

class TxnMarkerResult(_message.Message):
    __slots__ = ("producer_id", "partitions")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    def __init__(self, producer_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ...) -> None: ...

class PartitionResult(_message.Message):
    __slots__ = ("partition", "error_code")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionKey
    error_code: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionKey, _Mapping]] = ..., error_code: _Optional[int] = ...) -> None: ...

class AddPartitionsToTxnRequest(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TxnPartitions]
    def __init__(self, transactions: _Optional[_Iterable[_Union[TxnPartitions, _Mapping]]] = ...) -> None: ...

class TxnPartitions(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "verify_only", "partitions")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERIFY_ONLY_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionKey]
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., verify_only: bool = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.PartitionKey, _Mapping]]] = ...) -> None: ...

class AddPartitionsToTxnResponse(_message.Message):
    __slots__ = ("error_code", "transactions")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    transactions: _containers.RepeatedCompositeFieldContainer[TxnPartitionsResult]
    def __init__(self, error_code: _Optional[int] = ..., transactions: _Optional[_Iterable[_Union[TxnPartitionsResult, _Mapping]]] = ...) -> None: ...

class TxnPartitionsResult(_message.Message):
    __slots__ = ("transactional_id", "partitions")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    def __init__(self, transactional_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ...) -> None: ...

class DescribeRebalancesRequest(_message.Message):
    __slots__ = ("group_id", "ask_others")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_OTHERS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    ask_others: bool
    def __init__(self, group_id: _Optional[str] = ..., ask_others: bool = ...) -> None: ...

class DescribeRebalancesResponse(_message.Message):
    __slots__ = ("rebalances", "silent_brokers")
    REBALANCES_FIELD_NUMBER: _ClassVar[int]
    SILENT_BROKERS_FIELD_NUMBER: _ClassVar[int]
    rebalances: _containers.RepeatedCompositeFieldContainer[GroupRebalance]
    silent_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, rebalances: _Optional[_Iterable[_Union[GroupRebalance, _Mapping]]] = ..., silent_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupRebalance(_message.Message):
    __slots__ = ("broker_id", "started_ms", "causes", "causes_left_out", "generation", "last_to_join", "dropped", "joined_ms", "ended_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    CAUSES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LAST_TO_JOIN_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    JOINED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    started_ms: int
    causes: _containers.RepeatedCompositeFieldContainer[RebalanceCause]
    causes_left_out: int
    generation: int
    last_to_join: str
    dropped: _containers.RepeatedScalarFieldContainer[str]
    joined_ms: int
    ended_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., started_ms: _Optional[int] = ..., causes: _Optional[_Iterable[_Union[RebalanceCause, _Mapping]]] = ..., causes_left_out: _Optional[int] = ..., generation: _Optional[int] = ..., last_to_join: _Optional[str] = ..., dropped: _Optional[_Iterable[str]] = ..., joined_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ...) -> None: ...

class RebalanceCause(_message.Message):
    __slots__ = ("at_ms", "kind", "member_id")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    kind: str
    member_id: str
    def __init__(self, at_ms: _Optional[int] = ..., kind: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...
