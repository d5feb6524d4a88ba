"""Spark imports every module called ``pyspark_…`` and registers its ``DefaultSource``.

It does so for every first use of any Python source, so this must stay light.
"""

from tidelog.pipeline.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
