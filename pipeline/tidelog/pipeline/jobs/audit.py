"""Are a topic and its archive, a copy, or another cluster's topic the same?

Each side is reduced to a digest per partition and day: how many records, duplicates and gaps, and
a checksum that does not depend on order. Only digests come to the driver. Where they differ the
records of that partition are joined, and some of the offsets that differ are told.

``by_offset`` holds an offset against the same offset; that is for archives and mirrors. Without it
offsets are left out of the checksum: a replayed topic has the same records at other offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.jobs.audit_verdict import (
    Day,
    DayVerdict,
    Digest,
    common_extent,
    compare,
    described,
)
from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.lake import Lake
from tidelog.pipeline.jobs.records import Bounds, LakePlace, Place, extent, read_records
from tidelog.pipeline.jobs.summary import Progress, Step, Summary, silently

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES: Final = 10
_DATE: Final = "date_from_unix_date(int(floor(unix_micros(timestamp) / 86400000000)))"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    left: Place
    right: Place
    by_offset: bool | None = None
    """None: unless both are topics of different names."""

    @property
    def compares_offsets(self) -> bool:
        return self.left.topic == self.right.topic if self.by_offset is None else self.by_offset


@dataclass(frozen=True, slots=True)
class AuditResult:
    summary: Summary
    days: tuple[DayVerdict, ...]

    @property
    def is_same(self) -> bool:
        return not self.summary.problems


def audit(
    spark: SparkSession,
    options: AuditOptions,
    *,
    progress: Progress = silently,
    monotonic: Callable[[], float] = time.monotonic,
) -> AuditResult:
    if options.left == options.right:
        raise WrongJob(f"both sides are {options.left}")
    began_s = monotonic()
    progress(Step("comparing", 0, 2))
    bounds, problems = _bounds(spark, options)
    left = digests(spark, options.left, bounds, by_offset=options.compares_offsets)
    progress(Step("comparing", 1, 2))
    right = digests(spark, options.right, bounds, by_offset=options.compares_offsets)
    progress(Step("comparing", 2, 2))
    days = compare(left, right)
    problems += _strangers(spark, options) + described(days)
    if options.compares_offsets and bounds:
        problems += _examples(spark, options, bounds, days)
    facts: dict[str, int | float | str | None] = {
        "left": str(options.left),
        "right": str(options.right),
        "records_on_the_left": sum(one.records for one in left.values()),
        "records_on_the_right": sum(one.records for one in right.values()),
        "days_compared": len(days),
        "days_that_differ": sum(bool(one.difference) for one in days),
        "gaps_on_the_left": sum(one.gaps for one in left.values()),
        "gaps_on_the_right": sum(one.gaps for one in right.values()),
    }
    records = sum(one.records for side in (left, right) for one in side.values())
    summary = Summary("audit", records, monotonic() - began_s, facts, tuple(problems))
    return AuditResult(summary, tuple(days))


def _bounds(spark: SparkSession, options: AuditOptions) -> tuple[Bounds | None, list[str]]:
    """None: all that there is, because offsets do not say what belongs together."""
    if not options.compares_offsets:
        return None, []
    return common_extent(extent(spark, options.left), extent(spark, options.right))


def digests(
    spark: SparkSession, place: Place, bounds: Bounds | None, *, by_offset: bool
) -> dict[Day, Digest]:
    from pyspark.sql import functions as f

    if bounds is not None and not bounds:
        return {}
    frame = read_records(spark, place, bounds).select(
        "partition",
        f.expr(_DATE).cast("string").alias("date"),
        "offset",
        _hash(by_offset=by_offset).alias("hash"),
    )
    rows = (
        frame.groupBy("partition", "date")
        .agg(
            f.count(f.lit(1)),
            f.count_distinct("offset"),
            f.min("offset"),
            f.max("offset"),
            f.expr("bit_xor(hash)"),
            # Duplicates cancel out in an exclusive or, and not in a sum; 32 bits cannot overflow.
            f.expr("sum(shiftrightunsigned(hash, 32))"),
        )
        .collect()
    )
    return {
        (row[0], row[1]): Digest(row[2], row[2] - row[3], row[4], row[5], (row[6], row[7]))
        for row in rows
    }


def _hash(*, by_offset: bool) -> Any:
    from pyspark.sql import functions as f

    # A null is skipped by the hash, so that it is told from an empty value by a column of its own.
    columns = [
        f.col("timestamp"), f.col("key"), f.col("key").isNull(), f.col("value"),
        f.col("value").isNull(), f.coalesce(f.size("headers"), f.lit(0)), f.col("headers"),
    ]  # fmt: skip
    return f.xxhash64(*([f.col("offset")] if by_offset else []), *columns)


def _strangers(spark: SparkSession, options: AuditOptions) -> list[str]:
    return [
        f"{path} in {place.path} belongs to no commit"
        for place in (options.left, options.right)
        if isinstance(place, LakePlace)
        for path in Lake(spark, place.path).strangers(place.topic)
    ]


def _examples(
    spark: SparkSession, options: AuditOptions, bounds: Bounds, days: list[DayVerdict]
) -> list[str]:
    """Some offsets that differ, of the partitions that do."""
    partitions = sorted({one.partition for one in days if one.difference})
    if not partitions:
        return []
    from pyspark.sql import functions as f

    some = {one: bounds[one] for one in partitions}

    def side(place: Place, name: str) -> DataFrame:
        frame = read_records(spark, place, some)
        hashed = frame.select("partition", "offset", _hash(by_offset=True).alias("hash"))
        return hashed.groupBy("partition", "offset").agg(
            f.expr("bit_xor(hash)").alias(name), f.count(f.lit(1)).alias(f"{name}_count")
        )

    joined = side(options.left, "left").join(
        side(options.right, "right"), ["partition", "offset"], "full"
    )
    rows = (
        joined.where("NOT (left <=> right) OR left_count > 1 OR right_count > 1")
        .orderBy("partition", "offset")
        .limit(EXAMPLES)
        .collect()
    )
    return [f"partition {row['partition']}, offset {row['offset']}: {_told(row)}" for row in rows]


def _told(row: Any) -> str:
    left, right = row["left_count"], row["right_count"]
    if left is None or right is None:
        return f"only on the {'right' if left is None else 'left'}"
    if left != right:
        return f"{left} times on the left, {right} times on the right"
    return "not the same record"
