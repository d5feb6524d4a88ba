"""What pipelines decide before they do anything: no Spark is needed here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.errors import DataLoss
from tidelog.pipeline.jobs.archive_plan import plan_batch
from tidelog.pipeline.jobs.audit_verdict import Digest, common_extent, compare, described
from tidelog.pipeline.jobs.failures import LakeDamaged, WrongJob, told_by
from tidelog.pipeline.jobs.lake_log import (
    Commit,
    about,
    check_about,
    fold,
    read_commit,
    staged_file,
    write_commit,
)
from tidelog.pipeline.jobs.records import LakePlace, SegmentsPlace, TopicPlace, parse_place
from tidelog.pipeline.jobs.replay_plan import pause_s, plan_replay, read_plan, write_plan
from tidelog.pipeline.jobs.summary import Summary
from tidelog.pipeline.jobs.verify_parts import parts_of
from tidelog.pipeline.planner import OffsetRange

T0, T1 = ("t", 0), ("t", 1)

# --- the log of a lake -----------------------------------------------------------------------


def a_file(version: int, rows: int = 5) -> Any:
    path = "topic=t/partition=0/date=2025-06-01/part-00000-abc.c000.snappy.parquet"
    return staged_file("_tidelog/staging/x", path, 0, version, 100, rows, (0, rows - 1))


def test_a_file_is_named_after_its_commit() -> None:
    one = a_file(7)
    assert one.path == "topic=t/partition=0/date=2025-06-01/000000000007-00000.snappy.parquet"
    assert (one.topic, one.partition, one.date) == ("t", 0, "2025-06-01")
    with pytest.raises(LakeDamaged, match="not in a folder of topic, partition and date"):
        staged_file("x", "part-1.parquet", 0, 0, 1, 1, (0, 0))


def test_a_commit_reads_as_it_was_written() -> None:
    lost = (OffsetRange("t", 1, 3, 5),)
    commit = Commit(0, 123, {T0: 0, T1: 5}, {T0: 5, T1: 9}, (a_file(0),), lost)
    assert read_commit(write_commit(commit), "here") == commit
    for text in ("", "{}", "[]", '{"version": "x"}', write_commit(commit)[:50]):
        with pytest.raises(LakeDamaged, match="here is no commit"):
            read_commit(text, "here")


def test_commits_fold_to_what_the_lake_has() -> None:
    first = Commit(0, 0, {T0: 3}, {T0: 8}, (a_file(0),))
    second = Commit(1, 0, {T0: 8, T1: 0}, {T0: 9, T1: 4}, (a_file(1),))
    gap = Commit(2, 0, {T0: 12}, {T0: 15}, (), (OffsetRange("t", 0, 9, 12),))
    state = fold([first, second, gap])
    assert state.starts == {T0: 3, T1: 0} and state.ends == {T0: 15, T1: 4}
    assert state.next_version == 3 and len(state.files) == 2 and state.lost == gap.lost
    with pytest.raises(LakeDamaged, match="commit 1 is missing"):
        fold([first, replace(second, version=2)])
    for start in (7, 9):  # twice, and not at all
        with pytest.raises(LakeDamaged, match=f"starts t-0 at {start}, and those before end at 8"):
            fold([first, replace(second, starts={T0: start})])


def test_a_lake_of_another_make_is_refused() -> None:
    check_about(about(), "here")
    for text in ("", '{"format": 2}', '{"format": 1, "schema": "x INT"}'):
        with pytest.raises(LakeDamaged, match="here: "):
            check_about(text, "here")


# --- archiving -------------------------------------------------------------------------------


def test_a_batch_goes_on_where_the_lake_ends() -> None:
    earliest, latest = {T0: 0, T1: 2}, {T0: 10, T1: 12}
    plan = plan_batch({T0: 4, ("other", 0): 9}, earliest, latest, 100, fail_on_data_loss=True)
    assert (plan.begin, plan.end, plan.size) == ({T0: 4, T1: 2}, {T0: 10, T1: 12}, 16)
    done = plan_batch(latest, earliest, latest, 100, fail_on_data_loss=True)
    assert (done.begin, done.size, done.waiting) == ({}, 0, 0)


def test_what_was_lost_is_told_or_noted() -> None:
    removed = ({T0: 4}, {T0: 6}, {T0: 10}, 100)
    with pytest.raises(DataLoss, match="t-0: offsets 4 to 5 were removed"):
        plan_batch(*removed, fail_on_data_loss=True)
    plan = plan_batch(*removed, fail_on_data_loss=False)
    assert plan.begin == {T0: 6} and plan.lost == (OffsetRange("t", 0, 4, 6),)
    shorter = ({T0: 8}, {T0: 0}, {T0: 5}, 100)
    with pytest.raises(DataLoss, match="was the topic made anew"):
        plan_batch(*shorter, fail_on_data_loss=True)
    assert plan_batch(*shorter, fail_on_data_loss=False).size == 0, "offsets would be there twice"


@settings(derandomize=True, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_batches_cover_everything_once(logs: list[tuple[int, int]], limit: int) -> None:
    earliest = {("t", p): start for p, (start, _) in enumerate(logs)}
    latest = {("t", p): start + size for p, (start, size) in enumerate(logs)}
    commits: list[Commit] = []
    while True:
        ends = fold(commits).ends
        plan = plan_batch(ends, earliest, latest, limit, fail_on_data_loss=True)
        if plan.size == 0:
            break
        assert plan.size <= limit + len(logs)
        commits.append(Commit(len(commits), 0, plan.begin, plan.end, ()))
    state = fold(commits)  # which raises unless the ranges join
    filled = {place for place in latest if latest[place] > earliest[place]}
    assert state.ends == {place: latest[place] for place in filled}
    assert state.starts == {place: earliest[place] for place in filled}


# --- replays ---------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=100)
@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 80)), max_size=5
    ),
    st.integers(1, 60),
)
def test_chunks_cover_everything_once(sizes: dict[int, tuple[int, int]], chunk: int) -> None:
    extent = {partition: (start, start + size) for partition, (start, size) in sizes.items()}
    plan = plan_replay("a", "b", extent, chunk, None)
    assert read_plan(write_plan(plan), "n", "a", "b") == plan
    seen: dict[int, list[int]] = {partition: [] for partition in extent}
    for number in range(plan.chunks):
        bounds = plan.chunk(number)
        assert sum(end - start for start, end in bounds.values()) <= max(chunk, len(extent))
        for partition, (start, end) in bounds.items():
            seen[partition] += range(start, end)
    assert seen == {partition: list(range(*of)) for partition, of in extent.items()}


def test_a_name_stands_for_one_replay() -> None:
    text = write_plan(plan_replay("lake:a#t", "t@x:1", {0: (0, 5)}, 10, None))
    with pytest.raises(WrongJob, match="was begun from lake:a#t to t@x:1"):
        read_plan(text, "n", "lake:b#t", "t@x:1")
    with pytest.raises(WrongJob, match="plan of replay 'n' cannot be read"):
        read_plan("{}", "n", "a", "b")


def test_a_rate_makes_small_chunks_and_pauses() -> None:
    assert plan_replay("a", "b", {0: (0, 10_000), 1: (0, 10)}, 10_000, 100).step == 250
    assert pause_s(1000, 100, 4.0) == 6.0
    assert pause_s(1000, 100, 40.0) == pause_s(1000, None, 0.0) == 0.0


# --- audits ----------------------------------------------------------------------------------

DIGEST = Digest(10, 0, 0, 9, (1, 2))


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        (DIGEST, DIGEST, ""),
        (DIGEST, None, "10 records are missing on the right"),
        (None, DIGEST, "10 records are missing on the left"),
        (DIGEST, replace(DIGEST, records=9), "10 records on the left and 9 on the right"),
        (DIGEST, replace(DIGEST, checksum=(1, 3)), "the same number of records, but not the same"),
        (replace(DIGEST, duplicates=2), replace(DIGEST, duplicates=2), "2 duplicates on the left"),
    ],
)
def test_days_are_compared(left: Digest | None, right: Digest | None, difference: str) -> None:
    day = (3, "2025-06-01")
    [verdict] = compare({day: left} if left else {}, {day: right} if right else {})
    assert verdict.difference.startswith(difference) and bool(verdict.difference) == bool(
        difference
    )
    told = described([verdict])
    assert told == ([f"partition 3, 2025-06-01: {verdict.difference}"] if difference else [])


def test_gaps_are_counted_beside_duplicates() -> None:
    assert Digest(10, 0, 5, 20, (0, 0)).gaps == 6
    assert Digest(10, 2, 0, 9, (0, 0)).gaps == 2


def test_only_what_both_sides_should_have_is_compared() -> None:
    both, problems = common_extent({0: (5, 20), 1: (0, 4), 2: (0, 0)}, {0: (0, 18), 3: (0, 9)})
    assert both == {0: (5, 18)}
    assert problems == [
        "partition 1 is missing on the right",
        "partition 3 is missing on the left",
    ]


# --- verdicts --------------------------------------------------------------------------------


def test_partitions_are_judged_together_only_if_they_hang_together() -> None:
    places = [("t", n) for n in range(5)] + [("u", 0)]
    links = [[("t", 1), ("t", 2)], [("u", 0), ("t", 2)]]
    parts = parts_of(places, places, links)
    assert parts["t", 1] == parts["t", 2] == parts["u", 0]
    assert len(set(parts.values())) == 4 and parts.keys() == set(places)
    unwritten = parts_of([("t", 0), ("t", 1)], [("t", 2), ("u", 0)], [])
    assert unwritten["t", 2] == unwritten["t", 0] != unwritten["t", 1]
    assert unwritten["u", 0] not in {unwritten["t", 0], unwritten["t", 1]}


# --- what people say and are told --------------------------------------------------------------


def test_places_are_read() -> None:
    assert parse_place("orders", "b:1", None) == TopicPlace("b:1", "orders")
    assert parse_place("orders@c:2,d:3", "b:1", None) == TopicPlace("c:2,d:3", "orders")
    assert parse_place("lake:/a/b#orders", "b:1", "x") == LakePlace("/a/b", "orders")
    assert parse_place("lake:s3a://bucket/a", "b:1", "x") == LakePlace("s3a://bucket/a", "x")
    assert parse_place("segments:/a", "b:1", "x") == SegmentsPlace("/a", "x")
    for text in ("lake:/a", "lake:#t", "@b:1"):
        with pytest.raises(WrongJob, match="names no"):
            parse_place(text, "b:1", None)
    with pytest.raises(WrongJob, match="a lake takes no options"):
        parse_place("lake:/a", "b:1", "x", {"minPartitions": "2"})


def test_our_own_words_are_found_in_a_traceback() -> None:
    text = (
        "Job aborted\n  File ...\ntidelog.pipeline.errors.DataLoss: t-0: offsets 1 to 2 are gone\n"
        "\tat org.apache.spark"
    )
    assert told_by(RuntimeError(text)) == "t-0: offsets 1 to 2 are gone"
    assert told_by(WrongJob("so")) == "so"
    assert told_by(RuntimeError("Java heap space")) is None


def test_a_summary_is_for_people_programs_and_prometheus() -> None:
    facts: dict[str, int | float | str | None] = {"files": 12345, "to": "a", "none": None}
    summary = Summary("archive", 2000, 4.0, facts, ("bad",))
    assert summary.text().splitlines() == [
        "archive: 2,000 records in 4.0 s (500/s)",
        "  files: 12,345",
        "  to: a",
        "  PROBLEM: bad",
    ]
    assert summary.as_object()["records_per_second"] == 500.0
    metrics = summary.metrics({"topic": 'a"b'}).splitlines()
    assert 'tidelog_pipeline_files{job="archive",topic="a\\"b"} 12345' in metrics
    assert 'tidelog_pipeline_problems{job="archive",topic="a\\"b"} 1' in metrics
    assert not any("_to" in line for line in metrics)
