"""A history of a chaos run, too large for one machine's memory, judged in parts.

The judge is a function that is handed in, the same that judges a small history in one go; Spark
cuts the history into parts that can be judged apart (``verify_parts``) and runs it on each. So the
verdict is the same. How far it scales is up to the history: as many parts as there are partitions
if no transaction spans them, one if all hang together.

What is too large to hold is read again instead: once for the few lines that do not say where they
belong, once for who was where, and once to hand the operations over.

An operation is a line of JSON, as ``tidelog chaos`` writes them. A line that cannot be read is an
error, unless it is the last: the run was cut off while it wrote.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
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
_MOST_PARTITIONS: Final = 1000
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
    progress(Step("reading operations"))
    lines = _lines(spark, history)
    odd = _odd(lines).persist()
    try:
        frame = _frame(lines, odd, history)
        marks = _marks(lines).persist()
        try:
            placed = _placed(odd, marks)
            parts = _parts(placed, marks)
            [[count]] = marks.agg({"operations": "sum"}).collect()
            count = int(count or 0)
            progress(Step(f"judging {count:,} operations in {len(set(parts.values()))} parts"))
            found = _judged(spark, lines, placed, parts, frame, judge)
        finally:
            marks.unpersist()
    finally:
        odd.unpersist()
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


def _odd(lines: DataFrame) -> DataFrame:
    """Lines that do not say which partition they are of, and those that are no operations.

    There are few of them, so that they can be kept while the others are read again.
    """
    return lines.where(
        "kind IS NULL OR kind != 'operation' OR verb = 'end-transaction' OR "
        "(verb != 'poll' AND coalesce(partition, -1) < 0)"
    ).drop("seen")


def _frame(lines: DataFrame, odd: DataFrame, history: str) -> list[str]:
    """The header, the faults and the end; raises if the file is no history."""
    from pyspark.sql import functions as f

    first = lines.select("value").first()
    if first is None:
        raise WrongJob(f"{history} is empty: a history begins with a line that says what ran")
    unread = odd.where("kind IS NULL").orderBy("block", "row").limit(2).collect()
    if unread:
        last = lines.select("block", "row").agg(f.max(f.struct("block", "row"))).first()
        assert last is not None
        if (unread[0].block, unread[0].row) != tuple(last[0]):
            raise WrongJob(f"{history}: {unread[0].value[:80]!r} is no line of a history")
    rows = odd.where("kind IN ('run', 'fault', 'end')").orderBy("block", "row").collect()
    if not rows or rows[0].kind != "run" or rows[0].value != first.value:
        raise WrongJob(f"{history}: a history begins with a line that says what ran (kind run)")
    if any(row.kind == "run" for row in rows[1:]):
        raise WrongJob(f"{history}: there are two runs in it")
    return [str(row.value) for row in rows]


def _marks(lines: DataFrame) -> DataFrame:
    """Who was where, each once: keys, transactions, and those who did something else there.

    A key is where it was written to or seen. ``is_write`` says whether anybody wrote to the
    partition then, and ``operations`` counts each operation at one of its marks.
    """
    from pyspark.sql import functions as f

    def mark(kind: str, name: str, topic: str, partition: str, count: str, write: str = "") -> str:
        return (
            f"named_struct('mark', '{kind}', 'name', {name}, 'topic', {topic}, 'partition', "
            f"{partition}, 'is_write', {write or 'false'}, 'operations', {count})"
        )

    def in_transaction(marks: str) -> str:
        nowhere = mark("", "''", "''", "0", "0L")
        return f"IF(transaction = '', slice(array({nowhere}), 1, 0), {marks})"

    seen = mark("key", "x[3]", "x[0]", "int(x[1])", "IF(i = 0, 1L, 0L)")
    seen_in = mark("transaction", "transaction", "x[0]", "int(x[1])", "0L")
    did_in = mark("transaction", "transaction", "topic", "partition", "0L")
    did = mark("other", "''", "topic", "partition", "1L")
    wrote = mark("key", "key", "topic", "partition", "1L", "true")
    marks = f"""CASE
        WHEN verb = 'poll' AND size(seen) > 0 THEN concat(
            transform(seen, (x, i) -> {seen}),
            {in_transaction(f"transform(seen, x -> {seen_in})")})
        WHEN verb IN ('poll', 'end-transaction') OR coalesce(partition, -1) < 0 THEN
            array({mark("nowhere", "''", "''", "0", "1L")})
        ELSE concat(
            array(IF(verb = 'append', {wrote}, {did})),
            {in_transaction(f"array({did_in})")})
        END"""
    exploded = lines.where("kind = 'operation'").select(f.explode(f.expr(marks)).alias("one"))
    groups = exploded.select("one.*").groupBy("mark", "name", "topic", "partition")
    return groups.agg(f.max("is_write").alias("is_write"), f.sum("operations").alias("operations"))


def _placed(odd: DataFrame, marks: DataFrame) -> DataFrame:
    """The operations that do not say which partition they are of, and where they are judged.

    An append that was never answered goes to the partition of its key, or to the first of its
    topic; the end of a transaction to the first of its partitions.
    """
    from pyspark.sql import functions as f

    keys = marks.where("mark = 'key'").groupBy("topic", f.col("name").alias("key"))
    keys = keys.agg(f.min("partition").alias("of_key"))
    topics = marks.where("mark = 'key'").groupBy("topic").agg(f.min("partition").alias("of_topic"))
    operations = odd.where("kind = 'operation'").drop("partition", "kind")
    lost = operations.where("verb != 'end-transaction'")
    found = lost.join(keys, ["topic", "key"], "left").join(topics, ["topic"], "left")
    found = found.withColumn("partition", f.expr("coalesce(of_key, of_topic, 0)"))
    found = found.drop("of_key", "of_topic")
    where = _transactions(found, marks).groupBy("transaction")
    first = where.agg(f.min(f.struct("topic", "partition")).alias("at"))
    ends = operations.where("verb = 'end-transaction'").drop("topic")
    ended = ends.join(first, ["transaction"]).select("*", "at.*").drop("at")
    return found.unionByName(ended)


def _transactions(placed: DataFrame, marks: DataFrame) -> DataFrame:
    """Which partitions each had a part in."""
    known = marks.where("mark = 'transaction'").withColumnRenamed("name", "transaction")
    columns = ("transaction", "topic", "partition")
    return known.select(*columns).union(placed.where("transaction != ''").select(*columns))


def _parts(placed: DataFrame, marks: DataFrame) -> dict[Place, int]:
    from pyspark.sql import functions as f

    at = f.struct("topic", "partition")
    appended = placed.select("topic", "partition", f.expr("verb = 'append'").alias("is_write"))
    everywhere = marks.where("mark != 'nowhere'").select("topic", "partition", "is_write")
    everywhere = everywhere.unionByName(appended)
    places = everywhere.groupBy("topic", "partition").agg(f.max("is_write")).collect()
    written = [(row[0], row[1]) for row in places if row[2]]
    by_transaction = _transactions(placed, marks).groupBy("transaction")
    by_key = marks.where("mark = 'key'").groupBy("topic", "name")
    sets = [
        one.agg(f.sort_array(f.collect_set(at)).alias("places")).where("size(places) > 1")
        for one in (by_transaction, by_key)
    ]
    links = sets[0].select("places").unionByName(sets[1].select("places")).distinct().collect()
    together = [[(one[0], one[1]) for one in row.places] for row in links]
    return parts_of(written, [(row[0], row[1]) for row in places], together)


def _judged(
    spark: SparkSession,
    lines: DataFrame,
    placed: DataFrame,
    parts: dict[Place, int],
    frame: list[str],
    judge: Judge,
) -> list[Finding]:
    from pyspark.sql import functions as f

    if not parts:
        return []
    rows = [(topic, partition, part) for (topic, partition), part in parts.items()]
    numbers = spark.createDataFrame(rows, "topic STRING, partition INT, part INT")
    at = """IF(verb = 'poll',
        array_distinct(transform(seen, x ->
            named_struct('topic', x[0], 'partition', int(x[1])))),
        array(named_struct('topic', topic, 'partition', partition)))"""
    known = lines.where(
        "kind = 'operation' AND (verb = 'poll' OR (verb != 'end-transaction' AND partition >= 0))"
    )
    known = known.select("value", "block", "row", f.explode(f.expr(at)).alias("at"))
    known = known.select("value", "block", "row", "at.*")
    everything = known.unionByName(placed.select("value", "block", "row", "topic", "partition"))
    cut = everything.join(numbers.hint("broadcast"), ["topic", "partition"])
    # A partition for each part, because what is sorted and held at once should be small.
    wide = min(len(set(parts.values())), _MOST_PARTITIONS)
    cut = cut.select("part", "block", "row", "value").repartition(wide, "part")
    cut = cut.sortWithinPartitions("part", "block", "row")
    places: dict[int, frozenset[Place]] = {
        part: frozenset(place for place, number in parts.items() if number == part)
        for part in set(parts.values())
    }

    def judge_parts(rows: Iterator[Any]) -> Iterator[Finding]:
        with _without_collecting():
            for part, of_part in groupby(_once(rows), key=itemgetter(0)):
                yield from judge(frame, (row[3] for row in of_part), places[part])
                gc.collect()

    # Through rows and not Arrow, because Spark's functions over Arrow want pandas.
    found: list[Finding] = cut.rdd.mapPartitions(judge_parts).collect()
    return found


@contextmanager
def _without_collecting() -> Iterator[None]:
    """All that is made of a part is needed until it is judged. To look through it for garbage while
    it grows would take a quarter of the time again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _once(rows: Iterator[Any]) -> Iterator[Any]:
    """A poll is there for every partition of the part that it saw, one behind the other."""
    last: tuple[int, int, int] | None = None
    for row in rows:
        place = row[0], row[1], row[2]
        if place != last:
            last = place
            yield row
