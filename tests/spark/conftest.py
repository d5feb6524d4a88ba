"""One cluster and one session for all tests of a process: either takes seconds to start.

Processes share nothing, so that `make test-spark` may run the tests in two of them.
``TIDELOG_SPARK_MASTER`` is another place for Spark's tasks than this process, such as
``local-cluster[2,1,1024]``; ``TIDELOG_SPARK_BOOTSTRAP`` is another cluster, such as Apache Kafka's.
"""

from __future__ import annotations

import itertools
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
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

# All data here is small: to compile well what reads it takes longer than to read it.
DEFAULTS = """
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of Spark that may take longest begin, so that no process waits for them at the end."""

    def allowed(item: pytest.Item) -> float:
        timeout = item.get_closest_marker("timeout")
        is_here = item.get_closest_marker("spark") is not None
        return float(timeout.args[0]) if timeout and is_here else 0

    items.sort(key=allowed, reverse=True)


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
    # Processes may share a cluster that is another's: each has numbers of its own.
    numbers = itertools.count(WORKER * 10_000)
    return Topics(bootstrap, AdminClient({"bootstrap.servers": bootstrap}), numbers)


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark as it is installed, but without ``python/lib/pyspark.zip``, and with defaults.

    Spark starts several Python processes for each query, and has all of them import that archive.
    There is no bytecode in it, so that each compiles pyspark for a second or two. Without it they
    import the same modules from where pip installed and compiled them.
    """
    pyspark = pytest.importorskip(
        "pyspark", reason="pyspark is missing; make test-spark installs it"
    )
    home = tmp_path_factory.mktemp("spark-home")
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    os.environ["SPARK_HOME"] = str(home)
    return home


@pytest.fixture(scope="session")
def spark(
    bootstrap: str, spark_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
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
