"""The second format; ``pyspark_tidelog`` says why it is a module of its own."""

from tidelog.pipeline.segments_source import SegmentsDataSource as DefaultSource

__all__ = ["DefaultSource"]
