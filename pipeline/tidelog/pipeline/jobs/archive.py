"""Topic → lake: every record once, in Parquet by topic, partition and date.

The lake itself says how far it has got, so there is no checkpoint that could be lost or get out
of step: a job that is started again goes on where the last commit ended, on any machine. A batch
is planned, written to a staging folder, and decided by one commit (``lake_log``).

A batch makes one file per partition and date, or more if it has more than
``max_records_per_file``; so large batches make large files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.jobs.archive_plan import PlannedBatch, plan_batch
from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.lake import Lake
from tidelog.pipeline.jobs.lake_log import Commit
from tidelog.pipeline.jobs.session import settings_of
from tidelog.pipeline.jobs.summary import Progress, Step, Summary, silently
from tidelog.pipeline.positions import EARLIEST, LATEST, Place, to_json
from tidelog.pipeline.source_options import BATCH, SourceOptions, parse_source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODECS: Final = ("snappy", "zstd", "gzip", "lz4", "none")
_PAUSE_S: Final = 1.0
_WRITING: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Files of several days are written side by side, so that nothing has to be sorted by day.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    bootstrap: str
    topics: tuple[str, ...]
    lake: str
    max_records_per_batch: int = 5_000_000
    max_records_per_file: int = 5_000_000
    codec: str = "snappy"
    fail_on_data_loss: bool = True
    follow: bool = False
    """Do not end where the topics ended when the job started."""
    min_records_per_batch: int = 100_000
    """While following: wait for so many, …"""
    max_delay_s: float = 300.0
    """… but no longer than this."""
    source_options: Mapping[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            **self.source_options,
        }


def archive(
    spark: SparkSession,
    options: ArchiveOptions,
    *,
    progress: Progress = silently,
    stopped: Callable[[], bool] = lambda: False,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Summary:
    """Everything up to now; with ``follow`` until ``stopped`` says so."""
    parsed = _checked(options)
    began_s = last_s = monotonic()
    lake = Lake(spark, options.lake, create=True)
    lake.sweep(now_ms())
    tally = _Tally()
    cluster = Cluster(parsed)
    try:
        target = None if options.follow else _latest(cluster, parsed)
        while not stopped():
            plan = _plan(cluster, parsed, lake, options, target)
            is_due = not options.follow or monotonic() - last_s >= options.max_delay_s
            if plan.size == 0 or (plan.waiting < options.min_records_per_batch and not is_due):
                if not options.follow:
                    break
                sleep(_PAUSE_S)
                continue
            expected = tally.offsets + plan.waiting
            tally.add(plan, _archive_batch(spark, options, lake, plan, now_ms()))
            progress(Step("archiving", tally.offsets, expected))
            last_s = monotonic()
    finally:
        cluster.close()
    return Summary("archive", tally.rows, monotonic() - began_s, tally.facts())


def _checked(options: ArchiveOptions) -> SourceOptions:
    if options.codec not in CODECS:
        raise WrongJob(f"codec {options.codec!r}; there are: {', '.join(CODECS)}")
    if not options.topics:
        raise WrongJob("no topic is named")
    given = {**options.given(), "subscribe": ",".join(options.topics)}
    return parse_source_options(given, BATCH)


def _latest(cluster: Cluster, parsed: SourceOptions) -> dict[Place, int]:
    places = cluster.places(parsed.selection, must_exist=True)
    return cluster.offsets(dict.fromkeys(places, LATEST))


def _plan(
    cluster: Cluster,
    parsed: SourceOptions,
    lake: Lake,
    options: ArchiveOptions,
    target: dict[Place, int] | None,
) -> PlannedBatch:
    latest = _latest(cluster, parsed) if target is None else target
    return plan_batch(
        lake.state().ends,
        cluster.offsets(dict.fromkeys(latest, EARLIEST)),
        latest,
        options.max_records_per_batch,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _archive_batch(
    spark: SparkSession, options: ArchiveOptions, lake: Lake, plan: PlannedBatch, now_ms: int
) -> Commit:
    staging = lake.new_staging()
    given = {
        **options.given(),
        "assign": json.dumps(
            {topic: list(map(int, of)) for topic, of in to_json(plan.begin).items()}
        ),
        "startingOffsets": json.dumps(to_json(plan.begin)),
        "endingOffsets": json.dumps(to_json(plan.end)),
        "includeHeaders": "true",
    }
    records = spark.read.format("tidelog").options(**given).load()
    # In UTC, whatever the session's time zone is.
    date = "date_from_unix_date(int(floor(unix_micros(timestamp) / 86400000000))) AS date"
    with settings_of(spark, _WRITING):
        (
            records.selectExpr("*", date)
            .write.partitionBy("topic", "partition", "date")
            .option("compression", options.codec)
            .option("maxRecordsPerFile", options.max_records_per_file)
            .parquet(lake.files.uri(staging))
        )
    return lake.commit(staging, plan.begin, plan.end, plan.lost, now_ms)


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    offsets: int = 0
    batches: int = 0
    files: int = 0
    size: int = 0
    lost: int = 0

    def add(self, plan: PlannedBatch, commit: Commit) -> None:
        self.batches += 1
        self.offsets += plan.size
        self.rows += commit.rows
        self.files += len(commit.files)
        self.size += sum(one.size for one in commit.files)
        self.lost += sum(one.size for one in plan.lost)

    def facts(self) -> dict[str, int | float | str | None]:
        return {
            "batches": self.batches,
            "files": self.files,
            "bytes": self.size,
            "lost_offsets": self.lost,
        }
