"""What a node's replicas count, by topic: what comes in, goes out and fails. Pure.

A topic's meter is shared by its partitions on this node and outlives each of them, so that its
numbers never go back while the topic exists. When the topic is deleted they are added to those of
all deleted ones: the node's sums never go back either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FIELDS: Final = (
    "messages_in",
    "bytes_in",
    "bytes_rejected",
    "bytes_out",
    "produce_requests",
    "failed_produce_requests",
    "fetch_requests",
    "failed_fetch_requests",
    "replication_bytes_in",
    "replication_bytes_out",
    "failed_isr_updates",
)


class TopicMeter:
    """Counts of one topic on this node; whoever does something adds to them."""

    __slots__ = FIELDS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_rejected = 0
        self.bytes_out = 0
        self.produce_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.failed_fetch_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.failed_isr_updates = 0

    def add(self, other: TopicMeter) -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TopicMeters:
    """One meter for each topic that has, or had and still could have, replicas here."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicMeter] = {}
        self._deleted = TopicMeter()

    def of(self, topic: str) -> TopicMeter:
        meter = self._by_topic.get(topic)
        if meter is None:
            meter = self._by_topic[topic] = TopicMeter()
        return meter

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        meter = self._by_topic.pop(topic, None)
        if meter is not None:
            self._deleted.add(meter)

    def __iter__(self) -> Iterator[tuple[str, TopicMeter]]:
        return iter(self._by_topic.items())

    def sum(self) -> TopicMeter:
        """Over all topics, also those that are gone."""
        everything = TopicMeter()
        everything.add(self._deleted)
        for meter in self._by_topic.values():
            everything.add(meter)
        return everything
