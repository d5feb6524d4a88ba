"""The administrative calls of each client, used as their users do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import kafka
import kafka.admin as kp
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from aiokafka.structs import TopicPartition as AioTopicPartition
from client_kits import Confluent, Kcat, Sent
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from confluent_kafka.admin import NewPartitions as ConfluentNewPartitions
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

TEN = [Sent(None, str(i).encode()) for i in range(10)]


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Metadata reaches every node a moment after the call that changed it was answered."""
    until(is_so, what)


# --- confluent-kafka -------------------------------------------------------------------


@pytest.fixture
def confluent(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def done(futures: Any) -> list[Any]:
    return [future.result(30) for future in futures.values()]


def test_confluent_topics(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("c-topic", 2, 3, config={"retention.ms": "5000"})]))
    with pytest.raises(KafkaException, match="already exists"):
        done(confluent.create_topics([NewTopic("c-topic", 2, 3)]))
    with pytest.raises(KafkaException):
        done(confluent.create_topics([NewTopic("c-many", 1, 4)]))
    [described] = done(confluent.describe_topics(TopicCollection(["c-topic"])))
    assert [len(p.replicas) for p in described.partitions] == [3, 3]
    done(confluent.create_partitions([ConfluentNewPartitions("c-topic", 5)]))
    eventually(
        lambda: len(confluent.list_topics("c-topic", timeout=30).topics["c-topic"].partitions) == 5,
        "five partitions",
    )
    done(confluent.delete_topics(["c-topic"]))
    eventually(lambda: "c-topic" not in confluent.list_topics(timeout=30).topics, "no topic")


def is_known(value: Callable[[str], object]) -> bool:
    try:
        value("retention.ms")
    except KafkaException as error:
        assert "UNKNOWN_TOPIC_OR_PART" in str(error)
        return False
    return True


def test_confluent_configs(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("c-configs", 1, 3)]))
    topic = ConfigResource(ConfigResource.Type.TOPIC, "c-configs")

    def value(name: str) -> tuple[str, bool]:
        [entries] = done(confluent.describe_configs([topic]))
        return entries[name].value, entries[name].is_default

    # The broker that is asked may not have heard of the topic yet.
    eventually(lambda: is_known(value), "its settings")
    assert value("retention.ms") == ("604800000", True)
    changed = ConfigResource(
        ConfigResource.Type.TOPIC,
        "c-configs",
        incremental_configs=[
            ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    done(confluent.incremental_alter_configs([changed]))
    eventually(lambda: value("retention.ms") == ("1000", False), "another retention")
    assert value("cleanup.policy")[0] == "delete,compact"
    done(
        confluent.alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, "c-configs", {"flush.ms": "7"})]
        )
    )
    eventually(lambda: value("flush.ms") == ("7", False), "all other settings gone")
    assert value("retention.ms") == ("604800000", True)
    wrong = ConfigResource(ConfigResource.Type.TOPIC, "c-configs", {"retention.ms": "many"})
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        done(confluent.alter_configs([wrong]))


def test_confluent_records_cluster_and_elections(
    confluent: AdminClient, cluster: LocalCluster
) -> None:
    done(confluent.create_topics([NewTopic("c-records", 1, 3)]))
    Confluent(cluster.bootstrap).produce("c-records", TEN)
    where = TopicPartition("c-records", 0)
    [deleted] = done(confluent.delete_records([TopicPartition("c-records", 0, 4)]))
    assert deleted.low_watermark == 4
    first = confluent.list_offsets({where: OffsetSpec.earliest()})[where].result(30)
    assert first.offset == 4
    described = confluent.describe_cluster().result(30)
    assert described.cluster_id == cluster.cluster_id
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.controller is not None
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [where]).result(30)
    assert elected[where] is None or "ELECTION_NOT_NEEDED" in str(elected[where])


# --- kafka-python ----------------------------------------------------------------------


@pytest.fixture
def kafka_python(cluster: LocalCluster) -> Any:
    client = kp.KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield client
    client.close()


def test_kafka_python_topics_and_configs(kafka_python: Any) -> None:
    kafka_python.create_topics({"k-topic": {"num_partitions": 2, "replication_factor": 3}})
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        kafka_python.create_topics(["k-topic"])
    eventually(lambda: "k-topic" in kafka_python.list_topics(), "the topic")
    [described] = kafka_python.describe_topics(["k-topic"])
    assert len(described["partitions"]) == 2
    kafka_python.create_partitions({"k-topic": 4})
    eventually(lambda: len(kafka_python.describe_topics(["k-topic"])[0]["partitions"]) == 4, "four")
    by_page = kafka_python.describe_topic_partitions(["k-topic"])
    assert by_page is not None
    topic = kp.ConfigResource(kp.ConfigResourceType.TOPIC, "k-topic", {"retention.ms": "1234"})
    kafka_python.alter_configs([topic])

    def retention() -> Any:
        asked = kp.ConfigResource(kp.ConfigResourceType.TOPIC, "k-topic")
        return json.dumps(kafka_python.describe_configs([asked], config_filter="all"), default=str)

    eventually(lambda: '"1234"' in retention(), "another retention")
    kafka_python.reset_configs([topic])
    eventually(lambda: '"1234"' not in retention(), "the default")
    kafka_python.delete_topics(["k-topic"])
    eventually(lambda: "k-topic" not in kafka_python.list_topics(), "no topic")


def test_kafka_python_changes_settings_of_brokers(kafka_python: Any) -> None:
    """Topics inherit a new value at once, at each broker that has it."""
    kafka_python.create_topics({"k-default": {"num_partitions": 1, "replication_factor": 3}})
    brokers = [
        kp.ConfigResource(kp.ConfigResourceType.BROKER, str(node), {"log.flush.interval.ms": "77"})
        for node in (1, 2, 3)
    ]

    def flush_ms() -> str:
        asked = kp.ConfigResource(kp.ConfigResourceType.TOPIC, "k-default")
        described = kafka_python.describe_configs([asked], config_filter="all")
        return json.dumps(described, default=str)

    kafka_python.alter_configs(brokers)
    eventually(lambda: '"77"' in flush_ms(), "the topic inherits it")
    kafka_python.reset_configs(brokers)
    eventually(lambda: '"77"' not in flush_ms(), "and gives it back")


def test_kafka_python_cluster_records_and_logs(kafka_python: Any, cluster: LocalCluster) -> None:
    described = kafka_python.describe_cluster()
    assert described["cluster_id"] == cluster.cluster_id
    assert len(described["brokers"]) == 3
    kafka_python.create_topics({"k-records": {"num_partitions": 1, "replication_factor": 3}})
    Confluent(cluster.bootstrap).produce("k-records", TEN)
    where = kafka.TopicPartition("k-records", 0)
    kafka_python.delete_records({where: 6})
    [first] = kafka_python.list_partition_offsets({where: kp.OffsetSpec.EARLIEST}).values()
    assert first.offset == 6
    assert "k-records" in json.dumps(kafka_python.describe_log_dirs(["k-records"]), default=str)
    quorum = kafka_python.describe_metadata_quorum()
    assert "__cluster_metadata" in json.dumps(quorum, default=str)
    assert "metadata.version" in json.dumps(kafka_python.describe_features(), default=str)


def test_kafka_python_moves_replicas(kafka_python: Any, cluster: LocalCluster) -> None:
    kafka_python.create_topics({"k-move": {"assignments": {0: [1, 2]}}})
    Confluent(cluster.bootstrap).produce("k-move", TEN)
    where = kafka.TopicPartition("k-move", 0)
    kafka_python.alter_partition_reassignments({where: [3, 1]})
    eventually(lambda: not kafka_python.list_partition_reassignments(), "the move is over")

    def partition() -> Any:
        return kafka_python.describe_topics(["k-move"])[0]["partitions"][0]

    eventually(lambda: sorted(partition()["isr_nodes"]) == [1, 3], "both in sync")
    kafka_python.elect_leaders(0, {"k-move": [0]}, raise_errors=False)
    eventually(lambda: bool(partition()["leader_id"] == 3), "the preferred leader leads")
    found = Confluent(cluster.bootstrap).consume("k-move", {0: 10})[0]
    assert [one.value for one in found] == [one.value for one in TEN]


# --- aiokafka and kcat -----------------------------------------------------------------


def test_aiokafka(cluster: LocalCluster) -> None:
    async def use() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic("a-topic", 1, 3)])
            described = await admin.describe_cluster()
            assert described["cluster_id"] == cluster.cluster_id
            assert len(described["brokers"]) == 3
            await admin.create_partitions({"a-topic": NewPartitions(3)})
            await asyncio.to_thread(Confluent(cluster.bootstrap).produce, "a-topic", TEN)
            [topic] = await admin.describe_topics(["a-topic"])
            assert len(topic["partitions"]) == 3
            resource = AioConfigResource(
                AioResourceType.TOPIC, "a-topic", configs={"retention.ms": "4321"}
            )
            await admin.alter_configs([resource])
            for _ in range(200):  # the broker that is asked may not have heard of it yet
                if "'4321'" in str(await admin.describe_configs([resource])):
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("the setting did not change")
            low = await admin.delete_records({AioTopicPartition("a-topic", 0): RecordsToDelete(5)})
            assert low == {AioTopicPartition("a-topic", 0): 5}
            assert "a-topic" in await admin.list_topics()
            await admin.delete_topics(["a-topic"])
        finally:
            await admin.close()

    asyncio.run(use())


def test_kcat_lists(cluster: LocalCluster, require: Callable[[str], None]) -> None:
    require("kcat")
    Confluent(cluster.bootstrap).produce("kcat-listed", TEN)
    listed = json.loads(Kcat(cluster.bootstrap).run("-L", "-J", "-t", "kcat-listed"))
    assert sorted(broker["id"] for broker in listed["brokers"]) == [1, 2, 3]
    [topic] = listed["topics"]
    assert topic["topic"] == "kcat-listed"
    assert len(topic["partitions"][0]["isrs"]) == 3
