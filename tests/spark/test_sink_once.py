"""``deliveryGuarantee=exactly-once``: drivers killed, tasks failed, and every row there once.

``TIDELOG_SPARK_KILLS`` says how many drivers are killed; ``make test-spark-soak`` kills more.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from spark_topics import Topics

from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.coordinators import Coordinators
from tidelog.pipeline.sink_options import parse_sink_options
from tidelog.pipeline.source_options import BATCH, STREAM

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_home")]

KILLS = int(os.environ.get("TIDELOG_SPARK_KILLS", "8"))
DRIVER = Path(__file__).parents[1] / "support" / "faulty_sink_driver.py"
STEPS = (
    "plan-settled", "task-sent-some", "commit-undecided", "commit-decided", "commit-ended-one",
    "task-wrote", "commit-began", "commit-done",
)  # fmt: skip
ONCE = {"deliveryGuarantee": "exactly-once"}
TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which a busy machine may need for itself."""


class Drivers:
    """One query, by one driver after the other."""

    def __init__(self, topics: Topics, place: Path, rows: int) -> None:
        self.topics = topics
        self.place = place
        self.source, self.target = topics.create(partitions=2), topics.create(partitions=3)
        for partition in (0, 1):
            numbers = range(partition, rows, 2)
            topics.fill(self.source, [b"%d" % n for n in numbers], partition=partition)
        self.faults = place / "faults"
        self.faults.mkdir()
        self.started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self.started:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()

    def plan(self, step: str, action: str) -> None:
        for old in self.faults.glob(f"{step}={action}.*"):
            old.unlink()
        (self.faults / f"{step}={action}.planned").touch()

    def start(self, master: str = "local[2,4]", per_batch: int = 500) -> subprocess.Popen[str]:
        arguments = {
            "bootstrap": self.topics.bootstrap, "source": self.source, "target": self.target,
            "checkpoint": self.place / "checkpoint", "scratch": self.place / "scratch",
            "master": master, "per-batch": per_batch,
        }  # fmt: skip
        told = [f"--{name}={value}" for name, value in arguments.items()]
        driver = subprocess.Popen(
            [sys.executable, str(DRIVER), *told],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            cwd=self.place,
            env={**os.environ, "TIDELOG_TEST_FAULTS": str(self.faults)},
        )
        self.started.append(driver)
        return driver

    def run(self, master: str = "local[2,4]", per_batch: int = 500) -> tuple[int, str]:
        """How it ended, and what it said."""
        for _ in range(4):
            code, said = finished(self.start(master, per_batch))
            if TOO_SLOW not in said:
                break
        return code, said

    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "topic": self.target,
            "checkpointLocation": str(self.place / "checkpoint"),
            **ONCE,
        }


def numbers(topics: Topics, topic: str) -> list[int]:
    """What a consumer reads that leaves out what is not committed."""
    settings: Any = {"group.id": "reader", "isolation.level": "read_committed"}
    settings |= {"enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, **settings})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[int] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "no end within 30 s"
        error = message.error()
        if error is None:
            found.append(int(message.value() or b"-1"))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def left_open(given: dict[str, str], mode: str) -> list[str]:
    options = parse_sink_options(given, mode)
    assert options.once is not None
    cluster = Cluster(options)
    try:
        return Coordinators(cluster).open_transactions(options.once.prefix)
    finally:
        cluster.close()


def finished(driver: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = driver.communicate(timeout=900)
    return driver.returncode, said


@pytest.mark.slow
@pytest.mark.timeout(240 * (KILLS + 2))
def test_every_row_is_there_once_whoever_is_killed(topics: Topics, tmp_path: Path) -> None:
    rows = 1000 + 500 * KILLS
    rng = random.Random(KILLS)
    with Drivers(topics, tmp_path, rows) as drivers:
        for kill, step in enumerate(itertools.islice(itertools.cycle(STEPS), KILLS)):
            if kill % 4 == 3 or rng.random() < 0.1:
                drivers.plan("task-began", "raise")
                drivers.plan("task-sent-some", "die")
                drivers.plan("task-wrote", "raise")
            drivers.plan(step, "kill")
            code, said = drivers.run()
            assert code == -9, f"killed at {step}: {said}"
            found = numbers(topics, drivers.target)
            assert len(found) == len(set(found)), f"nothing twice after {step}"
        # The last driver has executors of its own, and ends all that the others left.
        code, said = drivers.run("local-cluster[2,1,1024]", per_batch=rows)
        assert code == 0, said
        assert not list(drivers.faults.glob("*.planned")), "all faults happened"
        assert numbers(topics, drivers.target) == list(range(rows))
        assert left_open(drivers.options(), STREAM) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_second_driver_fences_the_first(spark: Any, topics: Topics, tmp_path: Path) -> None:
    with Drivers(topics, tmp_path, 800) as drivers:
        drivers.plan("commit-began", "wait")
        first = drivers.start()
        while not (drivers.faults / "commit-began=wait.done").exists():
            if first.poll() is not None:
                said = first.communicate()[0]
                assert TOO_SLOW in said, said
                first = drivers.start()
            time.sleep(0.1)
        stream = spark.readStream.format("tidelog").option("subscribe", drivers.source)
        stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
        stream = stream.option("startingOffsets", "earliest").load().select("key", "value")
        writer = stream.writeStream.format("tidelog").options(**drivers.options())
        assert writer.trigger(availableNow=True).start().awaitTermination(400)
        (drivers.faults / "go").touch()
        code, said = finished(first)
        assert code == 1 and "Only one of them may run" in said, said
        assert numbers(topics, drivers.target) == list(range(800))
        assert left_open(drivers.options(), STREAM) == []


def test_a_query_that_is_stopped_leaves_nothing_open(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    target = topics.create()
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "20").load()
    slow = rate.selectExpr("CAST(value AS STRING) value")
    given = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "topic": target,
        "checkpointLocation": str(tmp_path / "checkpoint"),
        **ONCE,
    }
    query = slow.writeStream.format("tidelog").options(**given).start()
    while len(query.recentProgress) < 3:
        assert not query.awaitTermination(0.2)
    query.stop()
    assert left_open(given, STREAM) == []
    found = numbers(topics, target)
    assert found == list(range(len(found))) and found


def write(frame: Any, topics: Topics, topic: str, **options: object) -> None:
    writer = frame.write.format("tidelog").mode("append").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap)
    writer.options(**ONCE, **options).save()


def test_a_batch_job_that_runs_again_writes_nothing(spark: Any, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    frame = spark.range(0, 1000, 1, 2).selectExpr("CAST(id AS STRING) value")
    for version in (7, 7, 6):
        write(frame, topics, topic, txnAppId="nightly", txnVersion=version)
        assert numbers(topics, topic) == list(range(1000))
    more = spark.range(1000, 1500, 1, 3).selectExpr("CAST(id AS STRING) value")
    write(more, topics, topic, txnAppId="nightly", txnVersion=8)
    assert numbers(topics, topic) == list(range(1500))
    nothing = frame.where("false")
    write(nothing, topics, topic, txnAppId="nightly", txnVersion=9)
    write(frame, topics, topic, txnAppId="nightly", txnVersion=9)
    assert numbers(topics, topic) == list(range(1500))
    given = {"kafka.bootstrap.servers": topics.bootstrap, "txnAppId": "nightly", "txnVersion": "0"}
    assert left_open({**given, **ONCE}, BATCH) == []


def test_a_batch_job_that_fails_writes_nothing(spark: Any, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    bad = spark.range(0, 100, 1, 2).selectExpr(
        "CAST(id AS STRING) value", "IF(id = 99, 9, CAST(id % 2 AS INT)) partition"
    )
    with pytest.raises(Exception, match=r"partition 9 of topic"):
        write(bad, topics, topic, txnAppId="half", txnVersion=1)
    assert numbers(topics, topic) == []
    # The other task may still have been at work when its job failed: the next run sweeps up.
    write(bad.where("value < '99'"), topics, topic, txnAppId="half", txnVersion=1)
    assert len(numbers(topics, topic)) == 99
    given = {"kafka.bootstrap.servers": topics.bootstrap, "txnAppId": "half", "txnVersion": "1"}
    assert left_open({**given, **ONCE}, BATCH) == []
