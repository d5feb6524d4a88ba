"""What of two answers must be equal, when one is Kafka's and one is ours.

Taken out: what differs from run to run, what has no order, and what only one of the two has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from golden_replay import Plain

from tidelog.wire.protocol.apis import ApiKey

SERVED = {
    ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS,
    ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_CLUSTER, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}  # fmt: skip
ONLY_KAFKAS = {
    "local.retention.bytes", "local.retention.ms", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "remote.storage.enable",
    "consumer.assignment.interval.ms", "share.assignment.interval.ms", "share.auto.offset.reset",
    "share.delivery.count.limit", "share.heartbeat.interval.ms", "share.isolation.level",
    "share.partition.max.record.locks", "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable", "share.session.timeout.ms",
    "streams.assignment.interval.ms", "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas",
    "streams.session.timeout.ms",
}  # fmt: skip
"""Settings of topics and groups for tiered storage, share and Streams groups, and one more."""
ONLY_OURS = {"flush.policy"}
FEATURES_OF_KAFKA = {"kraft.version", "share.version", "streams.version"}


def masked(value: Any, known_ids: Collection[str] = ()) -> Any:
    """A decoded answer without all that; of ids only the known ones are left."""
    if isinstance(value, list):
        items = [masked(one, known_ids) for one in value]
        return _in_order(items) if items and isinstance(items[0], dict) else items
    if not isinstance(value, dict):
        return value
    plain = {name: masked(one, known_ids) for name, one in value.items()}
    if plain.get("topic_id") is not None and plain["topic_id"] not in known_ids:
        plain["topic_id"] = "an id"
    for name in ("high_watermark", "log_end_offset", "finalized_features_epoch"):
        if plain.get(name, 0) > 0:
            plain[name] = "an offset"
    for name in ("last_fetch_timestamp", "last_caught_up_timestamp"):
        if plain.get(name, 0) > 0:
            plain[name] = "a time"
    if plain.get("documentation") is not None:
        plain["documentation"] = "some words"
    if {"host", "port", "name"} <= plain.keys():
        plain["host"] = plain["port"] = "an address"
    return plain


def _in_order(items: list[Plain]) -> list[Plain]:
    kept = [item for item in items if not _is_of_one_side(item)]
    if "source" in items[0] or "partition_index" in items[0]:
        return kept
    key = next((name for name in ("name", "topic", "api_key") if name in items[0]), None)
    return kept if key is None else sorted(kept, key=lambda item: item[key])


def _is_of_one_side(item: Plain) -> bool:
    if "api_key" in item:
        return item["api_key"] not in SERVED
    settings_or_features = (
        "read_only" in item or "max_version" in item or "max_version_level" in item
    )
    return settings_or_features and item["name"] in ONLY_KAFKAS | ONLY_OURS | FEATURES_OF_KAFKA


def codes(response: Any) -> list[int]:
    """The error codes of an answer that are closest to what was asked for."""
    if isinstance(response, list):
        return [code for one in response for code in codes(one)]
    if not isinstance(response, dict):
        return []
    below = [code for one in response.values() for code in codes(one)]
    return below or [response["error_code"]] if "error_code" in response else below
