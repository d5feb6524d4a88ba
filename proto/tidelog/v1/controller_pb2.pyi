from tidelog.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecoveryVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERY_VERDICT_UNSPECIFIED: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_CLEAN: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_TORN_TAIL: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_SUSPECT: _ClassVar[RecoveryVerdict]

class BrokerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKER_STATE_UNSPECIFIED: _ClassVar[BrokerState]
    BROKER_STATE_STARTING: _ClassVar[BrokerState]
    BROKER_STATE_RECOVERY: _ClassVar[BrokerState]
    BROKER_STATE_RUNNING: _ClassVar[BrokerState]
    BROKER_STATE_PENDING_CONTROLLED_SHUTDOWN: _ClassVar[BrokerState]
    BROKER_STATE_SHUTTING_DOWN: _ClassVar[BrokerState]
RECOVERY_VERDICT_UNSPECIFIED: RecoveryVerdict
RECOVERY_VERDICT_CLEAN: RecoveryVerdict
RECOVERY_VERDICT_TORN_TAIL: RecoveryVerdict
RECOVERY_VERDICT_SUSPECT: RecoveryVerdict
BROKER_STATE_UNSPECIFIED: BrokerState
BROKER_STATE_STARTING: BrokerState
BROKER_STATE_RECOVERY: BrokerState
BROKER_STATE_RUNNING: BrokerState
BROKER_STATE_PENDING_CONTROLLED_SHUTDOWN: BrokerState
BROKER_STATE_SHUTTING_DOWN: BrokerState

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id", "cluster_id", "incarnation_id", "listeners", "peer_endpoint", "features", "rack", "log_directory_ids", "previous_broker_epoch", "recovered_replicas", "offline_log_directory_ids", "held_replicas")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    PEER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRECTORY_IDS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRECTORY_IDS_FIELD_NUMBER: _ClassVar[int]
    HELD_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: _containers.RepeatedCompositeFieldContainer[BrokerListener]
    peer_endpoint: _common_pb2.Endpoint
    features: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    rack: str
    log_directory_ids: _containers.RepeatedScalarFieldContainer[bytes]
    previous_broker_epoch: int
    recovered_replicas: _containers.RepeatedCompositeFieldContainer[RecoveredReplica]
    offline_log_directory_ids: _containers.RepeatedScalarFieldContainer[bytes]
    held_replicas: HeldReplicas
    def __init__(self, broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., listeners: _Optional[_Iterable[_Union[BrokerListener, _Mapping]]] = ..., peer_endpoint: _Optional[_Union[_common_pb2.Endpoint, _Mapping]] = ..., features: _Optional[_Iterable[_Union[FeatureRange, _Mapping]]] = ..., rack: _Optional[str] = ..., log_directory_ids: _Optional[_Iterable[bytes]] = ..., previous_broker_epoch: _Optional[int] = ..., recovered_replicas: _Optional[_Iterable[_Union[RecoveredReplica, _Mapping]]] = ..., offline_log_directory_ids: _Optional[_Iterable[bytes]] = ..., held_replicas: _Optional[_Union[HeldReplicas, _Mapping]] = ...) -> None: ...

class HeldReplicas(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[HeldTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[HeldTopic, _Mapping]]] = ...) -> None: ...

class HeldTopic(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class BrokerListener(_message.Message):
    __slots__ = ("name", "host", "port", "security_protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    security_protocol: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[int] = ...) -> None: ...

class FeatureRange(_message.Message):
    __slots__ = ("name", "min_level", "max_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_level: int
    max_level: int
    def __init__(self, name: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class RecoveredReplica(_message.Message):
    __slots__ = ("partition", "last_epoch", "end_offset", "verdict")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionKey
    last_epoch: int
    end_offset: int
    verdict: RecoveryVerdict
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionKey, _Mapping]] = ..., last_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., verdict: _Optional[_Union[RecoveryVerdict, str]] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "broker_epoch", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    broker_epoch: int
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., broker_epoch: _Optional[int] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("sequence", "broker_epoch", "state", "metadata_end_offset", "want_fence", "want_shut_down", "offline_log_directory_ids")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    METADATA_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRECTORY_IDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    broker_epoch: int
    state: BrokerState
    metadata_end_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_directory_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, sequence: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., state: _Optional[_Union[BrokerState, str]] = ..., metadata_end_offset: _Optional[int] = ..., want_fence: bool = ..., want_shut_down: bool = ..., offline_log_directory_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("sequence", "error_code", "active_controller", "is_caught_up", "is_fenced", "should_shut_down")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    error_code: int
    active_controller: _common_pb2.ActiveController
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    def __init__(self, sequence: _Optional[int] = ..., error_code: _Optional[int] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ..., is_caught_up: bool = ..., is_fenced: bool = ..., should_shut_down: bool = ...) -> None: ...

class WatchMetadataRequest(_message.Message):
    __slots__ = ("from_offset", "last_term")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    last_term: int
    def __init__(self, from_offset: _Optional[int] = ..., last_term: _Optional[int] = ...) -> None: ...

class WatchMetadataResponse(_message.Message):
    __slots__ = ("snapshot", "batches", "committed_end_offset", "active_controller")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    snapshot: MetadataSnapshotChunk
    batches: MetadataBatches
    committed_end_offset: int
    active_controller: _common_pb2.ActiveController
    def __init__(self, snapshot: _Optional[_Union[MetadataSnapshotChunk, _Mapping]] = ..., batches: _Optional[_Union[MetadataBatches, _Mapping]] = ..., committed_end_offset: _Optional[int] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class MetadataSnapshotChunk(_message.Message):
    __slots__ = ("end_offset", "term", "position", "total_bytes", "data")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    term: int
    position: int
    total_bytes: int
    data: bytes
    def __init__(self, end_offset: _Optional[int] = ..., term: _Optional[int] = ..., position: _Optional[int] = ..., total_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class MetadataBatches(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, batches: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "partitions")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[ProposedIsr]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ProposedIsr, _Mapping]]] = ...) -> None: ...

class ProposedIsr(_message.Message):
    __slots__ = ("partition", "leader_epoch", "partition_epoch", "new_isr", "is_recovering")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_ISR_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionKey
    leader_epoch: int
    partition_epoch: int
    new_isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    is_recovering: bool
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionKey, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., new_isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., is_recovering: bool = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "partitions", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    partitions: _containers.RepeatedCompositeFieldContainer[AlteredPartition]
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[AlteredPartition, _Mapping]]] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class AlteredPartition(_message.Message):
    __slots__ = ("partition", "error_code", "leader_id", "leader_epoch", "partition_epoch", "isr", "is_recovering")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionKey
    error_code: int
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    is_recovering: bool
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionKey, _Mapping]] = ..., error_code: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., is_recovering: bool = ...) -> None: ...

class ReportReplicasRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "directories", "emptied")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    EMPTIED_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    directories: _containers.RepeatedCompositeFieldContainer[ReplicaDirectory]
    emptied: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionKey]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[ReplicaDirectory, _Mapping]]] = ..., emptied: _Optional[_Iterable[_Union[_common_pb2.PartitionKey, _Mapping]]] = ...) -> None: ...

class ReplicaDirectory(_message.Message):
    __slots__ = ("partition", "directory_id")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionKey
    directory_id: bytes
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionKey, _Mapping]] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class ReportReplicasResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "directory_error_codes", "emptied_error_codes", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ERROR_CODES_FIELD_NUMBER: _ClassVar[int]
    EMPTIED_ERROR_CODES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    directory_error_codes: _containers.RepeatedScalarFieldContainer[int]
    emptied_error_codes: _containers.RepeatedScalarFieldContainer[int]
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., directory_error_codes: _Optional[_Iterable[int]] = ..., emptied_error_codes: _Optional[_Iterable[int]] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "first_producer_id", "count", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    first_producer_id: int
    count: int
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., first_producer_id: _Optional[int] = ..., count: _Optional[int] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("api_key", "api_version", "request", "principal_type", "principal_name", "client_address", "client_id", "listener_name")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    api_key: int
    api_version: int
    request: bytes
    principal_type: str
    principal_name: str
    client_address: str
    client_id: str
    listener_name: str
    def __init__(self, api_key: _Optional[int] = ..., api_version: _Optional[int] = ..., request: _Optional[bytes] = ..., principal_type: _Optional[str] = ..., principal_name: _Optional[str] = ..., client_address: _Optional[str] = ..., client_id: _Optional[str] = ..., listener_name: _Optional[str] = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "response", "active_controller", "metadata_end_offset")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    METADATA_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    response: bytes
    active_controller: _common_pb2.ActiveController
    metadata_end_offset: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., response: _Optional[bytes] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ..., metadata_end_offset: _Optional[int] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "active_controller", "high_watermark", "voters", "observers")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    active_controller: _common_pb2.ActiveController
    high_watermark: int
    voters: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    observers: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ..., high_watermark: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ...) -> None: ...

class QuorumReplica(_message.Message):
    __slots__ = ("key", "log_end_offset", "last_fetch_timestamp_ms", "last_caught_up_timestamp_ms", "endpoint")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.VoterKey
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int
    endpoint: _common_pb2.Endpoint
    def __init__(self, key: _Optional[_Union[_common_pb2.VoterKey, _Mapping]] = ..., log_end_offset: _Optional[int] = ..., last_fetch_timestamp_ms: _Optional[int] = ..., last_caught_up_timestamp_ms: _Optional[int] = ..., endpoint: _Optional[_Union[_common_pb2.Endpoint, _Mapping]] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("voter",)
    VOTER_FIELD_NUMBER: _ClassVar[int]
    voter: _common_pb2.Voter
    def __init__(self, voter: _Optional[_Union[_common_pb2.Voter, _Mapping]] = ...) -> None: ...

class AddVoterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.VoterKey
    def __init__(self, key: _Optional[_Union[_common_pb2.VoterKey, _Mapping]] = ...) -> None: ...

class RemoveVoterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "active_controller")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    active_controller: _common_pb2.ActiveController
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., active_controller: _Optional[_Union[_common_pb2.ActiveController, _Mapping]] = ...) -> None: ...
