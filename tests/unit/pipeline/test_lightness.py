"""Spark imports the two modules for every first use of any Python source: they must be light."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"kio", "numpy", "pyarrow", "confluent_kafka", "grpc"}


def loaded_by(code: str) -> set[str]:
    """Which heavy modules are there afterwards and were not before."""
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_room_loads_nothing_heavy() -> None:
    assert not loaded_by("import tidelog.pipeline") & (HEAVY | {"pyspark"})


def test_the_sources_load_nothing_that_spark_has_not() -> None:
    pytest.importorskip("pyspark")
    spark = "import pyspark.sql.datasource"
    sources = "import pyspark_tidelog, pyspark_tidelog_segments"
    more = loaded_by(f"{spark}\n{sources}") - loaded_by(spark)
    assert not more & HEAVY
    assert "tidelog.pipeline.source" in more
