"""``deliveryGuarantee=exactly-once``: what Spark calls, over the protocol of ``two_phase``.

Spark pickles a writer only while it plans a batch, in a process beside the driver, and so
``__getstate__`` is where a batch is planned. It is asked twice for the same writer and answers the
same. A stream's ``commit`` and ``abort`` run on a writer that was never planned: what they need to
know comes with the messages of the tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink_options import Once, SinkOptions

if TYPE_CHECKING:
    from tidelog.pipeline.decision import Transaction
    from tidelog.pipeline.two_phase import Plan, Prepared, TwoPhase

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_JOB_GROUP: Final = "spark.jobGroup.id"
"""A stream's run, which is another one after every start."""


@dataclass
class PreparedMessage(WriterCommitMessage):
    prepared: Prepared


class OnceWriter:
    """What batch and stream have in common."""

    def __init__(self, options: SinkOptions) -> None:
        assert options.once is not None
        self._options = options
        self._once: Once = options.once
        self._plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._plan is None:
            with self._two_phase() as (two_phase, _):
                self._plan = two_phase.plan()
        return self.__dict__

    def reached(self, step: str) -> None:
        """Tests end the process here."""

    def _prepare(self, query: str, batch: int, run: str, batches: Iterator[Any]) -> PreparedMessage:
        """One task. Runs on an executor."""
        from tidelog.kernel.real.allocator import keep_large_blocks
        from tidelog.pipeline.decision import Task
        from tidelog.pipeline.producing import Identity, Producer

        keep_large_blocks()
        assert self._plan is not None
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        task = Task(run, partition, context.attemptNumber())
        with self._two_phase() as (two_phase, (cluster, coordinators)):

            def write(transaction: Transaction) -> int:
                identity = Identity(
                    transaction.producer_id,
                    transaction.epoch,
                    transaction.id,
                    lambda places: coordinators.add_partitions(transaction, places),
                )
                producer = Producer(self._options, cluster, identity, partition)
                try:
                    producer.write(self._noticed(batches))
                finally:
                    producer.close()
                return producer.rows

            return PreparedMessage(two_phase.prepare(self._plan, query, batch, task, write))

    def _noticed(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            self.reached("task-sent-some")

    @contextmanager
    def _two_phase(self) -> Iterator[tuple[TwoPhase, Any]]:
        from tidelog.pipeline.cluster import Cluster
        from tidelog.pipeline.coordinators import Coordinators
        from tidelog.pipeline.two_phase import TwoPhase

        cluster = Cluster(self._options)
        try:
            coordinators = Coordinators(cluster)
            once = self._once
            yield (
                TwoPhase(coordinators, once.prefix, once.transaction_timeout_ms, self.reached),
                (cluster, coordinators),
            )
        finally:
            cluster.close()


class OnceBatchWriter(OnceWriter, DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        assert self._plan is not None and self._once.app_id is not None
        driver = self._plan.driver
        run = _run_of(f"{driver.producer_id}:{driver.epoch}")
        return self._prepare(self._once.app_id, _version(self._once), run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._two_phase() as (two_phase, _):
            two_phase.commit(_prepared(messages), _version(self._once))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._two_phase() as (two_phase, _):
            two_phase.abort(None if self._plan is None else self._plan.driver)


class OnceStreamWriter(OnceWriter, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        assert self._plan is not None
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        if query is None or batch is None:
            raise PipelineError("Spark does not tell this task which query and batch it is of")
        driver = self._plan.driver
        group = context.getLocalProperty(_JOB_GROUP) if context else None
        run = _run_of(group or f"{driver.producer_id}:{driver.epoch}")
        return self._prepare(query, int(batch), run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with self._two_phase() as (two_phase, _):
            two_phase.commit(_prepared(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        known = _prepared(messages)
        with self._two_phase() as (two_phase, _):
            two_phase.abort(known[0].driver if known else None)


def _prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    """Of the tasks that came to their end."""
    return [one.prepared for one in messages if isinstance(one, PreparedMessage)]


def _version(once: Once) -> int:
    assert once.version is not None
    return once.version


def _run_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
