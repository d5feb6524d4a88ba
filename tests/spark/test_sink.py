"""``write.format("tidelog")`` and ``writeStream``: what is written is what is read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Topics

pytestmark = pytest.mark.spark

HEADERS = "array<struct<key:string,value:binary>>"


def write(frame: Any, topics: Topics, **options: object) -> None:
    writer = frame.write.format("tidelog").mode("append")
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), str(value))
    writer.save()


def read(spark: Any, topics: Topics, topic: str, **options: str) -> Any:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def test_all_columns_come_back(spark: Any, topics: Topics) -> None:
    topic, other = topics.create(partitions=3), topics.create()
    schema = f"key string, value binary, headers {HEADERS}, topic string, partition int, ts double"
    rows = [
        ("a", b"one", [("h", b"x"), ("n", None)], topic, 2, 1_700_000_000.5),
        (None, None, None, topic, 1, None),
        ("b", b"three", [], other, None, 1_700_000_001.0),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame = frame.withColumn("timestamp", frame.ts.cast("timestamp")).drop("ts")
    before_ms = time.time() * 1000
    write(frame, topics)
    one, two = read(spark, topics, topic, includeHeaders="true").orderBy("key").collect()[::-1]
    assert (bytes(one.key), bytes(one.value), one.partition) == (b"a", b"one", 2)
    assert one.timestamp.timestamp() == 1_700_000_000.5
    assert [(pair.key, pair.value) for pair in one.headers] == [("h", b"x"), ("n", None)]
    assert (two.key, two.value, two.headers, two.partition) == (None, None, None, 1)
    assert two.timestamp.timestamp() * 1000 >= int(before_ms), "a row without a time is of now"
    [three] = read(spark, topics, other).collect()
    assert (bytes(three.key), bytes(three.value)) == (b"b", b"three")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_row_is_there_once_with_every_codec(spark: Any, topics: Topics, codec: str) -> None:
    topic = topics.create(partitions=3)
    frame = spark.range(0, 20_000, 1, 3).selectExpr(
        "CAST(id % 1000 AS STRING) key", "CAST(id AS STRING) value"
    )
    limits = {"kafka__batch__size": 20_000, "kafka__linger__ms": 0}
    write(frame, topics, topic=topic, kafka__compression__type=codec, **limits)
    found = read(spark, topics, topic).selectExpr("CAST(value AS STRING) value", "partition", "key")
    assert sorted(int(row.value) for row in found.collect()) == list(range(20_000))
    assert found.groupBy("key").agg({"partition": "min"}).count() == 1000
    assert found.select("key", "partition").distinct().count() == 1000, "a key stays together"


def test_what_was_read_can_be_written(spark: Any, topics: Topics) -> None:
    source, target = topics.create(partitions=2), topics.create(partitions=2)
    topics.fill(source, [b"%d" % number for number in range(100)], partition=1, timestamp_ms=1000)
    columns = ("key", "value", "partition", "timestamp")
    write(read(spark, topics, source), topics, topic=target)
    copied = read(spark, topics, target).select(*columns)
    assert copied.exceptAll(read(spark, topics, source).select(*columns)).count() == 0
    assert copied.count() == 100


def test_keys_go_where_other_clients_send_them(spark: Any, topics: Topics) -> None:
    from confluent_kafka import Producer

    ours, theirs = topics.create(partitions=7), topics.create(partitions=7)
    keys = ["", "k", "ke", "key", "keys", *(f"key-{number}" * (number % 9) for number in range(90))]
    settings: Any = {"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2"}
    producer = Producer(settings)
    for key in keys:
        producer.produce(theirs, b"v", key.encode())
    assert producer.flush(30) == 0
    frame = spark.createDataFrame([(key, b"v") for key in keys], "key string, value binary")
    write(frame, topics, topic=ours)
    columns = ("key", "partition")
    mine, other = (read(spark, topics, name).select(*columns) for name in (ours, theirs))
    assert mine.exceptAll(other).count() == 0
    assert mine.count() == len(keys)


def test_a_stream_goes_from_topic_to_topic(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(partitions=2), topics.create(partitions=2)
    stream = spark.readStream.format("tidelog").option("subscribe", source)
    stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400")
    writer = stream.load().select("key", "value").writeStream.format("tidelog")
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", target)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for part in (range(1000), range(1000, 1200)):
        topics.fill(source, [b"%d" % number for number in part])
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    found = read(spark, topics, target).selectExpr("CAST(value AS STRING) value").collect()
    assert sorted(int(row.value) for row in found) == list(range(1200))


def test_a_foreach_batch_writes_updates(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    topics.fill(source, [b"a", b"b", b"a"])
    stream = spark.readStream.format("tidelog").option("subscribe", source)
    stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
    counts = stream.option("startingOffsets", "earliest").load().groupBy("value").count()
    counts = counts.selectExpr("value key", "CAST(count AS STRING) value")
    query = counts.writeStream.outputMode("update").foreachBatch(
        lambda frame, batch: write(frame, topics, topic=target)
    )
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    found = read(spark, topics, target).collect()
    assert {(bytes(row.key), bytes(row.value)) for row in found} == {(b"a", b"2"), (b"b", b"1")}


def test_what_is_wrong_is_named(spark: Any, topics: Topics) -> None:
    frame = spark.createDataFrame([(b"v",)], "value binary")
    cases = {
        "kafka.sasl.mechanism is refused": {"topic": "t", "kafka__sasl__mechanism": "PLAIN"},
        "kafka.security.protocol is 'SSL'": {"topic": "t", "kafka__security__protocol": "SSL"},
        "kafka.acks is '1'": {"topic": "t", "kafka__acks": "1"},
        "compresion.type is not an option": {"topic": "t", "kafka__compresion__type": "gzip"},
        "no topic is given": {},
        "txnAppId is missing": {"topic": "t", "deliveryGuarantee": "exactly-once"},
        "topic 'not-there' does not exist": {"topic": "not-there"},
    }
    for message, options in cases.items():
        with pytest.raises(Exception, match=message):
            write(frame, topics, **options)
    wrong = spark.createDataFrame([(1, "x", 1)], "value int, partition string, extra int")
    with pytest.raises(Exception, match=r"column value is of type int.*partition.*column extra"):
        write(wrong, topics, topic="t")
    far = spark.createDataFrame([(b"v", 5)], "value binary, partition int")
    topic = topics.create()
    with pytest.raises(Exception, match=f"partition 5 of topic '{topic}'"):
        write(far, topics, topic=topic)
    with pytest.raises(Exception, match=r"a row for .* takes 20.* bytes"):
        write(frame.selectExpr("repeat('x', 2000) value"), topics, topic=topic,
              kafka__batch__size=500, kafka__max__request__size=1000)  # fmt: skip
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.write.format("tidelog").mode("overwrite").option("topic", topic).save()
    assert read(spark, topics, topic).count() == 0


def test_a_batch_above_the_topics_limit_is_told(spark: Any, topics: Topics) -> None:
    topic = topics.create(max_message_bytes="2000")
    frame = spark.range(0, 1000, 1, 1).selectExpr("repeat('x', 100) value")
    with pytest.raises(Exception, match=r"above the topic's max.message.bytes"):
        write(frame, topics, topic=topic)


def test_a_broker_that_is_down_is_told(spark: Any) -> None:
    writer = spark.createDataFrame([(b"v",)], "value binary").write.format("tidelog")
    writer = writer.option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "t")
    began = time.monotonic()
    with pytest.raises(Exception, match=r"no answer within 300 ms"):
        writer.mode("append").option("kafka.request.timeout.ms", "300").save()
    assert time.monotonic() - began < 20
