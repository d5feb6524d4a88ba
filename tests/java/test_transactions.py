"""Apache Kafka's own transactional producer (KIP-890 and all) and its tool for transactions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import DUMP_LOG, JARS, run
from transactional_copier import read_committed

from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
TOPIC = "payments"
RECORDS = 4_000


@pytest.fixture(scope="module")
def cluster(require: Callable[[str], None]) -> Iterator[LocalCluster]:
    require("java")
    assert JARS.exists(), "the jars are fetched by make test-java"
    with LocalCluster(3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(30)
        yield running


def at(cluster: LocalCluster) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


def test_a_producer_of_the_new_kind_writes_transactions(cluster: LocalCluster) -> None:
    """It adds no partitions itself, and goes on under a new epoch after each transaction."""
    said = run(
        PERFORMANCE, "--topic", TOPIC, "--num-records", str(RECORDS), "--record-size", "100",
        "--throughput", "4000", "--transaction-duration-ms", "50", "--transactional-id", "java",
        *at(cluster),
    )  # fmt: skip
    assert f"{RECORDS} records sent" in said
    found = read_committed(cluster.bootstrap, TOPIC, 3)
    assert sum(map(len, found.values())) == RECORDS
    described = run(TRANSACTIONS, *at(cluster), "describe", "--transactional-id", "java")
    row = described.splitlines()[1].split()
    assert row[1] == "java" and row[4] == "CompleteCommit"
    assert int(row[3]) > 3, "every end begins an epoch"


def test_a_transaction_that_hangs_is_found_and_aborted(cluster: LocalCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "hanging"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, "never ended", partition=0)
    producer.flush(30)
    listed = run(TRANSACTIONS, *at(cluster), "list")
    assert re.search(r"hanging\s+\d\s+\d+\s+Ongoing", listed)
    place = ("--topic", TOPIC, "--partition", "0")
    described = run(TRANSACTIONS, *at(cluster), "describe-producers", *place)
    [start] = re.findall(r"\s(\d+)\s*$", described, re.MULTILINE)
    run(TRANSACTIONS, *at(cluster), "abort", *place, "--start-offset", start)
    described = run(TRANSACTIONS, *at(cluster), "describe-producers", *place)
    assert not re.findall(r"\s(\d+)\s*$", described, re.MULTILINE)
    assert "hanging" not in run(TRANSACTIONS, *at(cluster), "find-hanging", "--broker-id", "1")


def test_kafka_reads_what_the_coordinator_wrote(cluster: LocalCluster) -> None:
    index = coordinator_partition("java", 50)
    cluster.stop_node(1)
    files = sorted((cluster.nodes[1].data_dir / f"__transaction_state-{index}").glob("*.log"))
    shown = run(DUMP_LOG, "--transaction-log-decoder", "--files", str(files[0]))
    assert '"transactionalId":"java"' in shown
    assert '"clientTransactionVersion":2' in shown
