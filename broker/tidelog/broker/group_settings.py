"""What the group coordinator runs with: the broker's settings, and the topics that there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import ResourceType
from tidelog.controller.metadata.topics import TopicImage
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, MigrationPolicy
from tidelog.coordinator.consumer.topics import TopicInfo
from tidelog.coordinator.offsets import OffsetSettings
from tidelog.coordinator.runtime.group_shard import GroupShardSettings
from tidelog.kernel.ids import TopicId, Uuid
from tidelog.kernel.settings import Settings

_MINUTE_MS: Final = 60_000
_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_CONSUMER_PROTOCOL: Final = "consumer"


class ImageTopics:
    """A ``Topics`` over one image of the metadata."""

    __slots__ = ("_topics", "version")

    def __init__(self, image: MetadataImage) -> None:
        self._topics = image.topics
        self.version: int = image.offset

    def named(self, name: str) -> TopicInfo | None:
        return _info(self._topics.named(name))

    def with_id(self, topic_id: Uuid) -> TopicInfo | None:
        return _info(self._topics.by_id.get(TopicId(topic_id)))

    def names(self) -> Iterable[str]:
        return sorted(self._topics.by_name)


def _info(topic: TopicImage | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.topic_id, topic.name, len(topic.partitions))


def has_consumer_protocol(settings: Settings, image: MetadataImage) -> bool:
    """Whether groups may use the protocol of KIP-848: it is on offer, and a feature here."""
    is_offered = _CONSUMER_PROTOCOL in settings.get_list("group.coordinator.rebalance.protocols")
    return is_offered and image.features.get("group.version", 0) >= 1


def group_shard_settings(settings: Settings, image: MetadataImage) -> GroupShardSettings:
    consumer_groups = _consumer_group_settings(settings)
    return GroupShardSettings(
        GroupSettings(
            min_session_timeout_ms=settings.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=settings.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=settings.get_int("group.initial.rebalance.delay.ms"),
            max_size=settings.get_int("group.max.size"),
        ),
        consumer_groups,
        OffsetSettings(
            metadata_max_bytes=settings.get_int("offset.metadata.max.bytes"),
            retention_ms=settings.get_int("offsets.retention.minutes") * _MINUTE_MS,
        ),
        {
            name: _of_single_group(consumer_groups, values)
            for (kind, name), values in image.configs.items()
            if kind == ResourceType.GROUP
        },
    )


def _consumer_group_settings(settings: Settings) -> ConsumerGroupSettings:
    policy = settings.get_str("group.consumer.migration.policy").lower()
    return ConsumerGroupSettings(
        session_timeout_ms=settings.get_int("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=settings.get_int("group.consumer.heartbeat.interval.ms"),
        max_size=settings.get_int("group.consumer.max.size"),
        assignors=settings.get_list("group.consumer.assignors"),
        migration_policy=MigrationPolicy(policy),
        regex_refresh_interval_ms=settings.get_int("group.consumer.regex.refresh.interval.ms"),
        max_classic_size=settings.get_int("group.max.size"),
    )


def _of_single_group(
    all_groups: ConsumerGroupSettings, values: Mapping[str, str]
) -> ConsumerGroupSettings:
    """A value that makes no sense was let through by another version: it has no effect."""
    session, heartbeat = values.get(_SESSION, ""), values.get(_HEARTBEAT, "")
    return replace(
        all_groups,
        session_timeout_ms=int(session) if session.isdigit() else all_groups.session_timeout_ms,
        heartbeat_interval_ms=(
            int(heartbeat) if heartbeat.isdigit() else all_groups.heartbeat_interval_ms
        ),
    )
