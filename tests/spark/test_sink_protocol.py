"""The exactly-once protocol against real brokers, without Spark: dozens of deaths in seconds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from sink_job import QUERY, Job, Row, drive
from spark_topics import Topics

from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.coordinators import Coordinators
from tidelog.pipeline.decision import Task, Transaction
from tidelog.pipeline.errors import Fenced
from tidelog.pipeline.produce_message import VERSION, produce_body, read_produced
from tidelog.pipeline.sink_options import parse_sink_options
from tidelog.pipeline.source_options import BATCH
from tidelog.pipeline.two_phase import TwoPhase
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.records import Record, build_batch

pytestmark = pytest.mark.spark


class RealBrokers(Coordinators):
    """Rows go to partition 0 or 1, a batch each."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(cluster)
        self._brokers = cluster
        self._topic = topic
        self._sequences: dict[tuple[Transaction, int], int] = {}

    def produce(self, transaction: Transaction, row: Row) -> None:
        place = self._topic, row.number % 2
        self.add_partitions(transaction, [place])
        sequence = self._sequences.get((transaction, place[1]), 0)
        self._sequences[transaction, place[1]] = sequence + 1
        value = b"%d %d" % row
        batch = build_batch(
            [Record(0, 1, None, value, ())], base_offset=0, producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch, base_sequence=sequence, is_transactional=True,
        )  # fmt: skip
        leader = self._brokers.leader(place)
        leader.send(ApiKey.PRODUCE, VERSION, produce_body(transaction.id, 30_000, [(place, batch)]))
        [result] = read_produced(leader.receive()).values()
        assert result.error is ErrorCode.NONE, result


@pytest.fixture
def brokers_seen(topics: Topics) -> Iterator[Cluster]:
    given = {"kafka.bootstrap.servers": topics.bootstrap}
    running = Cluster(parse_sink_options(given, BATCH))
    yield running
    running.close()


def committed(topics: Topics, topic: str) -> list[Row]:
    settings: Any = {"group.id": "reader", "isolation.level": "read_committed"}
    settings |= {"enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    rows: list[Row] = []
    ended: set[int | None] = set()
    while len(ended) < 2:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is None:
            rows.append(Row(*map(int, (message.value() or b"").split())))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return sorted(rows)


@pytest.mark.parametrize("seed", range(4))
def test_every_row_once_and_nothing_left_open(
    topics: Topics, brokers_seen: Cluster, seed: int
) -> None:
    topic = topics.create(partitions=2)
    brokers = RealBrokers(brokers_seen, topic)
    rng = random.Random(seed)
    deaths: list[str] = []

    def dies(step: str) -> bool:
        is_death = rng.random() < 0.12
        deaths.extend([step] if is_death else [])
        return is_death

    job = Job(brokers, dies, prefix=f"protocol-{topic}", rng=rng)
    drive(job, batches=6)
    assert len(deaths) >= 5, "so many that it means something"
    assert committed(topics, topic) == [Row(batch, row) for batch in range(6) for row in range(6)]
    assert brokers.open_transactions(f"protocol-{topic}") == []


def test_an_id_is_described_whatever_its_state(topics: Topics, brokers_seen: Cluster) -> None:
    topic = topics.create(partitions=2)
    brokers = RealBrokers(brokers_seen, topic)
    empty = brokers.begin(f"described-{topic}", 60_000)
    assert brokers.describe(empty.id) == (empty, False)
    brokers.produce(empty, Row(0, 0))
    assert brokers.describe(empty.id) == (empty, True)
    brokers.end(empty, commit=True)
    assert brokers.describe(empty.id)[0] == empty


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_task_that_goes_on_after_an_abort_opens_no_transaction(
    topics: Topics, brokers_seen: Cluster, is_known: bool, is_late: bool
) -> None:
    """Late is one that has looked for its driver before the abort, and writes behind it."""
    topic = topics.create(partitions=2)
    prefix = f"late-{topic}"
    brokers = RealBrokers(brokers_seen, topic)
    protocol = TwoPhase(brokers, prefix, 60_000)
    plan = protocol.plan()

    def write(transaction: Transaction) -> int:
        if is_late:
            protocol.abort(plan.driver if is_known else None)
        brokers.produce(transaction, Row(0, 0))
        return 1

    task = Task("0000000a", 0, 0)
    if is_late:
        with pytest.raises(Fenced):
            protocol.prepare(plan, QUERY, 0, task, write)
    else:
        protocol.abort(plan.driver if is_known else None)
        assert protocol.prepare(plan, QUERY, 0, task, write).is_overtaken
    assert brokers.open_transactions(prefix) == []
