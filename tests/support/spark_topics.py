"""Topics with known records, for tests of the pipelines on Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

Header = tuple[str, str | bytes | None]


@dataclass
class Topics:
    bootstrap: str
    admin: AdminClient
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def create(self, partitions: int = 1, **config: str) -> str:
        """A topic that no other test knows; ``retention_ms="1"`` is a setting of it."""
        name = f"topic-{next(self._numbers)}"
        settings: Any = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 3, config=settings)
        self.admin.create_topics([new])[name].result(30)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def fill(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: list[Header] | None = None,
        codec: str = "none",
    ) -> None:
        """All go out in order; with a timestamp each is a millisecond younger than the last."""
        # Idempotent, because a batch that is sent again must not change places with the next.
        settings: Any = {"compression.type": codec, "linger.ms": 5, "enable.idempotence": True}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for index, value in enumerate(values):
            producer.produce(
                topic,
                value,
                key,
                partition,
                timestamp=timestamp_ms + index if timestamp_ms else 0,
                headers=headers,
            )
            if index % 1000 == 0:
                producer.poll(0)
        assert producer.flush(30) == 0

    def transaction(self, topic: str, values: Iterable[bytes], *, commit: bool) -> None:
        settings: Any = {"transactional.id": f"id-{next(self._numbers)}"}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def open_transaction(self, topic: str, values: Iterable[bytes]) -> Producer:
        """Whoever gets it must keep it, and abort it."""
        settings: Any = {"transactional.id": f"id-{next(self._numbers)}"}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        return producer

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        from confluent_kafka import TopicPartition

        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(30)
