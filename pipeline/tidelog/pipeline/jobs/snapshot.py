"""The compacted view of a topic: the latest value of each key, and no key whose latest is none.

Within a partition the higher offset is the later record, as in compaction. If a key is in several
partitions (the topic grew), the latest of them by time is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.lake_files import LakeFiles
from tidelog.pipeline.jobs.records import Place, read_records
from tidelog.pipeline.jobs.summary import Progress, Step, Summary, silently

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    place: Place
    output: str
    """A folder of Parquet files: key, value, headers, partition, offset, timestamp."""
    overwrite: bool = False
    files: int | None = None
    """How many; None: as many as Spark has shuffle partitions, fewer if the data is small."""


def latest_by_key(records: DataFrame) -> DataFrame:
    """Tombstones are still there, as null values; records without a key are not."""
    from pyspark.sql import functions as f

    rest = f.struct("value", "headers", "offset", "timestamp", "partition")
    by_partition = (
        records.where("key IS NOT NULL")
        .groupBy("key", "partition")
        .agg(f.max_by(rest, "offset").alias("latest"))
    )
    # Spark orders structs field by field.
    order = f.struct("latest.timestamp", "latest.partition", "latest.offset")
    by_key = by_partition.groupBy("key").agg(f.max_by("latest", order).alias("latest"))
    return by_key.select(
        "key", "latest.value", "latest.headers", "latest.partition", "latest.offset",
        "latest.timestamp",
    )  # fmt: skip


def snapshot(
    spark: SparkSession,
    options: SnapshotOptions,
    *,
    progress: Progress = silently,
    monotonic: Callable[[], float] = time.monotonic,
) -> Summary:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    _refuse_occupied(spark, options)
    began_s = monotonic()
    progress(Step(f"reading {options.place}"))
    read, kept = Observation(), Observation()
    records = read_records(spark, options.place).observe(
        read, f.count(f.lit(1)).alias("records"), f.count_if(f.col("key").isNull()).alias("keyless")
    )
    latest = latest_by_key(records).observe(
        kept,
        f.count(f.lit(1)).alias("keys"),
        f.count_if(f.col("value").isNull()).alias("tombstones"),
    )
    frame = latest.where("value IS NOT NULL")
    if options.files is not None:
        frame = frame.coalesce(options.files)
    frame.write.mode("overwrite" if options.overwrite else "error").parquet(options.output)
    seen: dict[str, Any] = {**read.get, **kept.get}
    facts: dict[str, int | float | str | None] = {
        "keys": seen["keys"] - seen["tombstones"],
        "deleted_keys": seen["tombstones"],
        "records_without_key": seen["keyless"],
        "output": options.output,
    }
    return Summary("snapshot", seen["records"], monotonic() - began_s, facts)


def _refuse_occupied(spark: SparkSession, options: SnapshotOptions) -> None:
    if not options.overwrite and LakeFiles(spark, options.output).exists(""):
        raise WrongJob(f"{options.output} is there already; overwrite replaces it")
