"""Every error code of the Kafka protocol, in one table.

A code is what a client decides upon: it gives up, it sends the request again, or it first asks
for fresh metadata and then sends it again. The three possibilities form a ladder (whoever
refreshes also retries), so one column of the table holds both of Kafka's exception classes,
`RetriableException` and its subclass `InvalidMetadataException`.

Codes and names are fixed for ever by the protocol; the messages are ours and are meant for the
`error_message` fields of responses and for logs.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Self


class Advice(Enum):
    """What a client may do about an error."""

    GIVE_UP = "give up"
    RETRY = "retry"
    REFRESH = "refresh metadata, then retry"


_G, _R, _M = Advice.GIVE_UP, Advice.RETRY, Advice.REFRESH


class ErrorCode(IntEnum):
    """An error code of the Kafka protocol; compares and packs as its number."""

    _advice: Advice
    _message: str

    # The defaults are only for type checkers: they take `ErrorCode(3)` for a call of this.
    def __new__(cls, code: int, advice: Advice = _G, message: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member._advice = advice
        member._message = message
        return member

    @property
    def retriable(self) -> bool:
        """Whether sending the same request again may succeed."""
        return self._advice is not Advice.GIVE_UP

    @property
    def refresh_metadata(self) -> bool:
        """Whether the client's view of the cluster is stale and should be fetched again."""
        return self._advice is Advice.REFRESH

    @property
    def message(self) -> str:
        """One line saying what went wrong."""
        return self._message

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, _G, "the server failed in a way it did not foresee"
    NONE = 0, _G, "no error"
    OFFSET_OUT_OF_RANGE = 1, _G, "the offset lies outside what this replica holds"
    CORRUPT_MESSAGE = 2, _R, "a record is damaged, malformed, or lacks the key its topic needs"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _M, "this broker does not host that topic or partition"
    INVALID_FETCH_SIZE = 4, _G, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, _M, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, _M, "this broker is not the partition's leader or replica"
    REQUEST_TIMED_OUT = 7, _R, "the request did not finish in the time it was given"
    BROKER_NOT_AVAILABLE = 8, _G, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _M, "the replica asked for is not available"
    MESSAGE_TOO_LARGE = 10, _G, "a batch is larger than max.message.bytes allows"
    STALE_CONTROLLER_EPOCH = 11, _G, "the controller has been replaced by a newer one"
    OFFSET_METADATA_TOO_LARGE = 12, _G, "the metadata string of the offset commit is too long"
    NETWORK_EXCEPTION = 13, _M, "the connection broke before an answer arrived"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _R, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, _R, "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, _R, "this broker is not the coordinator asked for"
    INVALID_TOPIC_EXCEPTION = 17, _G, "the topic name is not valid, or not for this operation"
    RECORD_LIST_TOO_LARGE = 18, _G, "the records of the request are larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, _R, "too few replicas are in sync; nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _R, "written, but then too few replicas were in sync"
    INVALID_REQUIRED_ACKS = 21, _G, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, _G, "the generation given is not the group's current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, _G, "the member shares no protocol with the rest of the group"
    INVALID_GROUP_ID = 24, _G, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, _G, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, _G, "the session timeout lies outside what the broker allows"
    REBALANCE_IN_PROGRESS = 27, _G, "the group is rebalancing; the member should join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _G, "the offset commit is too large to be stored"
    TOPIC_AUTHORIZATION_FAILED = 29, _G, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, _G, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _G, "not allowed on this cluster"
    INVALID_TIMESTAMP = 32, _G, "a record's timestamp lies outside what the topic allows"
    UNSUPPORTED_SASL_MECHANISM = 33, _G, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _G, "the request does not fit the state of the authentication"
    UNSUPPORTED_VERSION = 35, _G, "this version of the API is not supported"
    TOPIC_ALREADY_EXISTS = 36, _G, "a topic of this name exists"
    INVALID_PARTITIONS = 37, _G, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, _G, "the replication factor is below 1 or above the brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _G, "the assignment of replicas to brokers is not valid"
    INVALID_CONFIG = 40, _G, "a setting is unknown or its value is not allowed"
    NOT_CONTROLLER = 41, _R, "this node is not the active controller"
    INVALID_REQUEST = 42, _G, "the request contradicts itself or breaks the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _G, "the stored record format cannot serve this request"
    POLICY_VIOLATION = 44, _G, "the request breaks a policy of this cluster"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _G, "the sequence number does not follow the last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, _G, "the producer's sequence number was used before"
    INVALID_PRODUCER_EPOCH = 47, _G, "the producer's epoch is older than the one known"
    INVALID_TXN_STATE = 48, _G, "the transaction is in a state that does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, _G, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, _G, "the timeout exceeds transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, _R, "an earlier operation on this transaction is not finished yet"
    TRANSACTION_COORDINATOR_FENCED = 52, _G, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _G, "not allowed on this transactional id"
    SECURITY_DISABLED = 54, _G, "no authorizer is configured"
    OPERATION_NOT_ATTEMPTED = 55, _G, "not tried, because another part of the same request failed"
    KAFKA_STORAGE_ERROR = 56, _M, "the log directory of the partition failed or is offline"
    LOG_DIR_NOT_FOUND = 57, _G, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, _G, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, _G, "the broker holds no state for this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, _G, "a reassignment of this partition is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _G, "delegation tokens are not enabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, _G, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _G, "the delegation token belongs to somebody else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _G, "delegation tokens cannot be asked for here"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _G, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, _G, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _G, "this type of principal is not supported"
    NON_EMPTY_GROUP = 68, _G, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _G, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, _R, "there is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, _R, "the epoch of the fetch session is not the one expected"
    LISTENER_NOT_FOUND = 72, _M, "the leader has no listener of the name this request came through"
    TOPIC_DELETION_DISABLED = 73, _G, "delete.topic.enable is false"
    FENCED_LEADER_EPOCH = 74, _M, "the leader epoch given is older than the partition's"
    UNKNOWN_LEADER_EPOCH = 75, _R, "the leader epoch given is newer than the one this broker knows"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _G, "this version of the API cannot carry that compression"
    STALE_BROKER_EPOCH = 77, _G, "the broker epoch is not that of the current registration"
    OFFSET_NOT_AVAILABLE = 78, _R, "the new leader's high watermark has not caught up yet"
    MEMBER_ID_REQUIRED = 79, _G, "join again with the member id just given"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _M, "the preferred replica cannot lead at the moment"
    GROUP_MAX_SIZE_REACHED = 81, _G, "the group is full"
    FENCED_INSTANCE_ID = 82, _G, "another member has taken over this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _M, "no replica that may lead is available"
    ELECTION_NOT_NEEDED = 84, _M, "the partition already has the leader asked for"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _G, "no reassignment of this partition is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _G, "the group still subscribes to this topic"
    INVALID_RECORD = 87, _G, "the broker refused a record of the batch"
    UNSTABLE_OFFSET_COMMIT = 88, _R, "a transaction with offsets for these partitions is still open"
    THROTTLING_QUOTA_EXCEEDED = 89, _R, "the quota is used up; try again after the throttle time"
    PRODUCER_FENCED = 90, _G, "a newer producer with the same transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, _G, "there is no such resource"
    DUPLICATE_RESOURCE = 92, _G, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, _G, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, _G, "the sender's set of voters differs from this node's"
    INVALID_UPDATE_VERSION = 95, _G, "the version given for the update is not valid"
    FEATURE_UPDATE_FAILED = 96, _G, "the finalized features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _G, "the principal of a forwarded request is unreadable"
    SNAPSHOT_NOT_FOUND = 98, _G, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, _G, "the position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, _M, "this broker does not know the topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, _G, "a live broker is registered under this id"
    BROKER_ID_NOT_REGISTERED = 102, _G, "no broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, _M, "the log on disk belongs to another topic id"
    INCONSISTENT_CLUSTER_ID = 104, _G, "the request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _G, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _R, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, _G, "the in-sync set proposed holds a replica that may not join it"
    NEW_LEADER_ELECTED = 108, _G, "the change was made, and the partition got a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _G, "the offset has moved to remote storage"
    FENCED_MEMBER_EPOCH = 110, _G, "the member epoch is fenced; the member must join again"
    UNRELEASED_INSTANCE_ID = 111, _G, "another member still holds this group instance id"
    UNSUPPORTED_ASSIGNOR = 112, _G, "the group's coordinator does not offer this assignor"
    STALE_MEMBER_EPOCH = 113, _G, "the member epoch is old; retry with the next heartbeat's"
    MISMATCHED_ENDPOINT_TYPE = 114, _G, "the request went to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _G, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, _G, "there is no controller of this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, _G, "the subscription id of the client's metrics is out of date"
    TELEMETRY_TOO_LARGE = 118, _G, "the client's metrics are larger than the broker accepts"
    INVALID_REGISTRATION = 119, _G, "the controller refused the broker's registration"
    TRANSACTION_ABORTABLE = 120, _G, "the transaction failed and must be aborted"
    INVALID_RECORD_STATE = 121, _G, "the record's state does not allow this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, _R, "there is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, _R, "the epoch of the share session is not the one expected"
    FENCED_STATE_EPOCH = 124, _G, "the state epoch of the share partition is old"
    INVALID_VOTER_KEY = 125, _G, "the voter key is not this replica's"
    DUPLICATE_VOTER = 126, _G, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, _G, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, _G, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, _G, "the client should start again from its bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, _G, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _G, "the epoch of the streams topology is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, _G, "the epoch of the streams topology is old"
    SHARE_SESSION_LIMIT_REACHED = 133, _R, "the broker holds as many share sessions as it may"
    # fmt: on
