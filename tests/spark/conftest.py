"""One cluster and one session for all tests here: either takes seconds to start.

``TIDELOG_SPARK_MASTER`` is another place for Spark's tasks than this process, such as
``local-cluster[2,1,1024]``; ``TIDELOG_SPARK_BOOTSTRAP`` is another cluster, such as Apache Kafka's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from spark_topics import Topics

from tidelog.testing.local_cluster import LocalCluster

SETTINGS = {
    "http.listener": "",
    "log.retention.ms": "-1",  # records here are of 2023: none may go because it is old
}


MASTER = os.environ.get("TIDELOG_SPARK_MASTER", "local[2]")
OTHERS = os.environ.get("TIDELOG_SPARK_BOOTSTRAP")


@pytest.fixture(scope="session")
def cluster(require: Callable[[str], None]) -> Iterator[LocalCluster]:
    if OTHERS is not None:
        pytest.skip("looks into the nodes of a cluster of its own")
    require("java")
    pytest.importorskip("pyspark", reason="pyspark is missing; make test-spark installs it")
    with LocalCluster(3, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if OTHERS is not None:
        return OTHERS
    running: LocalCluster = request.getfixturevalue("cluster")
    return running.bootstrap


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap, AdminClient({"bootstrap.servers": bootstrap}))


@pytest.fixture(scope="session")
def spark(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    scratch: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master(MASTER)
        .appName("tidelog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
