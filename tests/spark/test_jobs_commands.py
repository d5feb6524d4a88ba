"""``tidelog pipeline …`` as a shell runs it, and as ``spark-submit`` does on two executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Topics
from typer.testing import CliRunner

from tidelog.chaos.history import RunEnd, RunHeader
from tidelog.chaos.history_file import HistoryWriter
from tidelog.cli import pipeline
from tidelog.cli.pipeline_commands import app

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_home")]

BIN = Path(sys.executable).parent


def run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=400, env=environment)


@pytest.mark.timeout(900)  # four Java machines start, which a busy computer takes minutes for
def test_an_archive_is_made_on_executors_of_their_own_and_audited(
    topics: Topics, tmp_path: Path
) -> None:
    topic, lake, metrics = topics.create(partitions=2), tmp_path / "lake", tmp_path / "m.prom"
    for partition in range(2):
        topics.fill(topic, [b"%d" % index for index in range(500)], partition=partition)
    script = run(BIN / "tidelog", "pipeline", "script").stdout.strip()
    done = run(
        BIN / "spark-submit", "--master", "local-cluster[2,1,1024]",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
        script, "archive", topic, "--lake", lake, "-b", topics.bootstrap,
        "--metrics-file", metrics, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (summary["records"], summary["files"], summary["problems"]) == (1000, 2, [])
    assert f'tidelog_pipeline_records{{job="archive",topics="{topic}"}} 1000' in metrics.read_text()

    [stranger] = lake.glob("topic=*/partition=0/**/*.parquet")
    stranger.with_name("copy.parquet").write_bytes(stranger.read_bytes())
    found = run(BIN / "tidelog", "pipeline", "audit", topic, f"lake:{lake}", "-b", topics.bootstrap)
    assert found.returncode == 1, found.stderr[-3000:]
    assert "PROBLEM" in found.stdout and "belongs to no commit" in found.stdout
    assert found.stderr.splitlines()[-1] == "the archive differs: 1 problems"


class Kept:
    """The session of all tests, which no command may stop; making one takes ten seconds."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def test_each_other_job_is_a_command(
    spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "make_session", lambda *_, **__: Kept(spark))
    orders, copy, sums = (topics.create(2, retention_ms="-1") for _ in range(3))
    values = [b'{"amount": %d}' % number for number in range(100)]
    topics.fill(orders, values, key=b"k", timestamp_ms=1_700_000_040_000)
    topics.fill(orders, [b'{"amount": 0}'], timestamp_ms=1_700_000_400_000)

    def told(*words: object) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert done.exit_code == 0, (done.output, done.exception)
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert (summary["job"], summary["problems"]) == (words[0], [])
        return summary

    there = "-b", topics.bootstrap
    found = told("snapshot", orders, "--output", tmp_path / "snapshot", *there)
    assert (found["records"], found["keys"], found["records_without_key"]) == (101, 1, 1)
    state = "--state", tmp_path / "state"
    assert told("replay", orders, "--to", copy, *state, *there)["records"] == 101
    assert told("replay", orders, "--to", copy, *state, *there)["records"] == 0
    assert told("audit", orders, copy, *there)["records_on_the_right"] == 101
    how = "--schema", "amount LONG", "--metric", "total=sum(amount)"
    place = "--checkpoint", tmp_path / "checkpoint"
    assert told("aggregate", orders, "--to", sums, *how, *place, *there)["windows_written"] == 1
    history = tmp_path / "history.jsonl"
    writer = HistoryWriter(history)
    writer.note(
        RunHeader(1, "tidelog chaos run", "local", "mixed", (), 1.0, "2025-06-01T00:00:00Z")
    )
    writer.note(RunEnd(1.0, False, ()))
    writer.close()
    told("verify", history)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit", "t", "lake:"], "'lake:' names no folder"),
        (["replay", "segments:#t", "--to", "t"], "names no folder"),
        (["archive", "t", "--lake", "x", "--source-option", "a"], "'a' is not NAME=VALUE"),
    ],
)
def test_a_wrong_use_is_told_before_spark_starts(words: list[str], message: str) -> None:
    done = run(BIN / "tidelog", "pipeline", *words)
    assert done.returncode == 2 and message in done.stderr
    assert "Traceback" not in done.stderr
