"""What a topic runs with: every topic setting as a typed attribute.

A value comes from the topic itself, else from the broker (dynamic before static, through the
synonyms of the table), else it is the default. The object is immutable; a change of either makes
a new one, so a log can compare the old with the new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tidelog.kernel.settings.kafka_names import KAFKA_TOPIC_NAMES
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import InvalidSettings, InvalidValue, Setting, Value, to_text
from tidelog.kernel.settings.values import Link, Origin, Settings, shown


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic, resolved."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    flush_policy: str
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: Settings) -> TopicConfig:
        """The settings of a topic with these overrides; raises InvalidSettings."""
        own = parse_topic_overrides(overrides)
        values: dict[str, Any] = {}
        for name, row in TOPIC_SETTINGS.items():
            found = broker.first_given(row.synonyms)
            inherited = found[0] if found is not None else row.default
            values[row.attribute] = own.get(name, inherited)
        config = cls(**values)
        conflict = config._conflict()
        if conflict is not None:
            raise InvalidSettings((conflict,))
        return config

    @classmethod
    def defaults(cls) -> TopicConfig:
        """A topic without overrides on a broker without settings."""
        return _defaults()

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether age and size make data go."""
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_bytes(self) -> int:
        """The size at which a segment is full."""
        internal = self.internal_segment_bytes
        return self.segment_bytes if internal is None else internal

    def _conflict(self) -> str | None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return (
                "conflict topic config setting"
                f" min.compaction.lag.ms ({self.min_compaction_lag_ms}) >"
                f" max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        return None


@cache
def _defaults() -> TopicConfig:
    return TopicConfig.resolve({}, Settings())


def parse_topic_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic's own settings; raises InvalidSettings with every objection.

    Settings that only Kafka has are taken and left out; remote storage is refused.
    """
    values: dict[str, Value] = {}
    errors: list[str] = []
    for name, text in overrides.items():
        row = TOPIC_SETTINGS.get(name)
        if row is None:
            errors += _objections_without_row(name, text)
            continue
        try:
            values[name] = row.parse(text)
        except InvalidValue as refused:
            errors.append(f"Invalid value {text} for configuration {name}: {refused}")
    if errors:
        raise InvalidSettings(tuple(errors))
    return values


def _objections_without_row(name: str, text: str) -> list[str]:
    if name not in KAFKA_TOPIC_NAMES:
        return [f"Unknown topic config name: {name}"]
    if name == "remote.storage.enable" and text.strip().lower() != "false":
        return [
            f"Invalid value {text} for configuration {name}: remote storage is not available here"
        ]
    return []


def topic_chain(row: Setting, overrides: Mapping[str, str], broker: Settings) -> tuple[Link, ...]:
    """What decides a topic setting, strongest first, as DescribeConfigs lists synonyms."""
    own = overrides.get(row.name)
    first = (Link(row.name, shown(row, row.parse(own)), Origin.TOPIC),) if own is not None else ()
    last = () if row.synonyms else _default_link(row)
    return (*first, *broker.links(row.synonyms), *last)


def _default_link(row: Setting) -> tuple[Link, ...]:
    if row.default is None:
        return ()
    return (Link(row.name, to_text(row.default), Origin.DEFAULT),)
