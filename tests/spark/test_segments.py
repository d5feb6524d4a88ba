"""``format("tidelog-segments")`` on the live directories of a cluster's nodes."""

from __future__ import annotations

from typing import Any

import pytest
from spark_topics import Topics

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.spark


def test_the_files_of_a_node_say_what_the_brokers_say(
    spark: Any, topics: Topics, cluster: LocalCluster
) -> None:
    topic = topics.create(partitions=3, segment_bytes="1048576")
    for partition in range(3):
        values = [b"%04d" % index * 200 for index in range(2000)]
        topics.fill(topic, values, partition=partition, headers=[("h", b"1")])
    served = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    served = served.option("subscribe", topic).option("includeHeaders", "true").load()
    directories = sorted(cluster.data_dir.glob(f"node-1/**/{topic}-0"))
    [log_dir] = {path.parent for path in directories}
    files = spark.read.format("tidelog-segments").option("topics", topic)
    files = files.option("includeHeaders", "true").load(str(log_dir))
    assert files.schema == served.schema
    assert files.rdd.getNumPartitions() > 3, "more than one segment each"
    assert files.count() == 6000
    assert files.exceptAll(served).count() == 0
    fewer = spark.read.format("tidelog-segments").option("topics", topic)
    fewer = fewer.schema("value BINARY, partition INT").load(str(log_dir))
    assert fewer.exceptAll(served.select("value", "partition")).count() == 0
    assert fewer.count() == 6000


def test_a_directory_that_is_none_is_told(spark: Any) -> None:
    with pytest.raises(Exception, match=r"/nowhere is not a directory"):
        spark.read.format("tidelog-segments").load("/nowhere").count()


def test_both_formats_can_be_registered_by_hand(spark: Any) -> None:
    from tidelog.pipeline import register

    register(spark)
    with pytest.raises(Exception, match=r"kafka.bootstrap.servers is required"):
        spark.read.format("tidelog").option("subscribe", "t").load().count()
