"""Options that no other test here gives to Spark, so that each was given to a cluster once."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Topics

from tidelog.pipeline import segments_options, sink_options, source_options
from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.spark

DAY_MS = 1_700_000_000_000
CLIENT = {"kafka.client.id": "a-name-of-its-own"}


def numbered(count: int) -> list[bytes]:
    return [b"%d" % index for index in range(count)]


def read(spark: Any, topics: Topics, topic: str, **options: str) -> list[bytes]:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    rows = reader.option("subscribe", topic).options(**options).load().orderBy("offset").collect()
    return [bytes(row.value) for row in rows]


def groups(topics: Topics) -> set[str]:
    return {one.group_id for one in topics.admin.list_consumer_groups().result(30).valid}


def test_no_option_is_without_a_test_on_a_cluster() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py")]
    given = "".join(texts).replace("__", ".")  # how keyword arguments spell a dot
    tables = (source_options.TABLE, sink_options.TABLE, segments_options.TABLE)
    names = {option.name for table in tables for option in table}
    assert not {name for name in names if not re.search(rf"\b{re.escape(name)}\b", given)}


def test_each_partition_may_have_times_of_its_own(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(100), timestamp_ms=DAY_MS)
    start = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": DAY_MS + 30}})}
    end = {"endingOffsetsByTimestamp": json.dumps({topic: {"0": DAY_MS + 33}})}
    assert read(spark, topics, topic, **start, **end) == numbered(100)[30:33]
    late = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": DAY_MS + 1000}})}
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(spark, topics, topic, **late, **strategy) == []


def test_what_a_reader_may_say_of_itself_changes_nothing(spark: Any, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3000))
    given = {
        **CLIENT,
        "groupIdPrefix": "a-prefix",
        "kafka.group.id": "a-group",
        "kafka.max.partition.fetch.bytes": "100",  # less than any batch
        "kafka.check.crcs": "false",
    }
    assert read(spark, topics, topic, **given) == numbered(3000)
    assert not {name for name in groups(topics) if name.startswith("a-")}, "no group was joined"


def test_a_micro_batch_waits_for_enough_but_not_for_ever(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    topic = topics.create()
    topics.fill(topic, numbered(5))
    sizes: list[int] = []

    def start(place: str, delay: str) -> Any:
        reader = spark.readStream.format("tidelog").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", topics.bootstrap)
        reader = reader.option("startingOffsets", "earliest").option("maxTriggerDelay", delay)
        writer = reader.option("minOffsetsPerTrigger", "100").load().writeStream
        writer = writer.foreachBatch(lambda frame, _: sizes.append(frame.count()))
        return writer.option("checkpointLocation", str(tmp_path / place)).start()

    def saw(query: Any, end: int) -> bool:
        last = query.lastProgress
        if last is None:
            return False
        return bool(json.loads(last.json)["sources"][0]["latestOffset"] == {topic: {"0": end}})

    def wait(query: Any, until: Any) -> None:
        while not until():
            assert not query.awaitTermination(0.1)

    patient = start("patient", "1h")
    wait(patient, lambda: sizes == [5])
    topics.fill(topic, numbered(50))
    wait(patient, lambda: saw(patient, 55))
    assert sizes == [5], "fifty are too few"
    topics.fill(topic, numbered(50))
    wait(patient, lambda: len(sizes) > 1)
    patient.stop()
    assert sizes == [5, 100]

    sizes.clear()
    hasty = start("hasty", "1s")
    wait(hasty, lambda: sizes == [105])
    topics.fill(topic, numbered(7))
    wait(hasty, lambda: len(sizes) > 1)
    hasty.stop()
    assert sum(sizes) == 112, "seven are too few, but a second is over"


def test_what_a_writer_may_say_of_itself(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    given = {
        **CLIENT,
        "kafka.bootstrap.servers": topics.bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": f"own-{topic}",
        "kafka.transaction.timeout.ms": "60000",
        "kafka.delivery.timeout.ms": "60000",
        "kafka.enable.idempotence": "true",
    }
    frame = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) value")
    run = {"txnAppId": "unused", "txnVersion": "1"}
    frame.write.format("tidelog").mode("append").options(**given, **run).save()
    assert f"own-{topic}" in groups(topics), "which keeps the decision"
    too_long = {**given, **run, "txnVersion": "2", "kafka.transaction.timeout.ms": "86400000"}
    with pytest.raises(Exception, match="INVALID_TRANSACTION_TIMEOUT"):
        frame.write.format("tidelog").mode("append").options(**too_long).save()

    stream = spark.readStream.format("tidelog").option("subscribe", topic)
    stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
    stream = stream.option("kafka.isolation.level", "read_committed")
    copy = topics.create()
    writer = stream.option("startingOffsets", "earliest").load().select("value").writeStream
    writer = writer.format("tidelog").queryName("a-copy").trigger(availableNow=True)
    writer = writer.options(**{**given, "topic": copy, "transactionalIdPrefix": f"own-{copy}"})
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert query.name == "a-copy" and query.awaitTermination(120)
    committed = {"kafka.isolation.level": "read_committed"}
    assert sorted(map(int, read(spark, topics, copy, **committed))) == list(range(100))


def test_files_are_chosen_cut_and_read_around_damage(
    spark: Any, topics: Topics, cluster: LocalCluster, tmp_path: Path
) -> None:
    # The files of a segment that is being written have no entries in their indexes yet.
    topic = topics.create(index_interval_bytes="4096", segment_bytes="1048576")
    for _ in range(8):
        topics.fill(topic, [b"%04d" % index * 200 for index in range(250)])
    topics.transaction(topic, [b"aborted"], commit=False)
    [live] = cluster.data_dir.glob(f"node-1/**/{topic}-0")
    shutil.copytree(live, tmp_path / f"{topic}-0")

    def files(**options: str) -> Any:
        reader = spark.read.format("tidelog-segments").option("topicsPattern", f"{topic}|x")
        return reader.options(**options).load(str(tmp_path))

    whole = files()
    assert whole.count() == 2001
    assert files(isolationLevel="read_committed").count() == 2000
    parts = files(maxBytesPerPartition="300000")
    assert parts.rdd.getNumPartitions() > whole.rdd.getNumPartitions() and parts.count() == 2001

    log = min(tmp_path.glob(f"{topic}-0/*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    log.write_bytes(damaged)
    with pytest.raises(Exception, match=r"byte \d+: batch at .*set failOnCorrupt to false"):
        files().count()
    assert 1500 <= files(failOnCorrupt="false").count() < 2001
