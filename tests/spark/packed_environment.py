"""`make test-spark-packed`: executors that have nothing but the environment that is sent to them.

By hand, since packing and two more Java machines take minutes; the name keeps it out of the tests
that are found by themselves. The commands are those of docs/PIPELINE.md, "On a cluster".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from spark_topics import Topics

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]

JOB = """
import json, sys
from pyspark.sql import SparkSession

bootstrap, source, target = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
there = {"kafka.bootstrap.servers": bootstrap}
records = spark.read.format("tidelog").options(**there, subscribe=source).load()

def where(_):
    import tidelog.pipeline
    yield tidelog.pipeline.__file__

paths = sorted(set(records.select("value").rdd.mapPartitions(where).collect()))
copy = records.select("key", "value").write.format("tidelog").mode("append")
copy.options(**there, topic=target).save()
print(json.dumps({"paths": paths}))
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def driver_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job is started, with the packed environment in it."""
    place = tmp_path_factory.mktemp("driver")
    run(sys.executable, "-m", "build", "-q", "--wheel", "--outdir", place, ROOT, cwd=place)
    [wheel] = place.glob("tidelog-*.whl")
    run(sys.executable, "-m", "venv", "environment", cwd=place)
    pip = place / "environment/bin/pip"
    run(pip, "install", "-q", wheel, "pyarrow", "venv-pack", cwd=place)
    run(place / "environment/bin/venv-pack", "-p", "environment", "-o", "env.tar.gz", cwd=place)
    return place


@pytest.mark.timeout(1800)
def test_a_packed_environment_is_all_that_executors_need(
    driver_directory: Path, topics: Topics
) -> None:
    source, target = topics.create(partitions=2), topics.create(partitions=2)
    for partition in range(2):
        topics.fill(source, [b"%d" % index for index in range(500)], partition=partition)
    job = driver_directory / "job.py"
    job.write_text(JOB, encoding="utf-8")
    said = run(
        BIN / "spark-submit", "--master", "local-cluster[2,1,1024]",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
        "--archives", "env.tar.gz#environment", job, topics.bootstrap, source, target,
        cwd=driver_directory,
        PYSPARK_DRIVER_PYTHON=sys.executable, PYSPARK_PYTHON="./environment/bin/python",
    )  # fmt: skip
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert told["paths"], "no executor said anything"
    for path in told["paths"]:
        assert "/work/app-" in path and "/environment/lib/" in path, path
    reader = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "none"})
    ends = [reader.get_watermark_offsets(TopicPartition(target, p), 30)[1] for p in range(2)]
    reader.close()
    assert sum(ends) == 1000
