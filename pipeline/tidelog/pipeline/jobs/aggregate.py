"""Topic → topic: aggregates over windows of event time, each written once when it is closed.

Values are JSON objects of a schema that the job gives. A window is closed, and written, when the
watermark passes its end: when a record has come that is ``watermark`` younger. Records that are
later than that are dropped. The state of open windows is in Spark's checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.summary import Progress, Step, Summary, silently

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MALFORMED: Final = "_malformed"
_DRIFT: Final = "tidelog.pipeline.jobs.failures.SchemaDrift"
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class AggregateOptions:
    bootstrap: str
    topics: tuple[str, ...]
    target: str
    checkpoint: str
    value_schema: str
    """As in SQL: ``country STRING, amount DOUBLE``."""
    metrics: Mapping[str, str]
    """Aggregates by name: ``{"total": "sum(amount)"}``."""
    group_by: tuple[str, ...] = ()
    window: str = "1 minute"
    slide: str | None = None
    watermark: str = "10 seconds"
    event_time: str | None = None
    """A column of type TIMESTAMP; None: the record's own time."""
    fail_on_malformed: bool = False
    """A value that is not of the schema: fail, or skip and count it."""
    exactly_once: bool = True
    follow_every: str | None = None
    """Run on, with a micro-batch so often (``10 seconds``); None: end at the end of the topics."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)


def aggregate(
    spark: SparkSession,
    options: AggregateOptions,
    *,
    progress: Progress = silently,
    stopped: Callable[[], bool] = lambda: False,
    monotonic: Callable[[], float] = time.monotonic,
) -> Summary:
    schema = _checked(options)
    began_s = monotonic()
    records = spark.readStream.format("tidelog").options(**_source(options)).load()
    frame = windowed(parsed(records, options, schema), options)
    writer = (
        frame.writeStream.format("tidelog")
        .outputMode("append")
        .options(**_sink(options))
        .option("checkpointLocation", options.checkpoint)
    )
    if options.follow_every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=options.follow_every)
    query = writer.start()
    tally = _Tally()
    try:
        while not stopped() and not query.awaitTermination(_POLL_S):
            if tally.add(query.recentProgress):
                progress(Step(f"aggregating, batch {tally.last_batch}", tally.records))
    finally:
        query.stop()
        tally.add(query.recentProgress)
    return Summary("aggregate", tally.records, monotonic() - began_s, tally.facts())


def _source(options: AggregateOptions) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": options.bootstrap,
        "subscribe": ",".join(options.topics),
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        **options.source_options,
    }


def _sink(options: AggregateOptions) -> dict[str, str]:
    guarantee = "exactly-once" if options.exactly_once else "at-least-once"
    return {
        "kafka.bootstrap.servers": options.bootstrap,
        "topic": options.target,
        "deliveryGuarantee": guarantee,
        **options.sink_options,
    }


def _checked(options: AggregateOptions) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType, TimestampType

    try:
        schema = StructType.fromDDL(options.value_schema)
    except PySparkException as error:
        raise WrongJob(f"the schema {options.value_schema!r} cannot be read: {error}") from None
    names = {column.name: column.dataType for column in schema}
    missing = [name for name in options.group_by if name not in names]
    if missing:
        raise WrongJob(f"{', '.join(missing)} is not in the schema {options.value_schema!r}")
    if options.event_time is not None and names.get(options.event_time) != TimestampType():
        raise WrongJob(f"{options.event_time!r} is no TIMESTAMP of {options.value_schema!r}")
    if not options.metrics:
        raise WrongJob("no aggregate is given; one is written total=sum(amount)")
    clash = {"window_start", "window_end"} & {*options.metrics, *options.group_by}
    if clash or set(options.metrics) & set(options.group_by):
        raise WrongJob("two columns of the result would have the same name")
    return schema.add(_MALFORMED, "string")


def parsed(records: DataFrame, options: AggregateOptions, schema: StructType) -> DataFrame:
    """The columns of the values, and ``_time``; what is malformed is counted, or an error."""
    from pyspark.sql import functions as f

    json_options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    text = f.col("value").cast("string")
    frame = records.select(
        "topic", "partition", "offset", "timestamp",
        f.from_json(text, schema, json_options).alias("of"),
    )  # fmt: skip
    is_wrong = f.col(f"of.{_MALFORMED}").isNotNull()
    if options.fail_on_malformed:
        place = f.concat_ws("-", "topic", f.col("partition").cast("string"))
        told = f.concat(
            f.lit(f"{_DRIFT}: "), place, f.lit(", offset "), f.col("offset").cast("string"),
            f.lit(f": the value is not JSON of {options.value_schema}"),
        )  # fmt: skip
        kept = f.when(is_wrong, f.raise_error(told).cast("boolean")).otherwise(True)
        frame = frame.where(kept)
    counted = frame.observe(
        "values",
        f.count(f.lit(1)).alias("records"),
        f.count_if(is_wrong).alias("malformed"),
        f.count_if(f.col("of").isNull()).alias("without_value"),
    )
    sound = counted.where(f.col("of").isNotNull() & ~is_wrong)
    moment = "timestamp" if options.event_time is None else f"of.{options.event_time}"
    return sound.select("of.*", f.col(moment).alias("_time")).drop(_MALFORMED)


def windowed(values: DataFrame, options: AggregateOptions) -> DataFrame:
    """What the sink takes: a key of window and group, a value with the aggregates."""
    from pyspark.sql import functions as f

    window = f.window("_time", options.window, options.slide)
    totals = [f.expr(text).alias(name) for name, text in options.metrics.items()]
    grouped = (
        values.withWatermark("_time", options.watermark)
        .groupBy(window.alias("window"), *options.group_by)
        .agg(*totals)
    )
    edges = [
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
    ]
    keep_nulls = {"ignoreNullFields": "false"}
    key = f.to_json(f.struct(edges[0], *options.group_by), keep_nulls)
    value = f.to_json(f.struct(*edges, *options.group_by, *options.metrics), keep_nulls)
    rows = grouped.select(
        key.alias("key"), value.alias("value"), f.col("window.end").alias("timestamp")
    )
    return rows.observe("windows", f.count(f.lit(1)).alias("windows"))


@dataclass(slots=True)
class _Tally:
    """Spark keeps the last hundred reports; each batch is counted once."""

    last_batch: int = -1
    batches: int = 0
    records: int = 0
    malformed: int = 0
    without_value: int = 0
    windows: int = 0
    late: int = 0

    def add(self, reports: list[Any]) -> bool:
        """Whether there was anything new."""
        new = [report for report in reports if report.batchId > self.last_batch]
        for report in new:
            values = report.observedMetrics.get("values")
            windows = report.observedMetrics.get("windows")
            self.last_batch = report.batchId
            self.batches += 1
            if values is not None:
                self.records += values.records
                self.malformed += values.malformed
                self.without_value += values.without_value
            self.windows += 0 if windows is None else windows.windows
            self.late += sum(one.numRowsDroppedByWatermark for one in report.stateOperators)
        return bool(new)

    def facts(self) -> dict[str, int | float | str | None]:
        return {
            "batches": self.batches,
            "windows_written": self.windows,
            "malformed_values": self.malformed,
            "records_without_value": self.without_value,
            "too_late": self.late,
        }
