"""``tidelog.testing.containers`` in the style in which a user would write tests with it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tidelog.testing.containers import (
    ImageMissing,
    NotServing,
    TidelogCluster,
    TidelogContainer,
)

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def tidelog(image: str) -> Iterator[TidelogContainer]:
    with TidelogContainer(image, settings={"num.partitions": "4"}) as container:
        yield container


@pytest.fixture(scope="module")
def trio(image: str) -> Iterator[TidelogCluster]:
    with TidelogCluster(image=image) as running:
        # The topic of the groups is made at first use, and only while all its brokers live.
        produce(running.get_bootstrap_servers(), "warm-up", 1)
        assert consume(running.get_bootstrap_servers(), "warm-up", 1) == [0]
        yield running


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    numbers: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(numbers) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            numbers.append(int(message.value() or b"-1"))
    consumer.close()
    return sorted(numbers)


def leader_of(bootstrap: str, topic: str) -> int:
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=PATIENCE_S)
    return int(listed.topics[topic].partitions[0].leader)


def test_records_come_back(tidelog: TidelogContainer) -> None:
    produce(tidelog.get_bootstrap_server(), "numbers", 100)
    assert consume(tidelog.get_bootstrap_server(), "numbers", 100) == list(range(100))


def test_settings_reach_the_node(tidelog: TidelogContainer) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog.get_bootstrap_server()})
    admin.create_topics([NewTopic("of-default-size")])["of-default-size"].result(PATIENCE_S)
    listed = admin.list_topics("of-default-size", timeout=PATIENCE_S)
    assert len(listed.topics["of-default-size"].partitions) == 4


def test_the_node_tells_of_itself_over_http(tidelog: TidelogContainer) -> None:
    with urllib.request.urlopen(f"{tidelog.get_http_url()}/readyz", timeout=30) as answer:
        assert json.load(answer)["status"] == "ready"


def test_another_container_reaches_it(image: str) -> None:
    with Network() as network:
        node = TidelogContainer(image).with_network(network).with_network_aliases("log")
        with node:
            produce(node.get_bootstrap_server(), "inside", 10)
            server = node.get_internal_bootstrap_server()
            reader = (
                DockerContainer(image)
                .with_network(network)
                .with_command(f"consume inside --from-beginning -n 10 --bootstrap-server {server}")
            )
            with reader:
                assert reader.wait() == 0
                assert len(reader.get_logs()[0].split()) == 10


@pytest.mark.parametrize("fault", ["kill", "pause", "disconnect"])
def test_a_cluster_survives_the_loss_of_a_leader(trio: TidelogCluster, fault: str) -> None:
    bootstrap = trio.get_bootstrap_servers()
    topic = f"survives-{fault}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(PATIENCE_S)
    produce(bootstrap, topic, 100)
    victim = leader_of(bootstrap, topic)
    harm, heal = {
        "kill": (trio.kill, trio.start_node),
        "pause": (trio.pause, trio.unpause),
        "disconnect": (trio.disconnect, trio.reconnect),
    }[fault]

    harm(victim)
    try:
        assert consume(bootstrap, topic, 100) == list(range(100))
    finally:
        heal(victim)
        trio.wait_until_ready()


def test_a_missing_image_names_the_way_to_it() -> None:
    with pytest.raises(ImageMissing, match="make image"), TidelogContainer("tidelog:no-such"):
        pass


def test_wrong_settings_are_told(image: str) -> None:
    with (
        pytest.raises(NotServing, match=r"log\.segment\.bytes"),
        TidelogContainer(image, settings={"log.segment.bytes": "many"}),
    ):
        pass
