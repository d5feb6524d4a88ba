"""`make bench-spark-verify`: `tidelog pipeline verify` over a history as long as one likes.

Makes a history with anomalies at known places (``spark_history``), lets Spark judge it, and holds
what was found against what was planted: all of it, and nothing else, or the exit code is 1. Prints
how long it took and how much memory all processes of the job held together.

The history of 100 million operations has 25 GB; Spark needs a third of that again while it sorts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.spark_history import Expected, Shape, count_of, write_history
from bench.table import Row, report

_LOOK_EVERY_S: Final = 0.5
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
FULL: Final = 100_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_verify")
    parser.add_argument("--operations", type=int, default=FULL)
    parser.add_argument("--partitions", type=int, default=256, help="a multiple of 8")
    parser.add_argument("--planted", type=int, default=20, help="anomalies of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", default="4g", help="of the Java process")
    parser.add_argument("--folder", type=Path, help="for the history, which is left there")
    given = parser.parse_args()
    shape = Shape(given.operations, given.partitions, given.planted, given.seed)
    with tempfile.TemporaryDirectory(prefix="bench-spark-verify-", dir=given.folder) as scratch:
        history = (given.folder or Path(scratch)) / f"history-{given.operations}-{given.seed}.jsonl"
        made_s = make(shape, history)
        found, seconds, peak_bytes = judge(history, Path(scratch), given.memory)
    missing = Counter(shape.expected) - Counter(found)
    invented = Counter(found) - Counter(shape.expected)
    count = count_of(shape)
    rows = [
        Row("operations", count, "operations"),
        Row("anomalies planted", len(shape.expected), "anomalies"),
        Row("anomalies found", len(found), "anomalies"),
        Row("planted and not found", missing.total(), "anomalies", 0, "lower"),
        Row("found and not planted", invented.total(), "anomalies", 0, "lower"),
        Row("making the history", made_s, "s"),
        Row("judging it", seconds, "s"),
        Row("judged per second", count / seconds, "operations/s"),
        Row("peak memory of all processes", peak_bytes / 1e9, "GB"),
    ]
    report("spark_verify", rows, is_kept=given.operations == FULL)
    for text, places in (("not found", missing), ("not planted", invented)):
        for place in list(places)[:10]:
            print(f"{text}: {place}", file=sys.stderr)
    return 1 if missing or invented else 0


def make(shape: Shape, history: Path) -> float:
    """Unless it is there; how long that took."""
    if history.exists():
        return 0.0
    began_s = time.monotonic()
    unfinished = history.with_suffix(".part")
    write_history(shape, unfinished)
    unfinished.rename(history)
    return time.monotonic() - began_s


def judge(history: Path, scratch: Path, memory: str) -> tuple[list[Expected], float, int]:
    from tidelog.cli.chaos_part import judge_part
    from tidelog.pipeline.jobs.session import make_session
    from tidelog.pipeline.jobs.verify import verify

    settings = {"spark.driver.memory": memory, "spark.local.dir": str(scratch)}
    spark = make_session("bench verify", config=settings)
    try:
        with watched_memory() as peak:
            told = lambda step: print(step.what, file=sys.stderr, flush=True)  # noqa: E731
            result = verify(spark, str(history), judge_part, progress=told)
    finally:
        spark.stop()
    found = [(kind, topic, partition, at) for kind, _, topic, partition, at in result.findings]
    return found, result.summary.seconds, peak[0]


# --- memory ----------------------------------------------------------------------------------


@contextmanager
def watched_memory() -> Iterator[list[int]]:
    """The most that this process and all below it held at once, in bytes, as its only element."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            peak[0] = max(peak[0], held_bytes(os.getpid()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def held_bytes(root: int) -> int:
    """Resident pages; what processes share is counted for each of them."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            number = int(entry.name)
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[number] = int(fields[1])
            pages[number] = int((entry / "statm").read_text().split()[1])
        except OSError:
            continue  # it has ended
    below = {root}
    while more := {one for one, parent in parents.items() if parent in below} - below:
        below |= more
    return _PAGE * sum(pages.get(one, 0) for one in below)


if __name__ == "__main__":
    sys.exit(main())
