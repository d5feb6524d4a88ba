"""Copy exactly once while brokers, coordinators and the copiers themselves are killed.

    python tests/soak/copier.py [--kills 100] [--seed 1] [--kit confluent ...] [--fault LEADER ...]

The exit code is 1 if the output under read_committed is not the input, in order per partition, or
if the last stable offset stands still for longer than a transaction's time-out and one sweep.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

from copier_kits import KITS  # noqa: E402
from copier_run import (  # noqa: E402
    SWEEP_MS,
    TRANSACTION_MS,
    CopierRunOutcome,
    Fault,
    Stalled,
    run_copiers,
)
from node_log import NodeLog  # noqa: E402

from tidelog.testing.local_cluster import LocalCluster  # noqa: E402

WEIGHTS = {
    Fault.LEADER: 5,
    Fault.TRANSACTION_COORDINATOR: 5,
    Fault.GROUP_COORDINATOR: 4,
    Fault.COPIER: 4,
    Fault.COPIER_FOR_LONG: 1,
    Fault.ZOMBIE: 1,
}


def summary(outcome: CopierRunOutcome) -> str:
    lines = [
        f"{len(gaps)} × {fault.value}: next commit after {median(gaps):.1f} s, "
        f"at most {max(gaps):.1f} s"
        for fault, gaps in outcome.gaps_s.items()
    ]
    lines += outcome.wrong + [repr(anomaly) for anomaly in outcome.anomalies[:20]]
    allowed_s = (TRANSACTION_MS + SWEEP_MS) / 1000
    lines.append(
        f"{outcome.records} records fed; {outcome.aborted} transactions aborted, "
        f"{outcome.begun_again} new producers; {len(outcome.wrong)} partitions differ, "
        f"{len(outcome.anomalies)} anomalies; the last stable offset stood still for at most "
        f"{outcome.longest_stall_s:.1f} s (goal: ≤ {allowed_s:g} s) "
        f"and could not be asked for during {outcome.blind_s:.1f} s"
    )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kit", action="append", choices=sorted(KITS))
    parser.add_argument("--membership", choices=["dynamic", "static"], default="dynamic")
    parser.add_argument("--log", type=Path, help="what nodes and copiers say goes there")
    parser.add_argument("--fault", action="append", choices=[fault.name for fault in Fault])
    arguments = parser.parse_args(argv)
    drawn = random.Random(arguments.seed)
    wanted = [Fault[name] for name in arguments.fault or []] or list(WEIGHTS)
    weights = [WEIGHTS[fault] for fault in wanted]
    faults = drawn.choices(wanted, weights, k=arguments.kills)
    log = NodeLog()
    with ExitStack() as stack:
        file = stack.enter_context(arguments.log.open("w")) if arguments.log else None

        def note(line: str) -> None:
            if file is not None:
                print(f"{time.strftime('%X')} {line}", file=file, flush=True)

        def on_line(node_id: int, line: str) -> None:
            log.add(node_id, line)
            note(f"node {node_id}: {line}")

        cluster = stack.enter_context(LocalCluster(3, on_line=on_line))
        try:
            outcome = run_copiers(
                cluster,
                arguments.kit or sorted(KITS),
                faults,
                label="soak",
                membership=arguments.membership,
                seed=arguments.seed,
                say=lambda line: print(line, flush=True),
                note=note,
            )
        except Stalled as stalled:
            print(stalled)
            return 1
    print(summary(outcome))
    for line in (odd := log.unforeseen()):
        print(line)
    return 0 if outcome.is_sound and not odd else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
