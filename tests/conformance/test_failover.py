"""Leaders that are killed and leaders that stand still, under clients that notice nothing."""

from __future__ import annotations

import threading
import time

import pytest
from client_kits import KITS, Got, Kit, Sent
from confluent_kafka.admin import AdminClient, NewTopic
from kill_run import Outcome, run_kills, run_pauses
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")


def assert_sound(outcome: Outcome, faults: int) -> None:
    assert outcome.lost == []
    assert outcome.duplicated == []
    assert outcome.reordered == []
    assert outcome.failed == 0
    assert outcome.missed == []
    assert len(outcome.gaps_s) == faults
    assert outcome.total > 0


def test_nothing_is_lost_when_leaders_are_killed(cluster: LocalCluster) -> None:
    outcome = run_kills(cluster, 5, topic="killed-leaders", say=print)
    assert_sound(outcome, 5)


def test_nothing_is_lost_when_leaders_stand_still(cluster: LocalCluster) -> None:
    """For less than a session, and for so long that another leads when they wake."""
    outcome = run_pauses(cluster, [1.0, 4.0], topic="stopped-leaders", say=print)
    assert_sound(outcome, 2)


@pytest.mark.parametrize("name", KITS)
def test_clients_go_on_through_a_kill(cluster: LocalCluster, name: str) -> None:
    """One writes in small portions, one reads what it writes, while the leader is killed."""
    topic, kit = f"through-{name}", KITS[name](cluster.bootstrap)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    portions = [[Sent(None, f"{p}-{i}".encode()) for i in range(50)] for p in range(6)]
    reading = Reading(kit, topic, sum(map(len, portions)))
    reading.start()
    listed = until(  # the broker that is asked need not have heard of the topic yet
        lambda: admin.list_topics(topic, timeout=30).topics[topic].partitions, f"{topic} is known"
    )
    victim = listed[0].leader
    for number, portion in enumerate(portions):
        if number == 2:
            cluster.kill(victim)
        kit.produce(topic, portion, idempotent=True)
    found = reading.result()
    cluster.start_node(victim)
    cluster.wait_until_serving(60)
    assert [one.value for one in found] == [sent.value for p in portions for sent in p]


class Reading:
    """A consumer on a thread of its own."""

    def __init__(self, kit: Kit, topic: str, count: int) -> None:
        self._found: list[Got] = []
        self._thread = threading.Thread(target=self._read, args=(kit, topic, count), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def result(self) -> list[Got]:
        deadline = time.monotonic() + 30
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._found

    def _read(self, kit: Kit, topic: str, count: int) -> None:
        self._found = kit.consume(topic, {0: count})[0]
