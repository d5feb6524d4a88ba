"""`make bench-quorum`: how fast three controllers elect, commit and start, on this machine.

Each node here is a broker and a controller, so that topics have somewhere to go. Times are taken
from outside, over the Kafka protocol, and include a client's round trips.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.table import Row, report
from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.probe import ask_quorum

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from controller_kills import kill_controllers

KILLS = int(os.environ.get("KILLS", "20"))
CHANGES = 200
LARGE_TOPIC = 1000
PARTITIONS_AT_RESTART = 10_000


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def create(admin: AdminClient, name: str, partitions: int) -> None:
    made = admin.create_topics([NewTopic(name, partitions, 3)], request_timeout=60)
    made[name].result(120)


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bench_commits(cluster: LocalCluster) -> list[Row]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    took = [timed(lambda n=number: create(admin, f"c{n}", 1)) for number in range(CHANGES)]  # type: ignore[misc]
    return [
        Row("create a topic, answered after commit, p50", median(took) * 1000, "ms", 5, "lower"),
        Row("create a topic, p99", percentile(took, 0.99) * 1000, "ms"),
    ]


def bench_large_topic(cluster: LocalCluster) -> list[Row]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    took = timed(lambda: create(admin, "large", LARGE_TOPIC))
    return [Row(f"create one topic of {LARGE_TOPIC} × 3", took, "s", 2, "lower")]


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def bench_restart() -> list[Row]:
    """Dedicated controllers' work, measured on combined nodes: until the quorum answers."""
    with LocalCluster(3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        pids = [node.process.pid for node in cluster.nodes.values() if node.process]
        idle = max(resident_mb(pid) for pid in pids)
        for number in range(PARTITIONS_AT_RESTART // LARGE_TOPIC):
            create(admin, f"t{number}", LARGE_TOPIC)
        victim = next(iter(cluster.nodes))
        cluster.stop_node(victim, 120)
        start = time.perf_counter()
        cluster.start_node(victim)
        while True:
            try:
                ask_quorum(cluster.nodes[victim].kafka, 1.0)
                break
            except Exception:
                time.sleep(0.01)
        took = time.perf_counter() - start
    return [
        Row("memory of an idle node (broker and controller)", idle, "MB", 80, "lower"),
        Row(
            f"restart with {PARTITIONS_AT_RESTART} partitions until it answers",
            took,
            "s",
            3,
            "lower",
        ),
    ]


def main() -> int:
    with LocalCluster(3) as cluster:
        outcome = kill_controllers(cluster, KILLS, say=print)
        rows = [
            Row("election after kill -9, p50", median(outcome.elections_s), "s"),
            Row(
                "election after kill -9, p99",
                percentile(outcome.elections_s, 0.99),
                "s",
                1.5,
                "lower",
            ),
            Row("topics created meanwhile", len(outcome.answered), ""),
            Row("answered topics that are missing", len(outcome.missing), "", 0, "lower"),
            Row("terms with two leaders", len(outcome.split_terms), "", 0, "lower"),
        ]
        rows += bench_commits(cluster)
        rows += bench_large_topic(cluster)
    rows += bench_restart()
    report("quorum", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
