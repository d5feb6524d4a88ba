"""`make bench-quorum`: how fast three controllers elect, commit and start, on this machine.

Three processes that are controllers only; the brokers that register with them and ask for topics
are a few coroutines here. Every controller that is killed is the active one, under a stream of
topic creations; what was answered must be there at the end. KILLS=… sets how many.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median

from bench.table import Row, report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from controller_kills import kill_dedicated
from dedicated_controllers import CONTROLLERS, ControllerTrio, ScriptedBroker, scripted_brokers

KILLS = int(os.environ.get("KILLS", "50"))
CHANGES = 300
LARGE_TOPIC = 1000
PARTITIONS_AT_RESTART = 10_000


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def timed(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def bench_kills() -> list[Row]:
    with ControllerTrio() as trio:
        outcome = await kill_dedicated(trio, KILLS, say=print)
    return [
        Row(f"election after kill -9 ({KILLS} kills), p50", median(outcome.elections_s), "s"),
        Row("election, p99", percentile(outcome.elections_s, 0.99), "s", 1.5, "lower"),
        Row("topics created meanwhile", len(outcome.answered), ""),
        Row("answered topics that are missing", len(outcome.missing), "", 0, "lower"),
        Row("terms with two leaders", len(outcome.split_terms), "", 0, "lower"),
    ]


async def bench_work() -> list[Row]:
    with ControllerTrio() as trio:
        async with scripted_brokers(trio) as (broker, *_):
            idle = max(trio.resident_mb(number) for number in CONTROLLERS)
            took = [
                await timed(broker.create_topic(f"small-{number}", 1)) for number in range(CHANGES)
            ]
            large = [
                await timed(broker.create_topic(f"large-{number}", LARGE_TOPIC, timeout_ms=60_000))
                for number in range(PARTITIONS_AT_RESTART // LARGE_TOPIC)
            ]
            restart = await time_of_restart(trio, broker)
            full = max(trio.resident_mb(number) for number in CONTROLLERS)
    size = f"{PARTITIONS_AT_RESTART:,} partitions"
    return [
        Row("commit of a topic, fsynced by a majority, p50", median(took) * 1e3, "ms", 5, "lower"),
        Row("commit of a topic, p99", percentile(took, 0.99) * 1e3, "ms"),
        Row(f"create one topic of {LARGE_TOPIC} × 3", max(large), "s", 2, "lower"),
        Row(f"restart with {size} until caught up", restart, "s", 3, "lower"),
        Row("memory of an idle controller", idle, "MB", 60, "lower"),
        Row(f"memory with {size}", full, "MB"),
    ]


async def time_of_restart(trio: ControllerTrio, broker: ScriptedBroker) -> float:
    """Of a standby: until the active controller has heard from it that it has everything."""
    active, _ = await broker.leader()
    victim = next(number for number in CONTROLLERS if number != active)
    trio.stop_node(victim)
    started_at_ms = time.time() * 1000
    start = time.perf_counter()
    trio.start_node(victim)
    while True:
        answer = await broker.client.describe_quorum(timeout_ms=60_000)
        for voter in answer.voters:
            is_heard = voter.last_fetch_timestamp_ms >= started_at_ms
            has_all = voter.log_end_offset >= answer.high_watermark
            if voter.key.node_id == victim and is_heard and has_all:
                return time.perf_counter() - start
        await asyncio.sleep(0.01)


def main() -> int:
    rows = asyncio.run(bench_work()) + asyncio.run(bench_kills())
    report("quorum", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
