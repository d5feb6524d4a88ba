"""Send a node malformed requests for a long time, and print what another client notices.

    python tests/soak/fuzz.py [--count 1000000] [--seed 1]

The exit code is 1 if the node ended, printed an exception or kept much more memory than before,
or if the other client got a wrong answer or none.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

import differential_errors  # noqa: E402
from fuzz_run import Worker, fuzz, peak_bytes, resident_bytes  # noqa: E402
from live_target import Target  # noqa: E402
from node_log import NodeLog  # noqa: E402

from tidelog.testing.local_cluster import LocalCluster  # noqa: E402

PORTION = 100_000
MAY_GROW_BYTES = 200 << 20


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    log = NodeLog()
    with LocalCluster(1, on_line=log.add) as cluster:
        [node] = cluster.nodes.values()
        assert node.process is not None
        pid = node.process.pid
        target = Target(cluster.bootstrap)
        target.create_topic("work")
        target.create_topic("fuzz", configs={"cleanup.policy": "compact,delete"})
        ids = differential_errors.set_up(target)
        before = resident_bytes(pid)
        with Worker(node.kafka, "work") as worker:
            for first in range(0, arguments.count, PORTION):
                began = time.monotonic()
                count = min(PORTION, arguments.count - first)
                seed = arguments.seed * 1_000_003 + first
                fuzzed = asyncio.run(fuzz(node.kafka, seed, count, "fuzz", ids))
                rate = count / (time.monotonic() - began)
                resident = resident_bytes(pid) >> 20
                outcomes = ", ".join(f"{n} {what}" for what, n in fuzzed.outcomes.items())
                print(f"{first + count}: {rate:.0f}/s, {resident} MiB, {outcomes}", flush=True)
        after = resident_bytes(pid)
        print(f"other client: {worker.percentiles()}, failure: {worker.failure}")
        peak = peak_bytes(pid)
        print(f"memory: {before >> 20} MiB before, {after >> 20} after, at most {peak >> 20}")
        is_sound = worker.failure is None and after - before < MAY_GROW_BYTES and node.is_running
    for line in (odd := log.unforeseen()):
        print(line)
    return 0 if is_sound and not odd else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
