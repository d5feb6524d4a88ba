"""``format("tidelog-segments")``: log directories read from their files; no broker is asked.

Of Tidelog or of Apache Kafka, live, stopped or restored from a backup. Executors open the paths
themselves, so they must see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.pipeline.source import columns_of, source_schema
from tidelog.pipeline.versions import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidelog.pipeline.segments_options import SegmentsOptions
    from tidelog.pipeline.segments_plan import SegmentRange


class SegmentsDataSource(DataSource):
    def __init__(self, options: dict[str, str]) -> None:
        require_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "tidelog-segments"

    def schema(self) -> StructType:
        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.pipeline.segments_options import parse_segments_options

        columns = columns_of(schema, self.schema())
        options = parse_segments_options(dict(self.options))
        return SegmentsReader(replace(options, columns=columns))


class SegmentPartition(InputPartition):
    """The bytes of one task."""

    def __init__(self, value: SegmentRange) -> None:
        super().__init__(value)


class SegmentsReader(DataSourceReader):
    def __init__(self, options: SegmentsOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.kernel.real import OsDisk
        from tidelog.pipeline.segments_plan import plan

        return [SegmentPartition(task) for task in plan(OsDisk(), self._options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from tidelog.kernel.real import OsDisk
        from tidelog.kernel.real.allocator import keep_large_blocks
        from tidelog.pipeline.segments_read import read_segment

        if partition.value is None:  # Spark's word for a plan without tasks
            return iter(())
        keep_large_blocks()
        return read_segment(OsDisk(), self._options, partition.value)
