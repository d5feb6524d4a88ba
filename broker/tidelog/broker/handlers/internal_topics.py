"""The topics that brokers keep their own state in, and what they are created with.

They come into being when they are first needed, and only with the replication factor that is
configured: clients are told to come back until there are enough brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.kernel.settings import Settings

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"))
"""The last is not created here, but nobody else shall have its name."""

USE_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How a topic is created that nobody has described; −1 leaves it to the controller."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def is_internal(topic: str | None) -> bool:
    return topic in INTERNAL_TOPICS


def plan_of(topic: str, settings: Settings) -> TopicPlan:
    if topic == CONSUMER_OFFSETS:
        return TopicPlan(
            topic,
            settings.get_int("offsets.topic.num.partitions"),
            settings.get_int("offsets.topic.replication.factor"),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.get_int("offsets.topic.segment.bytes")),
            },
        )
    if topic == TRANSACTION_STATE:
        return TopicPlan(
            topic,
            settings.get_int("transaction.state.log.num.partitions"),
            settings.get_int("transaction.state.log.replication.factor"),
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.get_int("transaction.state.log.min.isr")),
                "segment.bytes": str(settings.get_int("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )
    return TopicPlan(topic)
