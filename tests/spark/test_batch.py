"""``spark.read.format("tidelog")`` against a cluster of three nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spark_topics import Topics

pytestmark = pytest.mark.spark

DAY_MS = 1_700_000_000_000


def read(spark: Any, topics: Topics, **options: object) -> Any:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def values(frame: Any) -> list[bytes | None]:
    """In the order of partition and offset."""
    rows = frame.select("value", "partition", "offset").collect()
    ordered = sorted(rows, key=lambda row: (row.partition, row.offset))
    return [None if row.value is None else bytes(row.value) for row in ordered]


def numbered(count: int, prefix: str = "v") -> list[bytes]:
    return [f"{prefix}{index}".encode() for index in range(count)]


def test_the_schema_and_the_columns_are_those_of_sparks_connector(
    spark: Any, topics: Topics
) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from tidelog.pipeline.arrow_records import SCHEMA, SCHEMA_WITH_HEADERS

    topic = topics.create()
    topics.fill(topic, [b"one"], key=b"k", timestamp_ms=DAY_MS, headers=[("h", b"x"), ("n", None)])
    topics.fill(topic, [None])
    frame = read(spark, topics, subscribe=topic, includeHeaders="true")
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(SCHEMA_WITH_HEADERS)
    plain = read(spark, topics, subscribe=topic)
    assert to_arrow_schema(plain.schema, timezone="UTC").equals(SCHEMA)
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"one", topic)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.timestamp.timestamp() * 1000 == DAY_MS
    assert [(one.key, one.value) for one in first.headers] == [("h", bytearray(b"x")), ("n", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)


def test_a_schema_may_name_fewer_columns(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(100))
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    reader = reader.option("subscribe", topic)
    frame = reader.schema("offset LONG, value BINARY").load()
    assert frame.columns == ["offset", "value"]
    found = sorted((row.offset, bytes(row.value)) for row in frame.collect())
    assert found == list(enumerate(numbered(100)))
    assert reader.schema("offset LONG").load().count() == 100
    for wrong in ("offset INT", "value BINARY, size LONG", "headers ARRAY<STRING>", "Offset LONG"):
        with pytest.raises(Exception, match=r"this source has other columns, struct<key:binary"):
            reader.schema(wrong).load().count()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_comes_once_whatever_the_split(spark: Any, topics: Topics, codec: str) -> None:
    topic = topics.create(partitions=2)
    topics.fill(topic, numbered(5000, "a"), codec=codec)
    topics.fill(topic, numbered(300, "b"), partition=1, codec=codec)
    frame = read(spark, topics, subscribe=topic, minPartitions=5, maxRecordsPerPartition=1500)
    assert frame.rdd.getNumPartitions() >= 5
    assert values(frame) == numbered(5000, "a") + numbered(300, "b")


def test_offsets_and_times_bound_what_is_read(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(100), timestamp_ms=DAY_MS)
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 10}}),
        "endingOffsets": json.dumps({topic: {"0": 20}}),
    }
    assert (
        values(read(spark, topics, assign=json.dumps({topic: [0]}), **bounds))
        == (numbered(100)[10:20])
    )
    times = {"startingTimestamp": DAY_MS + 30, "endingTimestamp": DAY_MS + 33}
    assert (
        values(read(spark, topics, subscribePattern=f"{topic}|x", **times))
        == (numbered(100)[30:33])
    )
    empty = {"startingTimestamp": DAY_MS + 90, "endingTimestamp": DAY_MS + 90}
    assert values(read(spark, topics, subscribe=topic, **empty)) == []
    late = {"startingTimestamp": DAY_MS + 1000}
    with pytest.raises(Exception, match="has no record of the time"):
        read(spark, topics, subscribe=topic, **late).count()


def test_aborted_and_open_transactions_are_left_out_when_asked(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, [b"plain"])
    topics.transaction(topic, numbered(50, "aborted"), commit=False)
    topics.transaction(topic, numbered(20, "committed"), commit=True)
    open_one = topics.open_transaction(topic, [b"open"])
    committed = {"kafka__isolation__level": "read_committed"}
    wanted = [b"plain", *numbered(20, "committed")]
    assert values(read(spark, topics, subscribe=topic, **committed)) == wanted
    assert len(values(read(spark, topics, subscribe=topic))) == 72
    open_one.abort_transaction(30)


def test_records_that_are_gone_are_an_error_or_a_gap(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(100))
    topics.delete_records(topic, 40)
    asked = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 0}})}
    with pytest.raises(Exception, match="offsets 0 to 39 are not in the log any more"):
        read(spark, topics, **asked).count()
    assert values(read(spark, topics, failOnDataLoss="false", **asked)) == numbered(100)[40:]
    assert values(read(spark, topics, subscribe=topic)) == numbered(100)[40:]


def test_wrong_options_are_named(spark: Any, topics: Topics) -> None:
    cases = {
        "startingOfsets is not an option|startingofsets is not an option": {
            "subscribe": "t", "startingOfsets": "earliest"},
        "exactly one of subscribe": {"subscribe": "t", "subscribePattern": "t.*"},
        "kafka.sasl.mechanism is refused": {"subscribe": "t", "kafka__sasl__mechanism": "PLAIN"},
        "kafka.security.protocol is 'SSL'": {"subscribe": "t", "kafka__security__protocol": "SSL"},
        "topic 'not-there' does not exist": {"subscribe": "not-there"},
    }  # fmt: skip
    for message, options in cases.items():
        with pytest.raises(Exception, match=message):
            read(spark, topics, **options).count()


def test_a_broker_that_is_down_is_told(spark: Any) -> None:
    reader = spark.read.format("tidelog").option("subscribe", "t")
    reader = reader.option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(Exception, match=r"no answer within 300 ms"):
        reader.option("kafka.request.timeout.ms", "300").load().count()


def test_values_can_be_left_out(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(10), key=b"k")
    frame = read(spark, topics, subscribe=topic, includeValue="false")
    assert [(bytes(row.key), row.value) for row in frame.collect()] == [(b"k", None)] * 10
