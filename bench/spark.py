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

from confluent_kafka import Consumer, Producer, TopicPartition
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
RUN_S = 1200
ACTIONS = ("count", "parquet", "sink")


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    size: int
    records: int
    """So many that the third of a second which Spark takes for any job matters little."""
    written: int
    """By a job that writes them to a topic, three times to the disk."""
    goal_count: float | None = None

    def of(self, action: str) -> int:
        return self.written if action == "sink" else self.records


LOADS = (
    Load("100 B", 100, 4_000_000, 1_000_000, 1_500_000),
    Load("1 KB", 1_000, 1_200_000, 200_000),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    scale = parser.parse_args().scale
    loads = [scaled(load, scale) for load in LOADS]
    with LocalCluster(3, settings={"http.listener": ""}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for load in loads:
            fill(cluster.bootstrap, admin, load)
        ours = measure(sys.executable, [], our_jobs(cluster, loads))
        theirs, reason = measure_connector(cluster.bootstrap, loads)
        for load in loads:
            turns = (TURNS + 1) * (1 if reason else 2) + 2  # those, and the tuples twice
            check_written(cluster.bootstrap, load, turns * load.written)
    if reason:
        print(f"Spark's own connector is left out: {reason}", file=sys.stderr)
    report("spark", rows_of(loads, ours, theirs), is_kept=scale == 1.0 and not reason)
    return 0


def scaled(load: Load, scale: float) -> Load:
    """Whole records in every partition."""
    records, written = (
        int(count * scale) // PARTITIONS * PARTITIONS for count in (load.records, load.written)
    )
    return replace(load, records=records, written=written)


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


def check_written(bootstrap: str, load: Load, wanted: int) -> None:
    """Whoever writes too little is fast."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    places = [TopicPartition(f"to-{load.size}", number) for number in range(PARTITIONS)]
    found = sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)
    consumer.close()
    assert found >= wanted, f"{found} of {wanted} records of {load.name} are in the topic"


# --- jobs ------------------------------------------------------------------------------------


def job(kind: str, action: str, load: Load, bootstrap: str, path: str = "") -> dict[str, object]:
    end = load.of(action) // PARTITIONS
    return {
        "name": f"{kind} {action} {load.name}",
        "format": kind,
        "action": action,
        "bootstrap": bootstrap,
        "topic": topic_of(load),
        "target": f"to-{load.size}",
        "path": path,
        "ends": json.dumps({topic_of(load): {str(n): end for n in range(PARTITIONS)}}),
        "records": load.of(action),
        "size": load.size,
        "tasks": PARTITIONS,
        "turns": 1 if kind == "tuples" else TURNS,  # each of them takes long
    }


def our_jobs(cluster: LocalCluster, loads: list[Load]) -> list[dict[str, object]]:
    jobs = []
    for load in loads:
        found = cluster.data_dir.glob(f"node-1/**/{topic_of(load)}-0")
        [log_dir] = {str(path.parent) for path in found}
        jobs.append(job("tidelog-segments", "count", load, cluster.bootstrap, log_dir))
        jobs.append(job("tidelog-segments", "offsets", load, cluster.bootstrap, log_dir))
        jobs.append(job("tidelog", "offsets", load, cluster.bootstrap))
        jobs.append(job("memory-batches", "count", load, cluster.bootstrap))
        jobs += [job("tidelog", action, load, cluster.bootstrap) for action in ACTIONS]
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
            rows.append(Row(name, load.of(action) / seconds, "records/s", goal))
            tuples = ours[f"tuples {action} {load.name}"]
            rows.append(Row(f"{name}, of tuples", load.of(action) / tuples, "records/s"))
            rows.append(Row(f"{name}, against tuples", tuples / seconds, "×"))
            connector = theirs.get(f"kafka {action} {load.name}")
            if connector is not None:
                rows.append(Row(f"{name}, Spark's own", load.of(action) / connector, "records/s"))
                rows.append(Row(f"{name}, against Spark's own", connector / seconds, "×", 1.5))
        live = ours[f"tidelog count {load.name}"]
        files = ours[f"tidelog-segments count {load.name}"]
        rows.append(Row(f"{load.name}: segments to count", load.records / files, "records/s"))
        rows.append(Row(f"{load.name}: segments against live", live / files, "×", 1.5))
        live, files = (
            ours[f"{kind} offsets {load.name}"] for kind in ("tidelog", "tidelog-segments")
        )
        for seconds, name in ((live, "source"), (files, "segments")):
            name = f"{load.name}: {name} to count, only offsets"
            rows.append(Row(name, load.records / seconds, "records/s"))
        name = f"{load.name}: segments against live, only offsets"
        rows.append(Row(name, live / files, "×", 1.5))
        memory = ours[f"memory-batches count {load.name}"]
        rows.append(Row(f"{load.name}: memory to count", load.records / memory, "records/s"))
    return rows


if __name__ == "__main__":
    sys.exit(main())
