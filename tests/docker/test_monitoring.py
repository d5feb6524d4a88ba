"""A real Prometheus scrapes the nodes of the compose file; alert rules and expressions are tried.

Prometheus runs on the host (Debian's package), as its image may be out of reach: the targets are
the nodes' published ports, the rules and dashboards those that are deployed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from compose_cluster import DEPLOY, HTTP_PORTS, PATIENCE_S, ComposeCluster, run
from confluent_kafka import Consumer, Producer

from tidelog.testing.ports import Ports

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

MAY_BE_EMPTY = {
    "kafka_network_requestmetrics_errors_total": "nothing went wrong",
}


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is missing; to have it: apt install prometheus"
        if "prometheus" in os.environ.get("TIDELOG_REQUIRE", "").split(","):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def cluster(image: str, compose: Sequence[str]) -> Iterator[ComposeCluster]:
    with ComposeCluster(compose, "docker-compose.yml", "tidelogwatch", "node") as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(cluster: ComposeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has seen some minutes' worth of scrapes, in little time."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = (DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8")
    for node, port in HTTP_PORTS.items():
        text = text.replace(f"node{node}:9644", f"127.0.0.1:{port}")
    (folder / "prometheus.yml").write_text(text.replace("5s", "1s"), encoding="utf-8")
    shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
    address = f"127.0.0.1:{Ports().draw('127.0.0.1').port}"
    process = subprocess.Popen(
        [tool("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
         f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield address
    finally:
        process.terminate()
        process.wait(30)


def query(address: str, expression: str) -> list[dict[str, Any]]:
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return list(json.load(answer)["data"]["result"])


def expressions() -> list[str]:
    found = []
    for file in sorted((DEPLOY / "grafana/dashboards").glob("*.json")):
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
            found += [target["expr"] for target in panel["targets"]]
    names = {"$topic": ".+", "$group": ".+", "$instance": f"127.0.0.1:{HTTP_PORTS[1]}"}
    for variable, value in names.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


def load(bootstrap: str, for_s: float) -> None:
    """Records in and out, and a group that commits."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "watchers", "log_level": 0,
         "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
    )  # fmt: skip
    consumer.subscribe(["watched"])
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        producer.produce("watched", b"x" * 100)
        producer.poll(0)
        consumer.poll(0.01)
    assert producer.flush(PATIENCE_S) == 0
    consumer.close()  # commits


def test_every_alert_fires_when_it_should_and_not_otherwise() -> None:
    run(tool("promtool"), "test", "rules", str(DEPLOY / "prometheus/alerts_test.yml"))


def test_the_configuration_is_valid() -> None:
    run(tool("promtool"), "check", "config", str(DEPLOY / "prometheus/prometheus.yml"))


def test_all_panels_have_data_while_a_load_runs(cluster: ComposeCluster, prometheus: str) -> None:
    empty: list[str] = []
    for _ in range(4):
        load(cluster.bootstrap, 5.0)
        empty = [
            expression
            for expression in expressions()
            if not any(name in expression for name in MAY_BE_EMPTY)
            and not query(prometheus, expression)
        ]
        if not empty:
            break
    assert empty == []
    assert query(prometheus, "sum(up)")[0]["value"][1] == "3"
