"""A Spark driver whose sink fails where it is told to; run as a script, so that it can be killed.

Faults are given as ``step=action``. Each happens once: at the first process that comes to the step.
Actions are ``kill`` (the driver and its JVM), ``die`` (only the process that runs the step),
``raise``, and ``wait`` (until a file is there).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tidelog.pipeline.sink_once import OnceStreamWriter
from tidelog.pipeline.source import TidelogDataSource

FAULTS = "TIDELOG_TEST_FAULTS"
DRIVER = "TIDELOG_TEST_DRIVER"


def on_step(step: str) -> None:
    place = Path(os.environ[FAULTS])
    for planned in place.glob(f"{step}=*.planned"):
        action = planned.stem.partition("=")[2]
        try:
            planned.rename(planned.with_suffix(".done"))
        except FileNotFoundError:
            continue  # another process was first
        if action == "raise":
            raise RuntimeError(f"on purpose at {step}")
        if action == "kill":
            os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
        if action in ("kill", "die"):
            os.kill(os.getpid(), signal.SIGKILL)
        while action == "wait" and not (place / "go").exists():
            time.sleep(0.05)


class FaultyStreamWriter(OnceStreamWriter):
    def reached(self, step: str) -> None:
        on_step(step)


class FaultyDataSource(TidelogDataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog-faulty"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return FaultyStreamWriter(self._parsed_for_writing(schema, overwrite, "stream"))


def session(master: str, scratch: Path) -> Any:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.executor.memory", "512m")
        # Whoever lives for seconds only should not compile for minutes.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultyDataSource)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "target", "checkpoint", "scratch", "master"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--per-batch", default="500")
    told = parser.parse_args()
    os.environ[DRIVER] = str(os.getpgrp())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = session(told.master, Path(told.scratch))
    stream = spark.readStream.format("tidelog").option("subscribe", told.source)
    stream = stream.option("kafka.bootstrap.servers", told.bootstrap)
    stream = stream.option("startingOffsets", "earliest")
    stream = stream.option("maxOffsetsPerTrigger", told.per_batch).option("minPartitions", "2")
    writer = stream.load().select("key", "value").writeStream.format("tidelog-faulty")
    writer = writer.option("kafka.bootstrap.servers", told.bootstrap).option("topic", told.target)
    writer = writer.option("deliveryGuarantee", "exactly-once")
    writer = writer.option("checkpointLocation", told.checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:  # whatever it is, the test reads it
        print(error, flush=True)
        sys.exit(1)
    spark.stop()


if __name__ == "__main__":
    main()
