"""``write.format("tidelog")`` and ``writeStream.format("tidelog")``: what Spark calls.

Tasks run ``write`` on executors, on a pickled copy; ``commit`` and ``abort`` run in processes of
their own beside the driver. So nothing here holds a socket, and what one step knows that another
needs goes through the commit messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.pipeline.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class Stored(WriterCommitMessage):
    """A task's rows are with the brokers."""

    rows: int


def check_schema(schema: StructType, options: SinkOptions) -> None:
    from tidelog.pipeline.sink_columns import check_columns

    columns = [(one.name, one.dataType.simpleString()) for one in schema]
    check_columns(columns, options.topic)


class BatchWriter(DataSourceArrowWriter):
    """At least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return store(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """At least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return store(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the rows are with the brokers already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: rows that are stored stay. That is what "at least" means."""


def store(options: SinkOptions, batches: Iterator[Any]) -> Stored:
    """One task. Runs on an executor."""
    from tidelog.kernel.real.allocator import keep_large_blocks
    from tidelog.pipeline.cluster import Cluster
    from tidelog.pipeline.coordinators import Coordinators
    from tidelog.pipeline.producing import Identity, Producer

    keep_large_blocks()
    context = TaskContext.get()
    cluster = Cluster(options)
    try:
        identity = Identity(*Coordinators(cluster).idempotent_producer())
        producer = Producer(options, cluster, identity, context.partitionId() if context else 0)
        try:
            producer.write(batches)
        finally:
            producer.close()
        return Stored(producer.rows)
    finally:
        cluster.close()
