"""Requests of the Kafka protocol for simulated clients, built from kio's classes by name.

kio has one module per API and version, and types for ranges of numbers; a client that plays a
few requests in a few versions is easier to read with plain values.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.kio_values import duration_i32


@cache
def _module(api: ApiKey, version: int) -> ModuleType:
    return import_module(APIS[api].load_request_type(version).__module__)


class Structs:
    """The classes of one version of a request."""

    def __init__(self, api: ApiKey, version: int) -> None:
        self._module = _module(api, version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def metadata(topics: list[str] | None) -> Any:
    s = Structs(ApiKey.METADATA, 12)
    wanted = (
        None
        if topics is None
        else [s.MetadataRequestTopic(topic_id=None, name=name) for name in topics]
    )
    return s.MetadataRequest(
        topics=None if wanted is None else tuple(wanted),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def init_producer_id() -> Any:
    s = Structs(ApiKey.INIT_PRODUCER_ID, 4)
    return s.InitProducerIdRequest(transactional_id=None, transaction_timeout=duration_i32(60_000))


def produce(topic: str, partition: int, records: bytes, acks: int, timeout_ms: int) -> Any:
    s = Structs(ApiKey.PRODUCE, 12)
    data = s.PartitionProduceData(index=partition, records=records)
    return s.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=duration_i32(timeout_ms),
        topic_data=(s.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def fetch(
    topic_id: Any,
    partition: int,
    offset: int,
    *,
    leader_epoch: int,
    last_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
    is_committed_only: bool = False,
) -> Any:
    s = Structs(ApiKey.FETCH, 17)
    wanted = s.FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=max_bytes,
    )
    return s.FetchRequest(
        max_wait=duration_i32(max_wait_ms),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=1 if is_committed_only else 0,
        topics=(s.FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def create_topic(
    name: str,
    partitions: int,
    replication_factor: int,
    configs: dict[str, str],
    timeout_ms: int,
) -> Any:
    s = Structs(ApiKey.CREATE_TOPICS, 7)
    topic = s.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(
            s.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
        ),
    )
    return s.CreateTopicsRequest(topics=(topic,), timeout=duration_i32(timeout_ms))


def delete_topic(name: str, timeout_ms: int) -> Any:
    s = Structs(ApiKey.DELETE_TOPICS, 6)
    state = s.DeleteTopicState(name=name, topic_id=None)
    return s.DeleteTopicsRequest(topics=(state,), timeout=duration_i32(timeout_ms))


def create_partitions(name: str, count: int, timeout_ms: int) -> Any:
    s = Structs(ApiKey.CREATE_PARTITIONS, 3)
    topic = s.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return s.CreatePartitionsRequest(
        topics=(topic,), timeout=duration_i32(timeout_ms), validate_only=False
    )


def reassign(topic: str, partition: int, replicas: list[int], timeout_ms: int) -> Any:
    s = Structs(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    wanted = s.ReassignablePartition(partition_index=partition, replicas=tuple(replicas))
    return s.AlterPartitionReassignmentsRequest(
        timeout=duration_i32(timeout_ms),
        topics=(s.ReassignableTopic(name=topic, partitions=(wanted,)),),
    )


def elect_preferred(topic: str, partition: int, timeout_ms: int) -> Any:
    s = Structs(ApiKey.ELECT_LEADERS, 2)
    wanted = s.TopicPartitions(topic=topic, partitions=(partition,))
    return s.ElectLeadersRequest(
        election_type=0, topic_partitions=(wanted,), timeout=duration_i32(timeout_ms)
    )


def set_topic_config(topic: str, name: str, value: str) -> Any:
    s = Structs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    config = s.AlterableConfig(name=name, config_operation=0, value=value)
    resource = s.AlterConfigsResource(resource_type=2, resource_name=topic, configs=(config,))
    return s.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
