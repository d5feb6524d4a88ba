"""What nodes tell about themselves over HTTP, while clients use them and while they fail."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from client_kits import PATIENCE_S, Confluent, Sent
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from raw_client import RawConnection
from telling_node import LOADED
from waiting import until

from tidelog.broker.metrics.table import METRICS
from tidelog.testing.local_cluster import LocalCluster, LocalNode
from tidelog.wire.protocol.apis import ApiKey

pytestmark = pytest.mark.xdist_group("cluster")

TELLING_NODE = (sys.executable, str(Path(__file__).parents[1] / "support/telling_node.py"))
RECORDS = 200
BROKER_LOGGER = 8


def get(node: LocalNode, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{node.http}{path}", timeout=PATIENCE_S) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def scrape(node: LocalNode) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, text = get(node, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def total(cluster: LocalCluster, name: str, **labels: str) -> float:
    """Summed over the nodes, of samples with exactly these labels."""
    key = (name, tuple(sorted(labels.items())))
    running = [node for node in cluster.nodes.values() if node.is_running]
    return sum(scrape(node).get(key, 0.0) for node in running)


def create(cluster: LocalCluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, 3)])
    made[topic].result(PATIENCE_S)


def readiness(node: LocalNode) -> tuple[int, Mapping[str, Any]]:
    status, body = get(node, "/readyz")
    return status, json.loads(body)


def is_ready(node: LocalNode) -> bool:
    """Also of one that was started a moment ago and has no port yet."""
    try:
        return readiness(node)[0] == 200
    except urllib.error.URLError:
        return False


def test_metrics_move_with_what_clients_do(cluster: LocalCluster) -> None:
    create(cluster, "watched", 3)
    kit = Confluent(cluster.bootstrap)
    bytes_in = "kafka_server_brokertopicmetrics_bytesin_total"
    for partition in range(3):
        kit.produce("watched", [Sent(b"k", b"v" * 100)] * RECORDS, partition=partition)
        assert total(cluster, bytes_in, topic="watched") > partition * RECORDS * 100
    messages = "kafka_server_brokertopicmetrics_messagesin_total"
    assert total(cluster, messages, topic="watched") == 3 * RECORDS
    assert len(kit.consume("watched", {0: RECORDS})[0]) == RECORDS
    out = "kafka_server_brokertopicmetrics_bytesout_total"
    assert total(cluster, out, topic="watched") >= RECORDS * 100
    assert total(cluster, "kafka_server_brokertopicmetrics_replicationbytesin_total") > 0
    assert total(cluster, "kafka_network_requestmetrics_requests_total", request="Produce") >= 3
    assert total(cluster, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(cluster, "tidelog_flush_duration_seconds_count") > 0
    assert total(cluster, "tidelog_fsync_duration_seconds_count") > 0
    for node in cluster.nodes.values():
        names = {name for name, _ in scrape(node)}
        assert {
            n for n in names if n in METRICS
        } and "tidelog_event_loop_lag_seconds_count" in names


def test_lag_of_a_group_is_told_by_its_coordinator(cluster: LocalCluster) -> None:
    create(cluster, "lagging", 1)
    Confluent(cluster.bootstrap).produce("lagging", [Sent(b"k", b"v")] * 10)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "watchers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["lagging"])
    try:
        got = consumer.consume(4, PATIENCE_S)
        assert len(got) == 4
        consumer.commit(message=got[3], asynchronous=False)
        place = {"consumergroup": "watchers", "topic": "lagging", "partition": "0"}
        until(lambda: total(cluster, "kafka_consumergroup_lag", **place) == 6, "the lag is not 6")
        assert total(cluster, "kafka_consumergroup_members", consumergroup="watchers") == 1
    finally:
        consumer.close()
    told = [json.loads(get(node, "/v1/groups")[1]) for node in cluster.nodes.values()]
    [group] = [one for part in told for one in part["groups"] if one["id"] == "watchers"]
    assert (group["lag"], group["offsets"][0]["committed"]) == (6, 4)


def test_every_node_tells_the_same_story(cluster: LocalCluster) -> None:
    create(cluster, "storied", 2)
    until(
        lambda: all(get(n, "/v1/topics/storied")[0] == 200 for n in cluster.nodes.values()),
        "a node does not know of the topic",
    )
    for node in cluster.nodes.values():
        topic = json.loads(get(node, "/v1/topics/storied")[1])
        assert [len(one["replicas"]) for one in topic["partitions"]] == [3, 3]
        whole = json.loads(get(node, "/v1/cluster")[1])
        assert (whole["cluster_id"], whole["brokers"]) == (cluster.cluster_id, 3)
        assert json.loads(get(node, "/v1/quorum")[1])["voters"] == [1, 2, 3]
        assert json.loads(get(node, "/v1/openapi.json")[1])["info"]["title"] == "Tidelog node"
    held = [json.loads(get(n, "/v1/partitions?topic=storied")[1]) for n in cluster.nodes.values()]
    roles = sorted(one["role"] for part in held for one in part["partitions"])
    assert roles == ["follower"] * 4 + ["leader"] * 2


def test_a_level_changed_by_a_client_switches_the_request_log_on(cluster: LocalCluster) -> None:
    node = cluster.nodes[1]

    def change(client: RawConnection, level: str) -> None:
        config = {"name": "tidelog.request", "config_operation": 0, "value": level}
        resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [config]}
        alter: dict[str, Any] = {"resources": [resource], "validate_only": False}
        [answer] = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **alter).responses
        assert answer.error_code.value == 0

    with RawConnection(node.kafka) as client:
        change(client, "DEBUG")
        until(
            # Any request: clients of other tests may be about, and only the last lines are kept.
            lambda: any("tidelog.request  " in line for line in list(node.last_words)),
            "node 1 logs no requests",
        )
        change(client, "INFO")


def test_a_node_is_ready_only_while_it_is_part_of_a_cluster() -> None:
    with LocalCluster(3) as cluster:
        one = cluster.nodes[1]
        assert readiness(one)[0] == 200
        for other in (2, 3):
            cluster.kill(other)
        until(lambda: readiness(one)[0] == 503, "it still says that it is ready")
        status, told = readiness(one)
        assert (status, told["status"]) == (503, "not ready")
        assert told["reasons"] and get(one, "/healthz")[0] == 200
        for other in (2, 3):
            cluster.start_node(other)
        until(
            lambda: all(is_ready(node) for node in cluster.nodes.values()),
            "they do not become ready again",
        )
        until(
            lambda: total(cluster, "tidelog_quorum_elections_total") > 0, "no election was counted"
        )


def test_the_server_is_loaded_when_somebody_asks() -> None:
    """What a node loads that nobody asks is told in test_processes."""
    with LocalCluster(1, server=TELLING_NODE) as one:
        assert get(one.nodes[1], "/metrics")[0] == 200
    told = one.nodes[1].last_words[-1].removeprefix(LOADED).split()
    assert "aiohttp.web" in told
    assert "prometheus_client" not in told


def test_a_node_can_do_without() -> None:
    with LocalCluster(1, settings={"http.listener": ""}) as one:
        assert one.nodes[1].http is None
        assert one.description()["nodes"][0]["http"] is None
