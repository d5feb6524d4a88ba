"""`make bench-spark`: topics to a count, to Parquet and to a topic, by Spark on two cores.

Three nodes run beside it on the same cores. The same jobs are run by a source that yields tuples
instead of Arrow batches, and by Spark's own Kafka connector, whose jars and whose PySpark are
fetched once into build/spark-kafka; where they cannot be had, that is said and left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.table import Row, report
from tidelog.testing.local_cluster import LocalCluster

PARTITIONS = 4
TURNS = 3
ROOT = Path(__file__).parents[1]
CONNECTOR = ROOT / "build" / "spark-kafka"
CONNECTORS_PYSPARK = "pyspark==4.0.0"
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
FETCH_S = 600
RUN_S = 600
ACTIONS = ("count", "parquet", "sink")


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    size: int
    records: int
    goal_count: float | None = None


LOADS = (Load("100 B", 100, 2_000_000, 1_500_000), Load("1 KB", 1_000, 400_000))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    scale = parser.parse_args().scale
    loads = [replace(load, records=int(load.records * scale)) for load in LOADS]
    with LocalCluster(3, settings={"http.listener": ""}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for load in loads:
            fill(cluster.bootstrap, admin, load)
        ours = measure(sys.executable, [], our_jobs(cluster, loads))
        theirs, reason = measure_connector(cluster.bootstrap, loads)
    if reason:
        print(f"Spark's own connector is left out: {reason}", file=sys.stderr)
    report("spark", rows_of(loads, ours, theirs))
    return 0


# --- topics ----------------------------------------------------------------------------------


def topic_of(load: Load) -> str:
    return f"of-{load.size}"


def fill(bootstrap: str, admin: AdminClient, load: Load) -> None:
    topics = [NewTopic(topic_of(load), PARTITIONS, 3), NewTopic(f"to-{load.size}", PARTITIONS, 3)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(load.records):
        value = b"%0*d" % (load.size, number)
        while True:
            try:
                producer.produce(topic_of(load), value, b"%d" % number, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


# --- jobs ------------------------------------------------------------------------------------


def job(kind: str, action: str, load: Load, bootstrap: str, path: str = "") -> dict[str, object]:
    return {
        "name": f"{kind} {action} {load.name}",
        "format": kind,
        "action": action,
        "bootstrap": bootstrap,
        "topic": topic_of(load),
        "target": f"to-{load.size}",
        "path": path,
        "records": load.records,
        "turns": 1 if kind == "tuples" else TURNS,
    }


def our_jobs(cluster: LocalCluster, loads: list[Load]) -> list[dict[str, object]]:
    jobs = []
    for load in loads:
        found = cluster.data_dir.glob(f"node-1/**/{topic_of(load)}-0")
        [log_dir] = {str(path.parent) for path in found}
        jobs += [job("tidelog", action, load, cluster.bootstrap) for action in ACTIONS]
        jobs.append(job("tidelog-segments", "count", load, cluster.bootstrap, log_dir))
        jobs += [job("tuples", action, load, cluster.bootstrap) for action in ACTIONS]
    return jobs


def measure(python: str, jars: list[str], jobs: list[dict[str, object]]) -> dict[str, float]:
    """The middle of each job's seconds, by its name."""
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            [python, str(Path(__file__).with_name("spark_jobs.py"))],
            input=json.dumps({"jars": jars, "jobs": jobs}),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=RUN_S,
        )
        if done.returncode:
            errors.seek(0)
            raise RuntimeError(f"the jobs ended with {done.returncode}:\n{errors.read()[-4000:]}")
    return {name: median(turns) for name, turns in json.loads(done.stdout.splitlines()[-1]).items()}


def measure_connector(bootstrap: str, loads: list[Load]) -> tuple[dict[str, float], str]:
    try:
        jars = fetch_connector()
    except (OSError, subprocess.SubprocessError) as error:
        return {}, f"its jars or its PySpark cannot be had ({error})"
    jobs = [job("kafka", action, load, bootstrap) for load in loads for action in ACTIONS]
    return measure(str(CONNECTOR / "venv/bin/python"), jars, jobs), ""


def fetch_connector() -> list[str]:
    """Each artifact by itself: what they depend on is in Spark already."""
    jars = CONNECTOR / "jars"
    for artifact in ARTIFACTS:
        _, name, version = artifact.split(":")
        if not (jars / f"{name}-{version}.jar").exists():
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
            subprocess.run(
                [*command, f"-DoutputDirectory={jars}"], check=True, timeout=FETCH_S, stdout=2
            )
    environment = CONNECTOR / "venv"
    if not (environment / ".complete").exists():
        venv.create(environment, clear=True, with_pip=True)
        pip = [str(environment / "bin/pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, CONNECTORS_PYSPARK], check=True, timeout=FETCH_S, stdout=2)
        (environment / ".complete").touch()
    return sorted(str(path) for path in jars.glob("*.jar"))


# --- what came of it -------------------------------------------------------------------------


def rows_of(loads: list[Load], ours: dict[str, float], theirs: dict[str, float]) -> list[Row]:
    rows = []
    for load in loads:
        for action in ACTIONS:
            seconds = ours[f"tidelog {action} {load.name}"]
            name = f"{load.name}: source to {action}"
            goal = load.goal_count if action == "count" else None
            rows.append(Row(name, load.records / seconds, "records/s", goal))
            tuples = ours[f"tuples {action} {load.name}"]
            rows.append(Row(f"{name}, of tuples", load.records / tuples, "records/s"))
            rows.append(Row(f"{name}, against tuples", tuples / seconds, "×"))
            connector = theirs.get(f"kafka {action} {load.name}")
            if connector is not None:
                rows.append(Row(f"{name}, Spark's own", load.records / connector, "records/s"))
                rows.append(Row(f"{name}, against Spark's own", connector / seconds, "×", 1.5))
        live = ours[f"tidelog count {load.name}"]
        files = ours[f"tidelog-segments count {load.name}"]
        rows.append(Row(f"{load.name}: segments to count", load.records / files, "records/s"))
        rows.append(Row(f"{load.name}: segments against live", live / files, "×", 1.5))
    return rows


if __name__ == "__main__":
    sys.exit(main())
