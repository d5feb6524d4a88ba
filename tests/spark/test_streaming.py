"""``spark.readStream.format("tidelog")``: micro-batches, limits, restarts, loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Topics

pytestmark = pytest.mark.spark


class Stream:
    """A query that can be run again and again from its checkpoint; what it saw stays."""

    def __init__(self, spark: Any, topics: Topics, place: Path, **options: object) -> None:
        self.spark = spark
        self.fails = False
        self.schema: str | None = None
        self.seen: list[tuple[int, list[tuple[int, int, bytes]]]] = []
        self.checkpoint = str(place / "checkpoint")
        self.options = {"kafka.bootstrap.servers": topics.bootstrap, **options}

    def start(self, **trigger: Any) -> Any:
        reader = self.spark.readStream.format("tidelog")
        for name, value in self.options.items():
            reader = reader.option(name, str(value))
        if self.schema is not None:
            reader = reader.schema(self.schema)
        writer = reader.load().writeStream.foreachBatch(self._keep)
        return writer.option("checkpointLocation", self.checkpoint).trigger(**trigger).start()

    def run(self) -> Any:
        """All that is available now."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        return query

    def _keep(self, frame: Any, batch_id: int) -> None:
        if self.fails:
            raise RuntimeError("on purpose")
        rows = frame.select("partition", "offset", "value").collect()
        self.seen.append((batch_id, sorted((r.partition, r.offset, bytes(r.value)) for r in rows)))

    def values(self) -> list[bytes]:
        return [value for _, batch in self.seen for _, _, value in batch]

    def sizes(self) -> list[int]:
        return [len(batch) for _, batch in self.seen if batch]


def numbered(count: int, prefix: str = "v") -> list[bytes]:
    return [f"{prefix}{index}".encode() for index in range(count)]


def test_a_stream_may_name_fewer_columns(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(10))
    stream = Stream(spark, topics, tmp_path, subscribe=topic, startingOffsets="earliest")
    stream.schema = "value BINARY, offset LONG, partition INT"
    stream.run()
    assert stream.values() == numbered(10)


def test_available_now_reads_in_limited_batches_and_then_ends(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    topics.fill(topic, numbered(900, "a"))
    topics.fill(topic, numbered(100, "b"), partition=1)
    stream = Stream(
        spark, topics, tmp_path, subscribe=topic, startingOffsets="earliest",
        maxOffsetsPerTrigger=400,
    )  # fmt: skip
    stream.run()
    assert sorted(stream.values()) == sorted(numbered(900, "a") + numbered(100, "b"))
    assert max(stream.sizes()) <= 400 and len(stream.sizes()) == 3
    by_partition = [value for place in (0, 1) for _, batch in stream.seen for value in batch
                    if value[0] == place]  # fmt: skip
    assert [offset for _, offset, _ in by_partition] == [*range(900), *range(100)]
    topics.fill(topic, numbered(50, "later"))
    stream.run()
    assert stream.values()[1000:] == numbered(50, "later")


def test_new_partitions_are_read_from_their_beginning(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(5, "a"))
    stream = Stream(spark, topics, tmp_path, subscribe=topic, startingOffsets="earliest")
    stream.run()
    topics.grow(topic, 2)
    topics.fill(topic, numbered(5, "b"), partition=1)
    stream.run()
    assert stream.values() == numbered(5, "a") + numbered(5, "b")


def test_a_repeated_first_batch_starts_where_it_started_before(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    """With ``latest`` a restart would start elsewhere, and records would be lost."""
    topic = topics.create()
    topics.fill(topic, numbered(5, "old"))
    stream = Stream(spark, topics, tmp_path, subscribe=topic)
    stream.fails = True
    with pytest.raises(Exception, match="on purpose"):
        stream.run()
    topics.fill(topic, numbered(5, "new"))
    with pytest.raises(Exception, match="on purpose"):
        stream.run()
    stream.fails = False
    topics.fill(topic, numbered(5, "newer"))
    stream.run()
    assert stream.values() == numbered(5, "new") + numbered(5, "newer")


def test_retention_that_passes_the_reader_is_an_error_or_a_gap(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(10))
    stream = Stream(spark, topics, tmp_path, subscribe=topic, startingOffsets="earliest")
    stream.run()
    topics.fill(topic, numbered(10, "lost"))
    topics.fill(topic, numbered(10, "kept"))
    topics.delete_records(topic, 20)
    with pytest.raises(Exception, match="offsets 10 to 19 are not in the log any more"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.values() == numbered(10) + numbered(10, "kept")


def test_a_topic_that_vanished_is_an_error_or_left_out(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    gone, stays = topics.create(), topics.create()
    topics.fill(gone, numbered(3, "gone"))
    topics.fill(stays, numbered(3, "stays"))
    stream = Stream(
        spark, topics, tmp_path, subscribe=f"{gone},{stays}", startingOffsets="earliest"
    )
    stream.run()
    topics.delete(gone)
    topics.fill(stays, numbered(3, "more"))
    with pytest.raises(Exception, match=f"{gone}-0 is gone"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.values()[6:] == numbered(3, "more")


def test_read_committed_ends_at_the_last_stable_offset(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.transaction(topic, numbered(5, "aborted"), commit=False)
    topics.transaction(topic, numbered(5, "committed"), commit=True)
    open_one = topics.open_transaction(topic, [b"open"])
    stream = Stream(
        spark, topics, tmp_path, subscribe=topic, startingOffsets="earliest",
        **{"kafka.isolation.level": "read_committed"},
    )  # fmt: skip
    stream.run()
    assert stream.values() == numbered(5, "committed")
    open_one.commit_transaction(30)
    stream.run()
    assert stream.values() == [*numbered(5, "committed"), b"open"]


def test_the_checkpoint_has_the_offsets_of_sparks_connector(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3))
    stream = Stream(spark, topics, tmp_path, subscribe=topic, startingOffsets="earliest")
    stream.run()
    topics.fill(topic, numbered(4))
    stream.run()
    logged = (Path(stream.checkpoint) / "offsets" / "1").read_text().splitlines()
    assert json.loads(logged[-1]) == {topic: {"0": 7}}
