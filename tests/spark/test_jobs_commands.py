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

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

BIN = Path(sys.executable).parent


def run(*command: object, scratch: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(scratch),  # executors would write below the installed package
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
        "--metrics-file", metrics, "--json", scratch=tmp_path / "workers",
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
