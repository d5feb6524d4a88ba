"""The table of APIs: what this system serves, in which versions, under which headers.

One table, so that what is advertised, what is parsed and what is documented cannot disagree. A
version range is Kafka 4.3.1's where we do what that version promises. An API is advertised when it
stands here *and* somebody registered a handler for it: ``advertised`` joins the two.

Two numbers per API differ from a plain range. Produce is advertised from version 0 and served
from 3, exactly like Kafka: librdkafka compares *minimum* versions, and one of 3 makes it believe
that the broker cannot take compressed batches (KIP-896 names the exception). AddPartitionsToTxn
ends at 3, because later versions are spoken between Kafka's brokers, and ours use gRPC.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81


class ApiVersionRange(NamedTuple):
    """One line of an ApiVersions response."""

    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    name: str
    min_version: int
    max_version: int
    first_flexible: int | None
    """From here on strings are compact and structs end in tags; None: never (KIP-482)."""
    min_served: int
    """Below it a version is advertised but refused; equal to ``min_version`` but for Produce."""

    @property
    def range(self) -> ApiVersionRange:
        return ApiVersionRange(self.key, self.min_version, self.max_version)

    def serves(self, version: int) -> bool:
        return self.min_served <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """An ApiVersions response keeps header 0: its reader does not know our versions yet."""
        return 1 if self.is_flexible(version) and self.key != ApiKey.API_VERSIONS else 0

    def load_request_type(self, version: int) -> type[RequestPayload]:
        """kio's class for this version of the request; imports it when first asked."""
        from kio.index import load_request_schema

        return load_request_schema(self.key, version)

    def load_response_type(self, version: int) -> type[ResponsePayload]:
        from kio.index import load_response_schema

        return load_response_schema(self.key, version)


def _api(
    key: ApiKey, versions: tuple[int, int], flexible: int | None, *, served: int | None = None
) -> Api:
    name = "".join(word.capitalize() for word in key.name.split("_"))
    least, most = versions
    return Api(key, name, least, most, flexible, least if served is None else served)


_TABLE: Final = (
    _api(ApiKey.PRODUCE, (0, 13), 9, served=3),
    _api(ApiKey.FETCH, (4, 18), 12),
    _api(ApiKey.LIST_OFFSETS, (1, 11), 6),
    _api(ApiKey.METADATA, (0, 13), 9),
    _api(ApiKey.OFFSET_COMMIT, (2, 10), 8),
    _api(ApiKey.OFFSET_FETCH, (1, 10), 6),
    _api(ApiKey.FIND_COORDINATOR, (0, 6), 3),
    _api(ApiKey.JOIN_GROUP, (0, 9), 6),
    _api(ApiKey.HEARTBEAT, (0, 4), 4),
    _api(ApiKey.LEAVE_GROUP, (0, 5), 4),
    _api(ApiKey.SYNC_GROUP, (0, 5), 4),
    _api(ApiKey.DESCRIBE_GROUPS, (0, 6), 5),
    _api(ApiKey.LIST_GROUPS, (0, 5), 3),
    _api(ApiKey.SASL_HANDSHAKE, (0, 1), None),
    _api(ApiKey.API_VERSIONS, (0, 4), 3),
    _api(ApiKey.CREATE_TOPICS, (2, 7), 5),
    _api(ApiKey.DELETE_TOPICS, (1, 6), 4),
    _api(ApiKey.DELETE_RECORDS, (0, 2), 2),
    _api(ApiKey.INIT_PRODUCER_ID, (0, 5), 2),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3), 3),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3),
    _api(ApiKey.END_TXN, (0, 5), 3),
    _api(ApiKey.WRITE_TXN_MARKERS, (1, 2), 1),
    _api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3),
    _api(ApiKey.DESCRIBE_ACLS, (1, 3), 2),
    _api(ApiKey.CREATE_ACLS, (1, 3), 2),
    _api(ApiKey.DELETE_ACLS, (1, 3), 2),
    _api(ApiKey.DESCRIBE_CONFIGS, (1, 4), 4),
    _api(ApiKey.ALTER_CONFIGS, (0, 2), 2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), 2),
    _api(ApiKey.SASL_AUTHENTICATE, (0, 2), 2),
    _api(ApiKey.CREATE_PARTITIONS, (0, 3), 2),
    _api(ApiKey.DELETE_GROUPS, (0, 2), 2),
    _api(ApiKey.ELECT_LEADERS, (0, 2), 2),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0),
    _api(ApiKey.OFFSET_DELETE, (0, 0), None),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), 0),
    _api(ApiKey.DESCRIBE_QUORUM, (0, 2), 0),
    _api(ApiKey.UPDATE_FEATURES, (0, 2), 0),
    _api(ApiKey.DESCRIBE_CLUSTER, (0, 2), 0),
    _api(ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0),
    _api(ApiKey.UNREGISTER_BROKER, (0, 0), 0),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0),
    _api(ApiKey.LIST_TRANSACTIONS, (0, 2), 0),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), 0),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), 0),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), 0),
    _api(ApiKey.ADD_RAFT_VOTER, (0, 1), 0),
    _api(ApiKey.REMOVE_RAFT_VOTER, (0, 0), 0),
)

APIS: Final[Mapping[int, Api]] = MappingProxyType({int(api.key): api for api in _TABLE})
"""Every API planned, by key, in ascending order."""


def served_apis(registered: Collection[int]) -> Mapping[int, Api]:
    """The APIs with a handler, for ``parse_request``: the others are unknown to clients."""
    if unknown := sorted(set(registered) - APIS.keys()):
        raise ValueError(f"handlers for APIs that are not in the table: {unknown}")
    return MappingProxyType({key: api for key, api in APIS.items() if key in registered})


def advertised(registered: Collection[int]) -> tuple[ApiVersionRange, ...]:
    """What an ApiVersions response lists: the table, as far as handlers are registered."""
    return tuple(api.range for api in served_apis(registered).values())
