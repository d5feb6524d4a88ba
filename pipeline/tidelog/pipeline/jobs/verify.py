"""A history of a chaos run, too large for one machine's memory, judged in parts.

The judge is a function that is handed in, the same that judges a small history in one go; Spark
cuts the history into parts that can be judged apart (``verify_parts``) and runs it on each. So the
verdict is the same. How far it scales is up to the history: as many parts as there are partitions
if no transaction spans them, one if all hang together.

An operation is a line of JSON, as ``tidelog chaos`` writes them. A line that cannot be read is an
error, unless it is the last: the run was cut off while it wrote.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.summary import Progress, Step, Summary, silently
from tidelog.pipeline.jobs.verify_parts import parts_of
from tidelog.pipeline.positions import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Finding: TypeAlias = tuple[str, str, str, int, int | None]
"""Kind, sentence, topic, partition, offset."""
Judge: TypeAlias = Callable[[Sequence[str], Iterable[str], frozenset[Place] | None], list[Finding]]
"""Of the lines that frame a history (its header, its faults, its end), those of operations in
their order, and the partitions of which records count (None: no operations, only what the frame
says by itself)."""

UNJUDGED: Final = "not judged"
"""The kind of a finding that counts writes nobody looked for; the number is its offset."""
_TOLD_AT_MOST: Final = 100
_ROUTING: Final = (
    "kind STRING, verb STRING, topic STRING, partition INT, key STRING, transaction STRING, "
    "seen ARRAY<ARRAY<STRING>>"
)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    summary: Summary
    findings: tuple[Finding, ...]
    """What must not be; in a fixed order."""


def verify(
    spark: SparkSession,
    history: str,
    judge: Judge,
    *,
    progress: Progress = silently,
    monotonic: Callable[[], float] = time.monotonic,
) -> VerifyResult:
    began_s = monotonic()
    progress(Step("sorting operations"))
    lines = _lines(spark, history)
    frame = _frame(lines, history)
    operations = lines.where("kind = 'operation'").drop("kind").persist()
    try:
        placed = _placed(operations)
        parts = _parts(operations, placed)
        count = operations.count()
        progress(Step(f"judging {count:,} operations in {len(set(parts.values()))} parts"))
        found = _judged(spark, placed, parts, frame, judge)
    finally:
        operations.unpersist()
    found += judge(frame, (), None)
    findings = sorted(
        (one for one in found if one[0] != UNJUDGED),
        key=lambda one: (one[0], one[2], one[3], -1 if one[4] is None else one[4], one[1]),
    )
    kinds = Counter(one[0] for one in findings)
    facts: dict[str, int | float | str | None] = {
        "history": history,
        "parts": len(set(parts.values())),
        "writes_not_judged": sum(one[4] or 0 for one in found if one[0] == UNJUDGED),
        **{kind.replace(" ", "_").replace("-", "_"): kinds[kind] for kind in sorted(kinds)},
    }
    problems = [f"{one[0]}: {one[1]}" for one in findings[:_TOLD_AT_MOST]]
    summary = Summary("verify", count, monotonic() - began_s, facts, tuple(problems))
    return VerifyResult(summary, tuple(findings))


def _lines(spark: SparkSession, history: str) -> DataFrame:
    """Every line, what says where it belongs, and its place in the file."""
    from pyspark.sql import functions as f

    text = spark.read.text(history).where("value != ''")
    return (
        text.select(
            "value",
            f.col("_metadata.file_block_start").alias("block"),
            f.monotonically_increasing_id().alias("row"),
            f.from_json("value", _ROUTING).alias("of"),
        )
        .select("value", "block", "row", "of.*")
        .fillna("", ["topic", "key", "transaction"])
    )


def _frame(lines: DataFrame, history: str) -> list[str]:
    """The header, the faults and the end; raises if the file is no history."""
    from pyspark.sql import functions as f

    order = f.struct("block", "row")
    edges = lines.agg(f.min(order), f.max(order)).first()
    if edges is None or edges[0] is None:
        raise WrongJob(f"{history} is empty: a history begins with a line that says what ran")
    for row in lines.where("kind IS NULL").limit(2).collect():
        if (row.block, row.row) != tuple(edges[1]):
            raise WrongJob(f"{history}: {row.value[:80]!r} is no line of a history")
    rows = lines.where("kind IN ('run', 'fault', 'end')").orderBy("block", "row").collect()
    if not rows or rows[0].kind != "run" or (rows[0].block, rows[0].row) != tuple(edges[0]):
        raise WrongJob(f"{history}: a history begins with a line that says what ran (kind run)")
    if any(row.kind == "run" for row in rows[1:]):
        raise WrongJob(f"{history}: there are two runs in it")
    return [str(row.value) for row in rows]


def _placed(operations: DataFrame) -> DataFrame:
    """Operations by partition: a poll once for each that it got records of.

    An append that was never answered may not know its partition; it goes to that of its key, or to
    the first of its topic.
    """
    from pyspark.sql import functions as f

    keys = _keys(operations).groupBy("topic", "key").agg(f.min("partition").alias("of_key"))
    topics = keys.groupBy("topic").agg(f.min("of_key").alias("of_topic"))
    polls = operations.where("verb = 'poll'").select(
        "*", f.explode(f.array_distinct(f.expr("transform(seen, x -> slice(x, 1, 2))"))).alias("at")
    )
    polls = polls.withColumn("topic", f.col("at")[0])
    polls = polls.withColumn("partition", f.col("at")[1].cast("int")).drop("at")
    others = operations.where("verb NOT IN ('poll', 'end-transaction')")
    lost = others.where("partition IS NULL OR partition < 0").drop("partition")
    found = lost.join(keys, ["topic", "key"], "left").join(topics, ["topic"], "left")
    found = found.withColumn("partition", f.expr("coalesce(of_key, of_topic, 0)"))
    known = others.where("partition >= 0")
    here = known.unionByName(found.drop("of_key", "of_topic")).unionByName(polls)
    ends = operations.where("verb = 'end-transaction'").drop("topic", "partition")
    where = here.where("transaction != ''").select("transaction", "topic", "partition").distinct()
    first = where.groupBy("transaction").agg(f.min(f.struct("topic", "partition")).alias("at"))
    ended = ends.join(first, ["transaction"]).select("*", "at.*").drop("at")
    return here.unionByName(ended).drop("seen")


def _keys(operations: DataFrame) -> DataFrame:
    """Which partitions a key was written to, or seen in."""
    from pyspark.sql import functions as f

    written = operations.where("verb = 'append' AND partition >= 0")
    seen = operations.where("verb = 'poll'").select(f.explode("seen").alias("one"))
    seen = seen.select(
        f.col("one")[0].alias("topic"),
        f.col("one")[3].alias("key"),
        f.col("one")[1].cast("int").alias("partition"),
    )
    return written.select("topic", "key", "partition").unionByName(seen).distinct()


def _parts(operations: DataFrame, placed: DataFrame) -> dict[Place, int]:
    from pyspark.sql import functions as f

    at = f.struct("topic", "partition")
    places = placed.groupBy("topic", "partition").agg(f.max(f.expr("verb = 'append'"))).collect()
    written = [(row[0], row[1]) for row in places if row[2]]
    transactions = placed.where("transaction != ''").groupBy("transaction")
    by_transaction = transactions.agg(f.sort_array(f.collect_set(at)).alias("places"))
    keys = _keys(operations).groupBy("topic", "key")
    by_key = keys.agg(f.sort_array(f.collect_set(at)).alias("places"))
    sets = by_transaction.select("places").unionByName(by_key.select("places"))
    links = sets.where("size(places) > 1").distinct().collect()
    together = [[(one[0], one[1]) for one in row.places] for row in links]
    return parts_of(written, [(row[0], row[1]) for row in places], together)


def _judged(
    spark: SparkSession,
    placed: DataFrame,
    parts: dict[Place, int],
    frame: list[str],
    judge: Judge,
) -> list[Finding]:
    if not parts:
        return []
    rows = [(topic, partition, part) for (topic, partition), part in parts.items()]
    numbers = spark.createDataFrame(rows, "topic STRING, partition INT, part INT")
    cut = placed.select("value", "block", "row", "topic", "partition")
    cut = cut.join(numbers.hint("broadcast"), ["topic", "partition"])
    cut = cut.select("part", "value", "block", "row").dropDuplicates(["part", "block", "row"])
    places: dict[int, frozenset[Place]] = {
        part: frozenset(place for place, number in parts.items() if number == part)
        for part in set(parts.values())
    }

    def judge_parts(rows: Iterator[Any]) -> Iterator[Finding]:
        for part, of_part in groupby(rows, key=lambda row: row.part):
            yield from judge(frame, (row.value for row in of_part), places[part])

    # Through rows and not Arrow, because Spark's grouped functions over Arrow want pandas.
    sorted_parts = cut.repartition("part").sortWithinPartitions("part", "block", "row")
    found: list[Finding] = sorted_parts.rdd.mapPartitions(judge_parts).collect()
    return found
