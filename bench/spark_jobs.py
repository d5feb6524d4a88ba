"""Jobs that `make bench-spark` times, each by a session of its own kind; run as a script.

It imports nothing but PySpark (and tidelog where that is measured), because Spark's own connector
is measured with another PySpark that knows nothing of this project. Reads what to do as JSON on
standard input, writes the seconds of each turn as JSON to the last line of standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any


def session(jars: list[str]) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def register_tuples(spark: Any) -> None:
    """The same source, but a tuple of Python objects for each record, as most sources are."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    from tidelog.pipeline.source import BatchReader, TidelogDataSource

    class TuplesReader(DataSourceReader):  # type: ignore[misc]
        def __init__(self, inner: BatchReader) -> None:
            self.inner = inner

        def partitions(self) -> Any:
            return self.inner.partitions()

        def read(self, partition: InputPartition) -> Iterator[Any]:
            for batch in self.inner.read(partition):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    class TuplesSource(TidelogDataSource):
        @classmethod
        def name(cls) -> str:
            return "tuples"

        def reader(self, schema: Any) -> Any:
            return TuplesReader(super().reader(schema))

    spark.dataSource.register(TuplesSource)


def register_memory(spark: Any) -> None:
    """A source that reads nothing and has its batches ready: what Spark takes for the rest."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class MemoryReader(DataSourceReader):  # type: ignore[misc]
        def __init__(self, rows: int, size: int, tasks: int) -> None:
            self.rows, self.size, self.tasks = rows, size, tasks

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(self.tasks)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            from tidelog.pipeline.arrow_records import SCHEMA

            left = self.rows // self.tasks
            count = min(left, 32_768, 4 * 1024 * 1024 // self.size)
            values = (b"%d" % count, b"x" * self.size, "topic", 0, 0, 0, 0)
            columns = [
                pa.repeat(pa.scalar(v, f.type), count) for v, f in zip(values, SCHEMA, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            while left:
                taken = batch.slice(0, left)
                left -= taken.num_rows
                yield taken

    class MemorySource(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "memory-batches"

        def schema(self) -> Any:
            from tidelog.pipeline.source import source_schema

            return source_schema({})

        def reader(self, schema: Any) -> Any:
            wanted = self.options
            return MemoryReader(int(wanted["rows"]), int(wanted["size"]), int(wanted["tasks"]))

    spark.dataSource.register(MemorySource)


def frame(spark: Any, job: dict[str, str]) -> Any:
    reader = spark.read.format(job["format"])
    if job["action"] == "offsets":
        reader = reader.schema("offset LONG")
    if job["format"] == "tidelog-segments":
        return reader.option("topics", job["topic"]).load(job["path"])
    if job["format"] == "memory-batches":
        shape = {"rows": job["records"], "size": job["size"], "tasks": job["tasks"]}
        return reader.options(**shape).load()
    reader = reader.option("kafka.bootstrap.servers", job["bootstrap"])
    return reader.option("subscribe", job["topic"]).option("endingOffsets", job["ends"]).load()


def run(spark: Any, job: dict[str, str], folder: str) -> float:
    records = frame(spark, job)
    start = time.perf_counter()
    match job["action"]:
        case "count" | "offsets":
            assert records.count() == int(job["records"])
        case "parquet":
            records.write.mode("overwrite").parquet(folder)
        case "sink":
            sink = "kafka" if job["format"] == "kafka" else "tidelog"
            writer = records.select("key", "value").write.format(sink)
            writer = writer.option("kafka.bootstrap.servers", job["bootstrap"])
            writer.option("topic", job["target"]).mode("append").save()
        case other:
            raise ValueError(other)
    return time.perf_counter() - start


def main() -> None:
    asked = json.load(sys.stdin)
    spark = session(asked["jars"])
    if any(job["format"] == "tuples" for job in asked["jobs"]):
        register_tuples(spark)
        register_memory(spark)
    folder = tempfile.mkdtemp(prefix="bench-spark-")
    found: dict[str, list[float]] = {}
    try:
        # The first round does not count: it is the one in which Java compiles and Python imports.
        for number in range(1 + max(int(job["turns"]) for job in asked["jobs"])):
            for job in asked["jobs"]:
                if number <= int(job["turns"]):
                    os.sync()  # what was written before is not what is measured
                    seconds = run(spark, job, folder)
                    found.setdefault(job["name"], []).extend([seconds] if number else [])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
