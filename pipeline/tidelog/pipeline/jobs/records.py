"""Where pipelines read records: a topic, a lake, or log directories; the same columns of each.

A place is written ``orders``, ``orders@host:9092``, ``lake:/lake#orders`` or
``segments:/backup/data#orders``; what is left out is as in the other one that is compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from tidelog.pipeline.cluster import Cluster
from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.lake import Lake
from tidelog.pipeline.positions import EARLIEST, LATEST
from tidelog.pipeline.source_options import BATCH, parse_source_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip

Bounds: TypeAlias = Mapping[int, tuple[int, int]]
"""Offsets ``[start, end)`` of partitions."""


@dataclass(frozen=True, slots=True)
class TopicPlace:
    bootstrap: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of ``format("tidelog")``; records of aborted transactions are left out."""

    def __str__(self) -> str:
        return f"{self.topic}@{self.bootstrap}"

    def given(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            **self.options,
        }


@dataclass(frozen=True, slots=True)
class LakePlace:
    path: str
    topic: str

    def __str__(self) -> str:
        return f"lake:{self.path}#{self.topic}"


@dataclass(frozen=True, slots=True)
class SegmentsPlace:
    path: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"segments:{self.path}#{self.topic}"

    def given(self) -> dict[str, str]:
        own = {"topics": self.topic, "isolationLevel": "read_committed", "includeHeaders": "true"}
        return {**own, **self.options}


Place: TypeAlias = TopicPlace | LakePlace | SegmentsPlace


def parse_place(
    text: str, bootstrap: str, topic: str | None, options: Mapping[str, str] | None = None
) -> Place:
    """``topic`` stands in where a lake or a directory is given without one."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("lake", "segments"):
        name, _, address = text.partition("@")
        if not name:
            raise WrongJob(f"{text!r} names no topic")
        return TopicPlace(address or bootstrap, name, options or {})
    path, _, named = rest.partition("#")
    chosen = named or topic
    if not path or not chosen:
        missing = "topic" if path else "folder"
        raise WrongJob(f"{text!r} names no {missing}; it is written {kind}:FOLDER#TOPIC")
    if kind == "segments":
        return SegmentsPlace(path, chosen, options or {})
    if options:
        raise WrongJob(f"a lake takes no options, and {', '.join(options)} is given")
    return LakePlace(path, chosen)


def extent(spark: SparkSession, place: Place) -> dict[int, tuple[int, int]]:
    """From which offset to which it has each partition."""
    match place:
        case TopicPlace():
            return topic_extent(place)
        case LakePlace():
            state = Lake(spark, place.path).state()
            return {
                partition: (state.starts[topic, partition], end)
                for (topic, partition), end in state.ends.items()
                if topic == place.topic
            }
        case SegmentsPlace():
            return _segments_extent(spark, place)
        case _:
            assert_never(place)


def topic_extent(place: TopicPlace) -> dict[int, tuple[int, int]]:
    options = parse_source_options({**place.given(), "subscribe": place.topic}, BATCH)
    cluster = Cluster(options)
    try:
        places = cluster.places(options.selection, must_exist=True)
        starts = cluster.offsets(dict.fromkeys(places, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(places, LATEST))
    finally:
        cluster.close()
    return {one[1]: (starts[one], ends[one]) for one in sorted(places)}


def _segments_extent(spark: SparkSession, place: SegmentsPlace) -> dict[int, tuple[int, int]]:
    from pyspark.sql import functions as f

    options = {**place.given(), "includeHeaders": "false", "includeValue": "false"}
    frame = spark.read.format("tidelog-segments").options(**options).load(place.path)
    rows = frame.groupBy("partition").agg(f.min("offset"), f.max("offset")).collect()
    return {row[0]: (row[1], row[2] + 1) for row in sorted(rows)}


def read_records(spark: SparkSession, place: Place, bounds: Bounds | None = None) -> DataFrame:
    """``COLUMNS``; only partitions and offsets within ``bounds``, if they are given."""
    match place:
        case TopicPlace():
            frame = _read_topic(spark, place, bounds)
        case LakePlace():
            frame = Lake(spark, place.path).frame(place.topic)
        case SegmentsPlace():
            frame = _read_segments(spark, place, bounds)
        case _:
            assert_never(place)
    frame = frame.select(*COLUMNS)
    return frame if bounds is None else frame.where(within(bounds))


def within(bounds: Bounds) -> Column:
    from pyspark.sql import functions as f

    found = f.lit(False)
    for partition, (start, end) in sorted(bounds.items()):
        offsets = (f.col("offset") >= start) & (f.col("offset") < end)
        found = found | ((f.col("partition") == partition) & offsets)
    return found


def _read_topic(spark: SparkSession, place: TopicPlace, bounds: Bounds | None) -> DataFrame:
    given = place.given()
    if bounds is None:
        given["subscribe"] = place.topic
    elif not bounds:
        given |= {"subscribe": place.topic, "endingTimestamp": "0"}  # nothing is older
    else:
        given["assign"] = json.dumps({place.topic: sorted(bounds)})
        given["startingOffsets"] = _json_offsets(place.topic, bounds, 0)
        given["endingOffsets"] = _json_offsets(place.topic, bounds, 1)
    return spark.read.format("tidelog").options(**given).load()


def _read_segments(spark: SparkSession, place: SegmentsPlace, bounds: Bounds | None) -> DataFrame:
    given = place.given()
    if bounds:
        given["startingOffsets"] = _json_offsets(place.topic, bounds, 0)
        given["endingOffsets"] = _json_offsets(place.topic, bounds, 1)
    return spark.read.format("tidelog-segments").options(**given).load(place.path)


def _json_offsets(topic: str, bounds: Bounds, side: int) -> str:
    return json.dumps({topic: {str(one): bounds[one][side] for one in sorted(bounds)}})
