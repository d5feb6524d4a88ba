"""``format("tidelog")``: what Spark calls, and batch queries. Writing is in ``sink``.

Spark imports this for every first use of any Python source, and pickles what it makes of it. So
nothing heavy is imported at the top, and no reader holds a socket before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.pipeline.errors import WrongOptions
from tidelog.pipeline.versions import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from tidelog.pipeline.planner import OffsetRange
    from tidelog.pipeline.sink_options import SinkOptions
    from tidelog.pipeline.source_options import SourceOptions


def source_schema(given: Mapping[str, str]) -> StructType:
    """The schema of Spark's Kafka connector."""
    from pyspark.sql import types as t

    columns = [
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField("timestampType", t.IntegerType()),
    ]
    if str(given.get("includeHeaders", "")).strip().lower() == "true":
        header = [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
        columns.append(t.StructField("headers", t.ArrayType(t.StructType(header))))
    return t.StructType(columns)


def columns_of(given: StructType, own: StructType) -> tuple[str, ...]:
    """What a query asks for: all columns, or those of a schema that the user gave."""
    types = {one.name: one.dataType for one in own}
    for one in given:
        if types.get(one.name) != one.dataType or not one.nullable:
            raise WrongOptions(
                f"column {one.simpleString()}: this source has other columns, "
                f"{own.simpleString()}; a schema may leave out some of them and change their order"
            )
    if not given.names:
        raise WrongOptions(f"a schema without columns; this source has {own.simpleString()}")
    return tuple(given.names)


class TidelogDataSource(DataSource):
    """Topics of any broker that speaks the Kafka protocol."""

    def __init__(self, options: dict[str, str]) -> None:
        require_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._parsed(schema, "batch"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.pipeline.streaming import StreamReader

        return StreamReader(self._parsed(schema, "stream"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.pipeline.sink import BatchWriter
        from tidelog.pipeline.sink_once import OnceBatchWriter

        options = self._parsed_for_writing(schema, overwrite, "batch")
        return BatchWriter(options) if options.once is None else OnceBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidelog.pipeline.sink import StreamWriter
        from tidelog.pipeline.sink_once import OnceStreamWriter

        options = self._parsed_for_writing(schema, overwrite, "stream")
        return StreamWriter(options) if options.once is None else OnceStreamWriter(options)

    def _parsed_for_writing(self, schema: StructType, overwrite: bool, mode: str) -> SinkOptions:
        from tidelog.pipeline.sink import check_schema
        from tidelog.pipeline.sink_options import parse_sink_options

        if overwrite:
            raise WrongOptions(
                "a topic cannot be overwritten, only appended to: mode('append'), "
                "outputMode('append')"
            )
        options = parse_sink_options(dict(self.options), mode)
        check_schema(schema, options)
        return options

    def _parsed(self, schema: StructType, mode: str) -> SourceOptions:
        from tidelog.pipeline.source_options import parse_source_options

        columns = columns_of(schema, self.schema())
        return replace(parse_source_options(dict(self.options), mode), columns=columns)


class RangePartition(InputPartition):
    """The offsets of one task."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.pipeline.cluster import Cluster
        from tidelog.pipeline.planner import ranges_between, resolve, split

        options = self._options
        cluster = Cluster(options, read_committed=options.read_committed)
        try:
            places = cluster.places(options.selection, must_exist=True)
            start = resolve(options.start, places, cluster.offsets, "starting")
            end = resolve(options.end, places, cluster.offsets, "ending")
        finally:
            cluster.close()
        ranges, problems = ranges_between(start, end)
        if problems and options.fail_on_data_loss:
            raise WrongOptions(f"{'; '.join(problems)}: the end lies before the start")
        tasks = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Runs on an executor. Spark makes a task of None where a plan has no tasks."""
    from tidelog.kernel.real.allocator import keep_large_blocks
    from tidelog.pipeline.fetching import RangeReader

    keep_large_blocks()
    return iter(()) if partition.value is None else RangeReader(options, partition.value).read()
