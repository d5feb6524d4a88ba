"""A lake on disk: Parquet by topic, partition and date, and beside it the log of commits.

    LAKE/topic=orders/partition=0/date=2025-06-01/000000000000-00000.snappy.parquet
    LAKE/_tidelog/commits/00000000000000000000.json

Other programs read it as any partitioned Parquet; folders that begin with ``_`` are not data.
What is decided and why it is exactly once is in ``lake_log``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tidelog.pipeline.jobs.failures import ConcurrentWriter, LakeDamaged, SchemaDrift
from tidelog.pipeline.jobs.lake_files import LakeFiles
from tidelog.pipeline.jobs.lake_log import (
    ABOUT,
    COMMITS,
    SCHEMA,
    STAGING,
    Commit,
    LakeFile,
    LakeState,
    about,
    check_about,
    commit_name,
    fold,
    read_commit,
    staged_file,
    write_commit,
)
from tidelog.pipeline.planner import OffsetRange, dashed
from tidelog.pipeline.positions import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COMMIT: Final = re.compile(r"\d{20}\.json")
_ABANDONED_S: Final = 24 * 3600.0
"""A staging folder this old belongs to nobody any more."""


class Lake:
    """Owner: one job. Other jobs may archive other partitions into the same lake meanwhile."""

    def __init__(self, spark: SparkSession, path: str, *, create: bool = False) -> None:
        self._spark = spark
        self.files = LakeFiles(spark, path)
        self._commits: list[Commit] = []
        if create:
            self._create()
        if not self.files.exists(ABOUT):
            raise LakeDamaged(f"{path} is no lake: it has no {ABOUT}; tidelog pipeline archive")
        check_about(self.files.read_text(ABOUT), self.files.uri(ABOUT))
        self._finish(self.state().last)

    def _create(self) -> None:
        if self.files.exists(ABOUT):
            return
        if others := [name for name in self.files.names("") if not name.startswith((".", "_"))]:
            raise LakeDamaged(
                f"{self.files.root} is no lake and not empty ({others[0]}); "
                "give a folder of its own"
            )
        self.files.create_text(ABOUT, about())

    def state(self) -> LakeState:
        """As it is now; commits never change, so each is read once."""
        names = [name for name in self.files.names(COMMITS) if _COMMIT.fullmatch(name)]
        for name in names[len(self._commits) :]:
            path = f"{COMMITS}/{name}"
            self._commits.append(read_commit(self.files.read_text(path), self.files.uri(path)))
        return fold(self._commits)

    # --- writing -----------------------------------------------------------------------

    def new_staging(self) -> str:
        return f"{STAGING}/{uuid4().hex}"

    def commit(
        self,
        staging: str,
        starts: Offsets,
        ends: Offsets,
        lost: tuple[OffsetRange, ...],
        now_ms: int,
    ) -> Commit:
        """What was written to ``staging`` is in the lake afterwards, once and for good."""
        sizes = self.files.sizes_below(staging, ".parquet")
        counted = self._counted(staging, sizes)
        while True:
            state = self.state()
            self._refuse_if_moved(state, starts, lost)
            files = tuple(
                staged_file(staging, path, index, state.next_version, size, *counted[path])
                for index, (path, size) in enumerate(sizes.items())
                if path in counted
            )
            commit = Commit(state.next_version, now_ms, starts, ends, files, lost)
            if self.files.create_text(commit_name(commit.version), write_commit(commit)):
                self._finish(commit)
                self.files.delete(staging)
                return commit

    def _counted(self, staging: str, sizes: dict[str, int]) -> dict[str, tuple[int, Any]]:
        """Rows, and first and last offset, by file; read from what lies on disk."""
        if not sizes:
            return {}
        from pyspark.sql import functions as f

        base = self.files.uri(staging)
        rows = (
            self._spark.read.schema(SCHEMA)
            .parquet(base)
            .groupBy(f.col("_metadata.file_path").alias("file"))
            .agg(f.count("*"), f.min("offset"), f.max("offset"))
            .collect()
        )
        marker = f"{staging}/"
        return {row[0].partition(marker)[2]: (row[1], (row[2], row[3])) for row in rows}

    def _refuse_if_moved(
        self, state: LakeState, starts: Offsets, lost: tuple[OffsetRange, ...]
    ) -> None:
        gaps = {(one.topic, one.partition): one.start for one in lost}
        for place, start in starts.items():
            begin = gaps.get(place, start)
            if state.ends.get(place, begin) != begin:
                raise ConcurrentWriter(
                    f"{dashed(place)} was archived up to {state.ends[place]} by somebody else "
                    f"while this job archived it from {begin} on; one job per topic and lake"
                )

    def _finish(self, commit: Commit | None) -> None:
        """Move what a commit decided; again, if somebody died in between."""
        for one in () if commit is None else commit.files:
            self.files.move(one.staged, one.path)

    def sweep(self, now_ms: int) -> int:
        """Remove what dead jobs left in staging folders; how many."""
        abandoned = [
            f"{STAGING}/{name}"
            for name in self.files.names(STAGING)
            if self.files.age_s(f"{STAGING}/{name}", now_ms) > _ABANDONED_S
        ]
        for path in abandoned:
            self.files.delete(path)
        return len(abandoned)

    # --- reading -----------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.state().ends})

    def files_of(self, topic: str) -> tuple[LakeFile, ...]:
        state = self.state()
        if not any(place[0] == topic for place in state.ends):
            known = ", ".join(self.topics()) or "none"
            raise LakeDamaged(f"topic {topic!r} is not in {self.files.root}; there are: {known}")
        return tuple(one for one in state.files if one.topic == topic)

    def strangers(self, topic: str) -> list[str]:
        """Files among the data that no commit names; other readers would take them for data."""
        known = {one.path for one in self.files_of(topic)}
        found = self.files.sizes_below(f"topic={topic}", ".parquet")
        return [f"topic={topic}/{path}" for path in found if f"topic={topic}/{path}" not in known]

    def frame(self, topic: str) -> DataFrame:
        """All records of a topic, in the columns of the lake."""
        files = self.files_of(topic)
        self._refuse_altered(topic, files)
        if not files:
            return self._spark.createDataFrame([], SCHEMA)
        paths = [self.files.uri(one.path) for one in files]
        reader = self._spark.read.schema(SCHEMA).option("basePath", self.files.root)
        return reader.parquet(*paths)

    def _refuse_altered(self, topic: str, files: tuple[LakeFile, ...]) -> None:
        found = self.files.sizes_below(f"topic={topic}", ".parquet")
        for one in files:
            size = found.get(one.path.removeprefix(f"topic={topic}/"))
            if size is None:
                raise LakeDamaged(f"{self.files.uri(one.path)} is not there any more")
            if size != one.size:
                self._refuse_drift(one)
                raise LakeDamaged(
                    f"{self.files.uri(one.path)} has {size} bytes and was written with {one.size}"
                )

    def _refuse_drift(self, one: LakeFile) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            columns = self._spark.read.parquet(self.files.uri(one.path)).schema
        except (PySparkException, Py4JJavaError):
            return  # no Parquet any more; its size says that it is another file
        wanted = StructType.fromDDL(SCHEMA)
        data = {f.name: f.dataType for f in wanted if f.name not in ("topic", "partition", "date")}
        there = {field.name: field.dataType for field in columns}
        wrong = [
            f"{name} is {there[name].simpleString()}" if name in there else f"{name} is missing"
            for name in data
            if there.get(name) != data[name]
        ]
        wrong += [f"{name} is new" for name in there if name not in data]
        if wrong:
            raise SchemaDrift(
                f"{self.files.uri(one.path)} was altered: {', '.join(wrong)}; "
                f"the lake's schema is {SCHEMA}"
            )
