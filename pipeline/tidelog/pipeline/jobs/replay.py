"""Lake, log directories or a topic → topic: the same keys, times and, if wanted, partitions.

It goes in chunks (``replay_plan``). What was planned and which chunks are done lies in a state
folder, so a replay that died goes on where it was; with ``exactly_once`` a chunk whose end was not
noted is tried again and the sink leaves out what it has already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.lake_files import LakeFiles
from tidelog.pipeline.jobs.records import (
    Bounds,
    LakePlace,
    Place,
    TopicPlace,
    extent,
    read_records,
    topic_extent,
)
from tidelog.pipeline.jobs.replay_plan import (
    ReplayPlan,
    pause_s,
    plan_replay,
    read_plan,
    write_plan,
)
from tidelog.pipeline.jobs.summary import Progress, Step, Summary, silently

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    place: Place
    bootstrap: str
    topic: str
    name: str
    """Of this replay; the same name goes on with what was begun."""
    state: str | None = None
    """A folder; None: within the lake."""
    records_per_second: float | None = None
    chunk_records: int = 500_000
    keep_partitions: bool = True
    """False: by key, as any producer would."""
    exactly_once: bool = True
    sink_options: Mapping[str, str] = field(default_factory=dict)


def replay(
    spark: SparkSession,
    options: ReplayOptions,
    *,
    progress: Progress = silently,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Summary:
    state = LakeFiles(spark, _state_folder(options))
    plan = _plan(spark, options, state)
    _refuse_narrow_target(options, plan)
    done = {name for name in state.names("") if name.startswith("done-")}
    began_s, sent, skipped = monotonic(), 0, 0
    for number in range(plan.chunks):
        if _done(number) in done:
            skipped += 1
            continue
        sent += _replay_chunk(spark, options, plan.chunk(number), number)
        state.create_text(_done(number), "")
        progress(Step("replaying", number + 1, plan.chunks))
        if number + 1 < plan.chunks:
            sleep(pause_s(sent, options.records_per_second, monotonic() - began_s))
    facts: dict[str, int | float | str | None] = {
        "from": str(options.place),
        "to": f"{options.topic}@{options.bootstrap}",
        "chunks": plan.chunks - skipped,
        "chunks_done_before": skipped,
        "delivery": "exactly-once" if options.exactly_once else "at-least-once",
    }
    return Summary("replay", sent, monotonic() - began_s, facts)


def _state_folder(options: ReplayOptions) -> str:
    if not options.name or "/" in options.name or options.name.startswith("."):
        raise WrongJob(f"{options.name!r} is no name of a replay")
    if options.state is not None:
        return f"{options.state}/{options.name}"
    if isinstance(options.place, LakePlace):
        return f"{options.place.path}/_tidelog/replays/{options.name}"
    raise WrongJob("a replay that is not from a lake needs a folder for its state")


def _plan(spark: SparkSession, options: ReplayOptions, state: LakeFiles) -> ReplayPlan:
    source, target = str(options.place), f"{options.topic}@{options.bootstrap}"
    if source == target:
        raise WrongJob(f"{source} would be replayed into itself")
    if not state.exists("plan.json"):
        plan = plan_replay(
            source,
            target,
            extent(spark, options.place),
            options.chunk_records,
            options.records_per_second,
        )
        state.create_text("plan.json", write_plan(plan))
    return read_plan(state.read_text("plan.json"), options.name, source, target)


def _refuse_narrow_target(options: ReplayOptions, plan: ReplayPlan) -> None:
    there = topic_extent(TopicPlace(options.bootstrap, options.topic))
    needed = max(plan.extent, default=-1) + 1
    if options.keep_partitions and len(there) < needed:
        raise WrongJob(
            f"{options.topic} has {len(there)} partitions and the source has {needed}; "
            "make it larger, or let keys choose the partitions"
        )


def _done(number: int) -> str:
    return f"done-{number:08d}"


def _replay_chunk(spark: SparkSession, options: ReplayOptions, bounds: Bounds, number: int) -> int:
    """How many records the chunk has, whether this try had to write them or not."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    frame = _ordered(read_records(spark, options.place, bounds))
    if not options.keep_partitions:
        frame = frame.drop("partition")
    given = {
        "kafka.bootstrap.servers": options.bootstrap,
        "topic": options.topic,
        **options.sink_options,
    }
    if options.exactly_once:
        given |= {
            "deliveryGuarantee": "exactly-once",
            "txnAppId": f"replay-{options.name}",
            "txnVersion": str(number),
        }
    counted = frame.drop("topic").observe(seen, f.count(f.lit(1)).alias("records"))
    counted.write.format("tidelog").options(**given).mode("append").save()
    return int(seen.get["records"])


def _ordered(records: DataFrame) -> DataFrame:
    """A partition's records go through one task, in the order of the log."""
    return records.repartition("partition").sortWithinPartitions("partition", "offset")
