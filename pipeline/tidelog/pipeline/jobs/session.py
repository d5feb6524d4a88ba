"""The Spark session a pipeline runs on: of this machine, or the one that ``spark-submit`` made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.versions import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
"""Set where Spark started this process, which then has its settings already."""

_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
}


def make_session(
    name: str, *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Without ``master`` all cores of this machine, or what was said to ``spark-submit``."""
    try:
        import pyspark  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError:
        raise WrongJob("pipelines need PySpark; to have it: pip install 'tidelog[spark]'") from None
    require_pyspark()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    settings = {"spark.sql.session.timeZone": "UTC", **(config or {})}
    if _OF_SPARK_SUBMIT not in os.environ:
        builder = builder.master(master or "local[*]")
        settings = {**(_LOCAL if (master or "local").startswith("local") else {}), **settings}
    elif master is not None:
        raise WrongJob("under spark-submit its own --master says where the job runs")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def settings_of(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """These while a job runs; the session may be somebody else's."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
