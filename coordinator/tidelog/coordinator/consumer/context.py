"""What all groups of one shard share: settings, the topics there are, the ids of writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidelog.coordinator.consumer.topic_regex import InvalidRegex, TopicRegex, matching_topics
from tidelog.coordinator.consumer.topics import KnownTopics, Topics
from tidelog.coordinator.server_assignors import SERVER_ASSIGNORS

FIRST_WRITE_ID: Final = 1 << 32
"""Ids of classic groups start at 0 for each group: these never meet them."""

MOST_MATCHES: Final = 200
"""Expressions whose topics are remembered for all groups."""


class MigrationPolicy(Enum):
    """Which way groups may change their protocol while they have members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The settings ``group.consumer.*``; the two time-outs may be given per group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """At least this long between two target assignments of a group."""
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    max_classic_size: int = 2**31 - 1
    """``group.max.size``: what a group must not exceed to become classic."""

    def __post_init__(self) -> None:
        unknown = set(self.assignors) - SERVER_ASSIGNORS.keys()
        if unknown or not self.assignors:
            offered = ", ".join(SERVER_ASSIGNORS)
            raise ValueError(f"group.consumer.assignors is {self.assignors}; some of: {offered}")


@dataclass(slots=True)
class GroupContext:
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    topics: Topics = field(default_factory=KnownTopics)
    overrides: dict[str, ConsumerGroupSettings] = field(default_factory=dict)
    """Settings of single groups."""
    _next_write_id: int = FIRST_WRITE_ID
    _matches: dict[str, tuple[str, ...] | InvalidRegex] = field(default_factory=dict)
    _matched_version: int = -1

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        return self.overrides.get(group_id, self.settings)

    def topics_matching(self, regex: str) -> tuple[str, ...]:
        """Matched once for all groups while the topics stay; also what is wrong is remembered."""
        if self._matched_version != self.topics.version or len(self._matches) >= MOST_MATCHES:
            self._matches.clear()
            self._matched_version = self.topics.version
        found = self._matches.get(regex)
        if found is None:
            try:
                found = matching_topics(TopicRegex(regex), self.topics.names())
            except InvalidRegex as error:
                found = error
            self._matches[regex] = found
        if isinstance(found, InvalidRegex):
            raise found
        return found

    def new_write_id(self) -> int:
        self._next_write_id += 1
        return self._next_write_id

    def new_write_ids(self) -> int:
        """The first of many, for a classic group that counts on by itself."""
        self._next_write_id += 1 << 20
        return self._next_write_id - (1 << 20) + 1
