"""Spark reads Tidelog, and any other broker of the Kafka protocol, without a connector jar.

Importing this is cheap: neither Spark nor Arrow nor numpy is loaded before one is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``format("tidelog")`` and ``format("tidelog-segments")`` known to this session.

    An installed package does that by itself (``pyspark_tidelog``); this is for one that was not
    installed but only put on the path.
    """
    from tidelog.pipeline.versions import require_pyspark

    require_pyspark()
    from tidelog.pipeline.segments_source import SegmentsDataSource
    from tidelog.pipeline.source import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
    spark.dataSource.register(SegmentsDataSource)
