"""``archive``, ``snapshot`` and ``audit`` against a cluster of three nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from spark_topics import Topics

from tidelog.pipeline.errors import DataLoss
from tidelog.pipeline.jobs.archive import ArchiveOptions, archive
from tidelog.pipeline.jobs.audit import AuditOptions, audit
from tidelog.pipeline.jobs.failures import ConcurrentWriter, LakeDamaged, SchemaDrift, WrongJob
from tidelog.pipeline.jobs.lake import Lake
from tidelog.pipeline.jobs.lake_files import LakeFiles
from tidelog.pipeline.jobs.records import LakePlace, SegmentsPlace, TopicPlace
from tidelog.pipeline.jobs.snapshot import SnapshotOptions, snapshot
from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
NOON_MS = 19_500 * DAY_MS + DAY_MS // 2


def create(topics: Topics, partitions: int = 1) -> str:
    """Records of years ago stay."""
    return topics.create(partitions, retention_ms="-1")


def numbered(count: int, prefix: str = "v") -> list[bytes]:
    return [f"{prefix}{index}".encode() for index in range(count)]


def options_for(topics: Topics, lake: Path, *names: str, **more: Any) -> ArchiveOptions:
    return ArchiveOptions(topics.bootstrap, names, str(lake), **more)


def lake_values(spark: Any, lake: Path, topic: str) -> list[tuple[int, int, bytes]]:
    """As a program sees them that knows nothing of commits."""
    rows = spark.read.parquet(str(lake)).where(f"topic = '{topic}'").collect()
    return sorted((row.partition, row.offset, bytes(row.value)) for row in rows)


def test_an_archive_has_every_record_once_and_goes_on_where_it_ended(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic, lake = create(topics, 2), tmp_path / "lake"
    topics.fill(topic, numbered(300), timestamp_ms=NOON_MS, headers=[("h", b"1"), ("n", None)])
    topics.fill(topic, numbered(50, "next"), timestamp_ms=NOON_MS + DAY_MS, key=b"k")
    topics.fill(topic, numbered(100, "other"), partition=1, timestamp_ms=NOON_MS)
    options = options_for(topics, lake, topic, max_records_per_batch=200, max_records_per_file=120)
    summary = archive(spark, options)
    assert summary.records == 450 and summary.facts["batches"] == 3
    assert archive(spark, options).records == 0
    topics.fill(topic, numbered(7, "later"), timestamp_ms=NOON_MS + DAY_MS)
    assert archive(spark, options).records == 7

    wanted = [(0, n, v) for n, v in enumerate(
        numbered(300) + numbered(50, "next") + numbered(7, "later"))]  # fmt: skip
    wanted += [(1, n, v) for n, v in enumerate(numbered(100, "other"))]
    assert lake_values(spark, lake, topic) == wanted
    files = sorted(path.relative_to(lake).parts for path in lake.glob("topic=*/**/*.parquet"))
    assert {parts[:3] for parts in files} == {
        (f"topic={topic}", "partition=0", "date=2023-05-23"),
        (f"topic={topic}", "partition=0", "date=2023-05-24"),
        (f"topic={topic}", "partition=1", "date=2023-05-23"),
    }
    state = Lake(spark, str(lake)).state()
    assert max(one.rows for one in state.files) <= 120
    assert state.ends == {(topic, 0): 357, (topic, 1): 100}
    [row] = Lake(spark, str(lake)).frame(topic).where("partition = 0 AND offset = 0").collect()
    assert [tuple(header) for header in row.headers] == [("h", bytearray(b"1")), ("n", None)]
    assert not list((lake / "_tidelog/staging").glob("*"))


def test_a_job_that_dies_after_its_decision_is_finished_by_the_next(
    spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, lake = create(topics, 2), tmp_path / "lake"
    topics.fill(topic, numbered(50))
    topics.fill(topic, numbered(50, "p"), partition=1)
    options = options_for(topics, lake, topic)

    def die(self: LakeFiles, source: str, target: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LakeFiles, "move", die)
        with pytest.raises(KeyboardInterrupt):
            archive(spark, options)
    assert not list(lake.glob("topic=*"))
    assert archive(spark, options).records == 0
    assert len(lake_values(spark, lake, topic)) == 100


def test_a_job_that_dies_before_its_decision_leaves_nothing(
    spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, lake = create(topics), tmp_path / "lake"
    topics.fill(topic, numbered(50))
    options = options_for(topics, lake, topic)

    def die(self: Lake, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            archive(spark, options)
    assert archive(spark, options).records == 50
    assert len(lake_values(spark, lake, topic)) == 50


def test_of_two_jobs_for_the_same_topic_one_is_told(
    spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other, lake = create(topics), create(topics), tmp_path / "lake"
    topics.fill(topic, numbered(50))
    topics.fill(other, numbered(20))
    options = options_for(topics, lake, topic)
    commit = Lake.commit

    def overtaken(by: ArchiveOptions) -> Any:
        def late(self: Lake, *arguments: Any) -> Any:
            monkeypatch.setattr(Lake, "commit", commit)
            archive(spark, by)
            return commit(self, *arguments)

        return late

    monkeypatch.setattr(Lake, "commit", overtaken(options))
    with pytest.raises(ConcurrentWriter, match=f"{topic}-0 was archived up to 50 by somebody else"):
        archive(spark, options)
    topics.fill(topic, numbered(5, "more"))
    monkeypatch.setattr(Lake, "commit", overtaken(replace(options, topics=(other,))))
    assert archive(spark, options).records == 5, "another topic's job is no rival"
    assert len(lake_values(spark, lake, topic)) == 55
    assert len(lake_values(spark, lake, other)) == 20


def test_aborted_records_stay_out_of_the_archive(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic, lake = create(topics), tmp_path / "lake"
    topics.transaction(topic, numbered(5, "aborted"), commit=False)
    options = options_for(topics, lake, topic)
    assert archive(spark, options).records == 0
    topics.transaction(topic, numbered(5, "committed"), commit=True)
    assert archive(spark, options).records == 5
    place = TopicPlace(topics.bootstrap, topic)
    result = audit(spark, AuditOptions(place, LakePlace(str(lake), topic)))
    assert result.is_same, result.summary.problems


def test_retention_that_passes_the_archive_is_an_error_or_a_gap_that_is_kept(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic, lake = create(topics), tmp_path / "lake"
    topics.fill(topic, numbered(10))
    options = options_for(topics, lake, topic)
    archive(spark, options)
    topics.fill(topic, numbered(20, "more"))
    topics.delete_records(topic, 15)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 10 to 14 were removed"):
        archive(spark, options)
    summary = archive(spark, replace(options, fail_on_data_loss=False))
    assert summary.records == 15 and summary.facts["lost_offsets"] == 5
    assert [(one.start, one.end) for one in Lake(spark, str(lake)).state().lost] == [(10, 15)]
    topics.delete(topic)
    with pytest.raises(Exception, match=f"topic '{topic}' does not exist"):
        archive(spark, options)


def test_a_lake_that_was_altered_is_told(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topic, lake = create(topics), tmp_path / "lake"
    topics.fill(topic, numbered(10))
    archive(spark, options_for(topics, lake, topic))
    [file] = lake.glob("topic=*/**/*.parquet")
    here, there = TopicPlace(topics.bootstrap, topic), LakePlace(str(lake), topic)

    stranger = file.with_name("stranger.parquet")
    stranger.write_bytes(file.read_bytes())
    result = audit(spark, AuditOptions(here, there))
    assert "belongs to no commit" in result.summary.problems[0]
    stranger.unlink()
    assert audit(spark, AuditOptions(here, there)).is_same

    other = tmp_path / "other"
    spark.range(10).selectExpr("cast(id as string) as offset", "id as extra").coalesce(
        1
    ).write.parquet(str(other))
    [drifted] = other.glob("*.parquet")
    with pytest.raises(LakeDamaged, match=r"topic .nobody. is not in .*there are: "):
        audit(spark, AuditOptions(here, LakePlace(str(lake), "nobody"), by_offset=True))
    content = file.read_bytes()
    (file.parent / f".{file.name}.crc").unlink()
    file.write_bytes(drifted.read_bytes())
    with pytest.raises(SchemaDrift, match=r"key is missing.* offset is string.* extra is new"):
        audit(spark, AuditOptions(here, there))
    file.write_bytes(content + b"more")
    with pytest.raises(LakeDamaged, match="was written with"):
        audit(spark, AuditOptions(here, there))
    file.unlink()
    with pytest.raises(LakeDamaged, match="is not there any more"):
        audit(spark, AuditOptions(here, there))
    with pytest.raises(LakeDamaged, match="is no lake: it has no"):
        audit(spark, AuditOptions(here, LakePlace(str(tmp_path), topic)))
    with pytest.raises(LakeDamaged, match="is no lake and not empty"):
        archive(spark, options_for(topics, other, topic))


def test_a_snapshot_is_what_compaction_would_leave(
    spark: Any, topics: Topics, cluster: LocalCluster, tmp_path: Path
) -> None:
    topic, output = create(topics, 2), tmp_path / "snapshot"
    model: dict[bytes, bytes | None] = {}
    settings: Any = {"bootstrap.servers": topics.bootstrap, "enable.idempotence": True}
    producer = Producer(settings)
    for round_number in range(3):
        for key in range(20):
            name = f"k{key}".encode()
            value = None if (key + round_number) % 7 == 0 else f"{round_number}-{key}".encode()
            model[name] = value
            # Older times in later rounds: within a partition only the offset counts.
            producer.produce(topic, value, name, key % 2, timestamp=NOON_MS - round_number)
    producer.produce(topic, b"no key", partition=0)
    assert producer.flush(30) == 0
    wanted = {key: value for key, value in model.items() if value is not None}

    place = TopicPlace(topics.bootstrap, topic)
    summary = snapshot(spark, SnapshotOptions(place, str(output), files=1))
    rows = spark.read.parquet(str(output)).collect()
    assert {bytes(row.key): bytes(row.value) for row in rows} == wanted
    assert len(rows) == len(wanted)
    assert summary.records == 61 and summary.facts["records_without_key"] == 1
    assert summary.facts["deleted_keys"] == 20 - len(wanted)
    with pytest.raises(WrongJob, match="is there already"):
        snapshot(spark, SnapshotOptions(place, str(output)))

    [log_dir] = {path.parent for path in cluster.data_dir.glob(f"node-1/**/{topic}-0")}
    files = SegmentsPlace(str(log_dir), topic)
    again = snapshot(spark, SnapshotOptions(files, str(output), overwrite=True))
    assert again.facts == summary.facts


def test_an_audit_tells_what_differs(spark: Any, topics: Topics, tmp_path: Path) -> None:
    left, right = create(topics, 2), create(topics, 2)
    for topic in (left, right):
        topics.fill(topic, numbered(50), timestamp_ms=NOON_MS)
        topics.fill(topic, numbered(10, "p"), partition=1, timestamp_ms=NOON_MS)
    here, there = TopicPlace(topics.bootstrap, left), TopicPlace(topics.bootstrap, right)
    same = audit(spark, AuditOptions(here, there))
    assert same.is_same and same.summary.facts["records_on_the_left"] == 60

    topics.fill(left, [b"", b"x", b"b", b"b"], timestamp_ms=NOON_MS + DAY_MS)
    topics.fill(right, [None, b"x", b"a"], timestamp_ms=NOON_MS + DAY_MS)
    by_content = audit(spark, AuditOptions(here, there))
    assert by_content.summary.problems == (
        "partition 0, 2023-05-24: 4 records on the left and 3 on the right",
    )
    by_offset = audit(spark, AuditOptions(here, there, by_offset=True))
    assert by_offset.summary.problems == (
        "partition 0, 2023-05-24: the same number of records, but not the same records",
        "partition 0, offset 50: not the same record",
        "partition 0, offset 52: not the same record",
    ), "only what both should have is compared"
    with pytest.raises(WrongJob, match="both sides are"):
        audit(spark, AuditOptions(here, here))


def test_duplicates_in_a_lake_are_told(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topic, lake = create(topics), tmp_path / "lake"
    topics.fill(topic, numbered(10), timestamp_ms=NOON_MS)
    archive(spark, options_for(topics, lake, topic))
    # As if somebody had forged the log of commits: the same file twice.
    [commit] = (lake / "_tidelog/commits").glob("*.json")
    document = json.loads(commit.read_text())
    [file] = document["files"]
    twin = str(Path(file["path"]).with_name("twin.parquet"))
    (lake / twin).write_bytes((lake / file["path"]).read_bytes())
    document["files"].append({**file, "path": twin})
    commit.unlink()
    commit.write_text(json.dumps(document))
    (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
    here = TopicPlace(topics.bootstrap, topic)
    result = audit(spark, AuditOptions(here, LakePlace(str(lake), topic)))
    assert "10 duplicates on the right" in result.summary.problems[0]
    assert "offset 0: 1 times on the left, 2 times on the right" in result.summary.problems[1]
