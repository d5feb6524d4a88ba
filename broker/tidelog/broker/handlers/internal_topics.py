"""The topics that brokers keep their own state in, and what they are created with.

They come into being when they are first needed, with the replication factor that is configured or
with one replica on every broker there is, whichever is less. Brokers that are registered and fenced
count: they are about to start, and a topic that was made without them would stay so for ever.
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

_REPLICATION_FACTORS: Final = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How a topic is created that nobody has described; −1 leaves it to the controller."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def is_internal(topic: str | None) -> bool:
    return topic in INTERNAL_TOPICS


def replication_factor(topic: str, settings: Settings, brokers: int) -> int:
    """Of an internal topic in a cluster of so many registered brokers."""
    return max(1, min(settings.get_int(_REPLICATION_FACTORS[topic]), brokers))


def plan_of(topic: str, settings: Settings, brokers: int) -> TopicPlan:
    """How to create a topic on demand, where so many brokers are registered."""
    if topic == CONSUMER_OFFSETS:
        return TopicPlan(
            topic,
            settings.get_int("offsets.topic.num.partitions"),
            replication_factor(topic, settings, brokers),
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
            replication_factor(topic, settings, brokers),
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(_min_isr(settings, brokers)),
                "segment.bytes": str(settings.get_int("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )
    return TopicPlan(topic)


def _min_isr(settings: Settings, brokers: int) -> int:
    """At most the replication factor, so that transactions work on one node."""
    wanted = settings.get_int("transaction.state.log.min.isr")
    return min(wanted, replication_factor(TRANSACTION_STATE, settings, brokers))
