"""The image's size, and how long one node and the compose file take to serve."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.table import Row, report
from tidelog.testing.containers import DEFAULT_IMAGE, TidelogContainer, engine_problem

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
SIZE_GOAL_MB = 200
SERVING_GOAL_S = 5


def size_mb(image: str) -> float:
    asked = ["docker", "image", "inspect", "-f", "{{.Size}}", image]
    return int(subprocess.run(asked, capture_output=True, check=True).stdout) / 1e6


def one_node_s() -> float:
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # it would be measured, too
    began = time.monotonic()
    with TidelogContainer():
        return time.monotonic() - began


def compose_s() -> float | None:
    sys.path.append(str(SUPPORT))
    from compose_cluster import ComposeCluster, compose_command

    command = compose_command()
    if command is None:
        return None
    with ComposeCluster(command, "docker-compose.yml", "tidelogbench", "node") as cluster:
        return cluster.serving_after_s


def main() -> int:
    problem = engine_problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    rows = [
        Row("image", size_mb(DEFAULT_IMAGE), "MB", SIZE_GOAL_MB, "lower"),
        Row("one node, from run to serving", one_node_s(), "s", SERVING_GOAL_S, "lower"),
    ]
    three = compose_s()
    if three is not None:
        rows.append(Row("three nodes, from up to serving", three, "s", SERVING_GOAL_S, "lower"))
    report("image", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
