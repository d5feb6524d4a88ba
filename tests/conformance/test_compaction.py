"""A topic is compacted on all replicas, and stock clients read what is left."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from client_kits import KITS, Got, Kcat, Kit, Sent
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from waiting import until

from tidelog.kernel.ids import Offset, PartitionIndex, TopicPartition
from tidelog.kernel.real import OsDisk
from tidelog.storage.checkpoints import read_offset_checkpoint
from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

KEYS = 10
ROUNDS = 5
WITHIN_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def _hasty_cleaner(cluster: LocalCluster) -> Iterator[None]:
    """It looks often; otherwise the settings are those of any node."""
    _set_backoff(cluster, "100")
    yield
    _set_backoff(cluster, None)


def _set_backoff(cluster: LocalCluster, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry("log.cleaner.backoff.ms", value or "", incremental_operation=operation)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for node_id in cluster.nodes:
        name = str(node_id)
        resource = ConfigResource(ResourceType.BROKER, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)


class Prices:
    """A compacted topic of one partition. Every call of ``write`` closes the segment before."""

    def __init__(self, cluster: LocalCluster, topic: str, **configs: str) -> None:
        self.topic = topic
        self.end = 0
        self._cluster = cluster
        self._writer = KITS["confluent"](cluster.bootstrap)
        self._timestamp_ms = int(time.time() * 1000) - 3_600_000
        named = {name.replace("_", "."): value for name, value in configs.items()}
        settings = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            **named,
        }
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 3, config=settings)])[topic].result(30)

    def write(self, *pairs: tuple[str, str | None]) -> None:
        self._timestamp_ms += 1_000
        sent = [
            Sent(key.encode(), None if value is None else value.encode(), (), self._timestamp_ms)
            for key, value in pairs
        ]
        self.end = 1 + self._writer.produce(self.topic, sent)[-1]

    def read(self, kit: Kit | None = None) -> list[Got]:
        return (kit or self._writer).consume(self.topic, {0: self.end})[0]

    def clean_points(self) -> list[Offset]:
        """Of all replicas, as their checkpoints have them."""
        tp = TopicPartition(self.topic, PartitionIndex(0))
        paths = [
            node.data_dir / "cleaner-offset-checkpoint" for node in self._cluster.nodes.values()
        ]
        return [read_offset_checkpoint(OsDisk(), str(path)).get(tp, Offset(0)) for path in paths]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, lambda: f"{what}; clean points {self.clean_points()}", within_s=WITHIN_S)


def test_every_replica_is_cleaned_and_every_client_reads_the_rest(
    cluster: LocalCluster, require: Callable[[str], None]
) -> None:
    prices = Prices(cluster, "compacted")
    for turn in range(ROUNDS):
        prices.write(*((f"k{i}", f"{turn}") for i in range(KEYS)))
    prices.write(("last", "active"))
    closed = ROUNDS * KEYS
    prices.until(lambda: set(prices.clean_points()) == {closed}, "all replicas are clean")
    wanted = [
        *((closed - KEYS + i, f"k{i}".encode(), f"{ROUNDS - 1}".encode()) for i in range(KEYS)),
        (closed, b"last", b"active"),
    ]
    kits: list[Kit] = [make(cluster.bootstrap) for make in KITS.values()]
    require("kcat")
    for kit in [*kits, Kcat(cluster.bootstrap)]:
        found = [(one.offset, one.key, one.value) for one in prices.read(kit)]
        assert found == wanted, kit.name


def test_the_command_says_what_is_clean_and_why_the_rest_is_not(cluster: LocalCluster) -> None:
    prices = Prices(cluster, "explained")
    for turn in range(3):
        prices.write(("a", f"{turn}"))
    prices.until(lambda: set(prices.clean_points()) == {2}, "all replicas are clean")
    command = [sys.executable, "-c", "from tidelog.cli.main import main; main()"]
    arguments = ["explain", "compaction", prices.topic, "-b", cluster.bootstrap, "--json"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    told = json.loads(done.stdout)
    assert [(one["broker"], one["clean_point"]) for one in told] == [(1, 2), (2, 2), (3, 2)]
    for one in told:
        holds = {reason["hold"]: reason["setting"] for reason in one["reasons"]}
        assert holds["active segment"] == "segment.ms"
        assert "nothing dirty" in holds


def test_a_tombstone_goes_when_every_replica_has_cleaned_past_it(cluster: LocalCluster) -> None:
    prices = Prices(cluster, "tombstones", delete_retention_ms="1")
    prices.write(("doomed", "1"), ("kept", "1"))
    prices.write(("doomed", None))
    prices.write(("filler", "0"))
    prices.until(lambda: min(prices.clean_points()) >= 3, "all replicas are clean")
    assert [one.key for one in prices.read()].count(b"doomed") <= 1

    def is_gone() -> bool:
        prices.write(("filler", "again"))  # a pass needs something dirty
        return b"doomed" not in [one.key for one in prices.read()]

    prices.until(is_gone, "the tombstone is gone")
    assert b"kept" in [one.key for one in prices.read()]


def test_compacted_and_deleted_from(cluster: LocalCluster) -> None:
    prices = Prices(cluster, "both", cleanup_policy="compact,delete", retention_ms=str(30 * 60_000))
    prices.write(("old", "1"))  # an hour ago
    prices.write(("old", "2"))
    prices.write(("new", "1"))

    def is_emptied() -> bool:
        kit = KITS["confluent"](cluster.bootstrap)
        kit.produce(prices.topic, [Sent(b"now", b"1", (), int(time.time() * 1000))])
        prices.end += 1
        return next(one.key for one in prices.read()) == b"now"

    prices.until(is_emptied, "what is older than retention.ms is gone")
