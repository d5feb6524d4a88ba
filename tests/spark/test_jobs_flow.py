"""``aggregate`` and ``replay`` against a cluster of three nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Topics

from tidelog.pipeline.jobs import replay as replaying
from tidelog.pipeline.jobs.aggregate import AggregateOptions, aggregate
from tidelog.pipeline.jobs.archive import ArchiveOptions, archive
from tidelog.pipeline.jobs.audit import AuditOptions, audit
from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.records import LakePlace, SegmentsPlace, TopicPlace
from tidelog.pipeline.jobs.replay import ReplayOptions, replay
from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.spark

MINUTE_MS = 60_000
NOON_MS = 1_700_000_040_000  # 2023-11-14T22:14:00Z, the beginning of a minute


def create(topics: Topics, partitions: int = 1) -> str:
    """Records of years ago stay."""
    return topics.create(partitions, retention_ms="-1")


def order(country: str, amount: float) -> bytes:
    return json.dumps({"country": country, "amount": amount}).encode()


def results(spark: Any, topics: Topics, topic: str) -> list[tuple[str, str, int, float]]:
    frame = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    frame = frame.option("kafka.isolation.level", "read_committed").option("subscribe", topic)
    rows = [json.loads(bytes(row.value)) for row in frame.load().collect()]
    return sorted((r["window_start"][11:19], r["country"], r["orders"], r["total"]) for r in rows)


def test_windows_are_aggregated_once_each(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = create(topics, 2), create(topics, 2)
    options = AggregateOptions(
        topics.bootstrap,
        (source,),
        target,
        str(tmp_path / "checkpoint"),
        "country STRING, amount DOUBLE",
        {"orders": "count(*)", "total": "sum(amount)"},
        ("country",),
        watermark="30 seconds",
    )
    for partition, country in enumerate(("NO", "PT")):
        sales = [order(country, 1.5)] * 100 + [b"not json", b'{"amount": "much"}', None]
        topics.fill(source, sales, partition=partition, timestamp_ms=NOON_MS)
    topics.fill(source, [order("NO", 10)], timestamp_ms=NOON_MS + 2 * MINUTE_MS)
    topics.fill(source, [order("PT", 10)], timestamp_ms=NOON_MS + 2 * MINUTE_MS, partition=1)
    summary = aggregate(spark, options)
    first = [("22:14:00", "NO", 100, 150.0), ("22:14:00", "PT", 100, 150.0)]
    assert results(spark, topics, target) == first, "the second window is still open"
    assert summary.records == 208 and summary.facts["windows_written"] == 2
    assert summary.facts["malformed_values"] == 4 and summary.facts["records_without_value"] == 2

    topics.fill(source, [order("NO", 5)], timestamp_ms=NOON_MS + 5 * MINUTE_MS)
    topics.fill(source, [order("NO", 9)], timestamp_ms=NOON_MS)
    aggregate(spark, options)
    second = [("22:16:00", "NO", 1, 10.0), ("22:16:00", "PT", 1, 10.0)]
    assert results(spark, topics, target) == first + second


def test_values_of_another_schema_are_an_error_if_wanted(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    source = create(topics)
    topics.fill(source, [order("NO", 1), b"[1"], timestamp_ms=NOON_MS)
    options = AggregateOptions(
        topics.bootstrap,
        (source,),
        create(topics),
        str(tmp_path / "checkpoint"),
        "country STRING, amount DOUBLE",
        {"total": "sum(amount)"},
        fail_on_malformed=True,
        exactly_once=False,
    )
    with pytest.raises(Exception, match=f"{source}-0, offset 1: the value is not JSON of country"):
        aggregate(spark, options)
    wrong = {
        "cannot be read": replace(options, value_schema="country STRNG"),
        "town is not in the schema": replace(options, group_by=("town",)),
        "'amount' is no TIMESTAMP": replace(options, event_time="amount"),
        "no aggregate is given": replace(options, metrics={}),
        "would have the same name": replace(options, metrics={"window_end": "max(amount)"}),
    }
    for message, one in wrong.items():
        with pytest.raises(WrongJob, match=message):
            aggregate(spark, one)


def test_a_replay_brings_back_what_was_there(
    spark: Any, topics: Topics, cluster: LocalCluster, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    source, target, lake = create(topics, 3), create(topics, 3), tmp_path / "l"
    for partition in range(3):
        values = [f"{partition}-{index}".encode() for index in range(100)]
        topics.fill(source, values, partition=partition, key=b"k", headers=[("h", b"1")],
                    timestamp_ms=NOON_MS)  # fmt: skip
    archive(spark, ArchiveOptions(topics.bootstrap, (source,), str(lake)))
    options = ReplayOptions(
        LakePlace(str(lake), source), topics.bootstrap, target, "again", chunk_records=120
    )
    chunk = replaying._replay_chunk

    def die(*arguments: Any) -> int:
        """Before the second chunk is noted, but after it is written."""
        chunk(*arguments)
        if arguments[3] == 1:
            raise KeyboardInterrupt
        return 120

    with monkeypatch.context() as patch:
        patch.setattr(replaying, "_replay_chunk", die)
        with pytest.raises(KeyboardInterrupt):
            replay(spark, options)
    topics.fill(source, [b"later"], timestamp_ms=NOON_MS)
    summary = replay(spark, options)
    assert summary.facts["chunks_done_before"] == 1 and summary.facts["chunks"] == 2
    assert replay(spark, options).records == 0
    place = TopicPlace(topics.bootstrap, target)
    result = audit(spark, AuditOptions(LakePlace(str(lake), source), place))
    assert result.is_same, result.summary.problems
    assert result.summary.facts["records_on_the_right"] == 300

    wrong = {
        "has 1 partitions and the source has 3": replace(
            options, topic=create(topics), name="narrow"
        ),
        "give this one another name": replace(options, topic=source),
        "needs a folder for its state": replace(
            options, place=TopicPlace(topics.bootstrap, source)
        ),
        "is no name": replace(options, name="a/b"),
    }
    for message, one in wrong.items():
        with pytest.raises(WrongJob, match=message):
            replay(spark, one)


def test_a_replay_of_segments_keeps_to_its_rate(
    spark: Any, topics: Topics, cluster: LocalCluster, tmp_path: Path
) -> None:
    source, target = create(topics, 2), create(topics, 1)
    topics.fill(source, [b"%d" % n for n in range(20)], key=b"k", timestamp_ms=NOON_MS)
    [log_dir] = {path.parent for path in cluster.data_dir.glob(f"node-1/**/{source}-0")}
    now_s, slept = 0.0, []

    def sleep(seconds: float) -> None:
        slept.append(seconds)

    options = ReplayOptions(
        SegmentsPlace(str(log_dir), source), topics.bootstrap, target, "slowly",
        state=str(tmp_path), records_per_second=2, keep_partitions=False, exactly_once=False,
    )  # fmt: skip
    summary = replay(spark, options, monotonic=lambda: now_s, sleep=sleep)
    assert summary.records == 20 and slept == [5.0], "ten records take five seconds"
    rows = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    rows = rows.option("subscribe", target).load().orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"%d" % n for n in range(20)]
