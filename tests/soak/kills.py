"""Kill the leader of a partition many times under load, and print the gaps a producer saw.

    python tests/soak/kills.py [--kills 100] [--pauses 0] [--client-defaults]

``--pauses N`` stops the leader N times more, for 1 to 20 seconds each. The producer asks every
200 ms who leads, which the table says; with ``--client-defaults`` only when librdkafka does so by
itself, and the gaps are then also those of its back-off. The exit code is 1 if a
record that was acknowledged is lost, if one is there twice, if two changed places, or if a node was
stopped that did not lead.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

from kill_run import LOOK_FOR_LEADERS_MS, Outcome, run_kills, run_pauses  # noqa: E402
from node_log import NodeLog  # noqa: E402

from tidelog.testing.local_cluster import LocalCluster  # noqa: E402

GOALS = "goal: p50 ≤ 700 ms, p99 ≤ 1500 ms"
ASKING = f"topic.metadata.refresh.interval.ms={LOOK_FOR_LEADERS_MS}"
NOT_ASKING = "topic.metadata.refresh.interval.ms as the client has it"


def summary(what: str, outcome: Outcome, look_ms: int | None) -> str:
    gaps_ms = sorted(gap * 1000 for gap in outcome.gaps_s)
    cuts = quantiles(gaps_ms, n=100, method="inclusive") if len(gaps_ms) > 1 else gaps_ms * 99
    return (
        f"{len(gaps_ms)} {what}: gap p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, "
        f"max {gaps_ms[-1]:.0f} ms; {outcome.total} acknowledged, {len(outcome.lost)} lost, "
        f"{len(outcome.duplicated)} duplicated, {len(outcome.reordered)} reordered, "
        f"{outcome.failed} failed, {len(outcome.unplaced)} of unknown offset, "
        f"{len(outcome.missed)} not the leader's; "
        f"{NOT_ASKING if look_ms is None else ASKING}"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pauses", type=int, default=0)
    parser.add_argument("--client-defaults", action="store_true")
    arguments = parser.parse_args(argv)
    look_ms = None if arguments.client_defaults else LOOK_FOR_LEADERS_MS
    log = NodeLog()
    is_sound = True
    with LocalCluster(3, on_line=log.add) as cluster:
        if arguments.kills:
            outcome = run_kills(cluster, arguments.kills, say=print, look_ms=look_ms)
            print(f"{summary('kills', outcome, look_ms)} ({GOALS})")
            is_sound &= outcome.is_sound
        if arguments.pauses:
            drawn = random.Random(1)
            lengths = [drawn.uniform(1, 20) for _ in range(arguments.pauses)]
            outcome = run_pauses(cluster, lengths, say=print, look_ms=look_ms)
            print(summary("pauses", outcome, look_ms))
            is_sound &= outcome.is_sound
    for line in (odd := log.unforeseen()):
        print(line)
    return 0 if is_sound and not odd else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
