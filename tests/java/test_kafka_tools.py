"""Apache Kafka 4.3.1's own tools against three nodes, and against the files that these leave.

The tests are one story and run in order: topics are made and configured, records go through the
death of a leader, and in the end the nodes stop and Kafka reads what lies on their disks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from java_tools import (
    CONFIGS,
    CONSUMER,
    DUMP_LOG,
    GROUPS,
    JARS,
    OFFSETS,
    PRODUCER,
    QUORUM,
    TOPICS,
    run,
    started,
)

from tidelog.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]

LINES = 4000
KILLED_AFTER = 1000
RECORDS = "through-a-kill"
SMALL = "keys-and-headers"

_LEADER = re.compile(rf"Topic: {RECORDS}\tPartition: 0\tLeader: (\d)")
_COUNT = re.compile(r"^baseOffset: .* count: (\d+) .* isvalid: (\w+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(require: Callable[[str], None]) -> Iterator[LocalCluster]:
    require("java")
    assert JARS.exists(), "the jars are fetched by make test-java"
    with LocalCluster(3) as running:
        yield running


def at(cluster: LocalCluster) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


def test_topics_are_created_listed_and_described(cluster: LocalCluster) -> None:
    for name, more in ((RECORDS, ["--config", "index.interval.bytes=500"]), (SMALL, [])):
        said = run(TOPICS, *at(cluster), "--create", "--topic", name, "--partitions", "1",
                   "--replication-factor", "3", *more)  # fmt: skip
        assert said == f"Created topic {name}.\n"
    assert run(TOPICS, *at(cluster), "--list").split() == [SMALL, RECORDS]
    described = run(TOPICS, *at(cluster), "--describe", "--topic", RECORDS)
    assert "PartitionCount: 1\tReplicationFactor: 3\tConfigs: " in described
    assert "index.interval.bytes=500" in described
    assert re.search(r"Leader: (\d)\tReplicas: \1,\d,\d\tIsr: \1,\d,\d\tElr: \t", described)


def test_settings_are_altered_and_described(cluster: LocalCluster) -> None:
    topic = (*at(cluster), "--entity-type", "topics", "--entity-name", SMALL)
    changed = run(CONFIGS, *topic, "--alter", "--add-config",
                  "retention.ms=86400000,cleanup.policy=[compact,delete]")  # fmt: skip
    assert changed == f"Completed updating config for topic {SMALL}.\n"
    run(CONFIGS, *topic, "--alter", "--delete-config", "cleanup.policy")
    described = run(CONFIGS, *topic, "--describe")
    assert "  retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in described
    assert "cleanup.policy" not in described

    brokers = (*at(cluster), "--entity-type", "brokers", "--entity-default")
    run(CONFIGS, *brokers, "--alter", "--add-config", "log.cleaner.threads=2")
    described = run(CONFIGS, *brokers, "--describe")
    assert "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER" in described


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_and_headers_come_back(cluster: LocalCluster, codec: str) -> None:
    before = int(offset(cluster, SMALL))
    run(PRODUCER, *at(cluster), "--topic", SMALL, "--compression-codec", codec,
        "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
        "--reader-property", "null.marker=NIL",
        lines=[f"codec:{codec},n:1\tkey\tthe value", "n:2\tNIL\tNIL"])  # fmt: skip
    shown = ("print.key", "print.headers", "print.offset", "print.partition")
    read = run(CONSUMER, *at(cluster), "--topic", SMALL, "--partition", "0",
               "--offset", str(before), "--max-messages", "2",
               *(part for name in shown for part in ("--formatter-property", f"{name}=true")),
               )  # fmt: skip
    assert read.splitlines() == [
        f"Partition:0\tOffset:{before}\tcodec:{codec},n:1\tkey\tthe value",
        f"Partition:0\tOffset:{before + 1}\tn:2\tnull\tnull",
    ]


def offset(cluster: LocalCluster, topic: str) -> str:
    said = run(OFFSETS, *at(cluster), "--topic", topic)
    return said.strip().removeprefix(f"{topic}:0:")


def test_a_producer_and_a_consumer_outlive_the_leader(cluster: LocalCluster) -> None:
    values = [f"line {number}" for number in range(LINES)]
    described = run(TOPICS, *at(cluster), "--describe", "--topic", RECORDS)
    leader = _LEADER.search(described)
    assert leader is not None, described
    reading = started(CONSUMER, *at(cluster), "--topic", RECORDS, "--partition", "0",
                      "--offset", "earliest", "--max-messages", str(LINES))  # fmt: skip
    # The tool gives up after three retries unless told otherwise; Kafka's producers never do.
    writing = started(PRODUCER, *at(cluster), "--topic", RECORDS, "--timeout", "5",
                      "--batch-size", "1000", "--message-send-max-retries", "2147483647",
                      "--request-timeout-ms", "10000")  # fmt: skip
    with reading as consumer, writing as producer:
        producer.say(values[:KILLED_AFTER])
        consumer.wait_for_lines(KILLED_AFTER // 2)
        cluster.kill(int(leader.group(1)))
        producer.say(values[KILLED_AFTER:])
        producer.wait_for_end()
        consumer.wait_for_end()
    assert consumer.lines == values
    assert not producer.errors
    assert offset(cluster, RECORDS) == str(LINES)

    cluster.start_node(int(leader.group(1)))
    cluster.wait_until_serving()
    described = run(TOPICS, *at(cluster), "--describe", "--topic", RECORDS)
    elected = _LEADER.search(described)
    assert elected is not None and elected.group(1) != leader.group(1), described


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_stopped(cluster: LocalCluster, protocol: str) -> None:
    """With a node that was killed and is back: it may have coordinated the group."""
    group = f"readers-{protocol}"
    reading = (*at(cluster), "--topic", SMALL, "--group", group, "--from-beginning",
               "--command-property", f"group.protocol={protocol}",
               "--formatter-property", "print.offset=true",
               "--formatter-property", "print.value=false")  # fmt: skip
    seen = [run(CONSUMER, *reading, "--max-messages", count).split() for count in ("4", "6")]
    assert seen == [[f"Offset:{n}" for n in range(4)], [f"Offset:{n}" for n in range(4, 10)]]
    described = run(GROUPS, *at(cluster), "--describe", "--group", group, "--offsets")
    head, row = (line.split() for line in described.splitlines() if line)
    assert head[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert row[:6] == [group, SMALL, "0", "10", "10", "0"]


def test_the_quorum_is_described(cluster: LocalCluster) -> None:
    status = run(QUORUM, *at(cluster), "describe", "--status")
    assert f"ClusterId:              {cluster.cluster_id}\n" in status
    voters = next(line for line in status.splitlines() if line.startswith("CurrentVoters:"))
    for node in cluster.nodes.values():
        assert f'"endpoints": ["CONTROLLER://{node.rpc}"]' in voters
    rows = run(QUORUM, *at(cluster), "describe", "--replication").splitlines()[1:]
    assert sorted(row.split()[0] for row in rows) == ["1", "2", "3"]
    assert sorted(row.split()[-1] for row in rows) == ["Follower", "Follower", "Leader"]


def test_what_is_left_on_disk_is_what_kafka_writes(cluster: LocalCluster) -> None:
    """Each replica by itself, and all of them the same."""
    wait_until_replicated(cluster)
    for node in cluster.nodes.values():
        node.ask_to_end()
    for node in cluster.nodes.values():
        node.wait_for_end(30)
    for topic in (RECORDS, SMALL):
        dumps = {dump(cluster, node_id, topic) for node_id in cluster.nodes}
        assert len(dumps) == 1
        batches = _COUNT.findall(dumps.pop())
        assert {is_valid for _, is_valid in batches} == {"true"}
        assert sum(int(count) for count, _ in batches) == (LINES if topic == RECORDS else 10)


def wait_until_replicated(cluster: LocalCluster) -> None:
    """Records that the killed node missed reach it before the nodes stop."""
    for _ in range(30):
        filters = ("--describe", "--under-replicated-partitions")
        if not run(TOPICS, *at(cluster), *filters).strip():
            return
    raise AssertionError("a replica does not catch up")


def dump(cluster: LocalCluster, node_id: int, topic: str) -> str:
    """Kafka's reading of a replica's log, after it found nothing wrong with its indexes."""
    directory = cluster.nodes[node_id].data_dir / f"{topic}-0"
    files = sorted(
        str(path)
        for path in directory.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
    )
    assert len(files) >= 4, files
    text = run(DUMP_LOG, "--print-data-log", "--files", ",".join(files))
    if topic == RECORDS:
        assert len(re.findall(r"^offset: \d+ position: \d+$", text, re.MULTILINE)) > 10
    log = text.partition(".log\n")[2].partition("\nDumping")[0]
    return log
