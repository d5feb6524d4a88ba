"""The cluster of a test before and while it starts: settings, and ports that others take."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tidelog.testing.fixture_cluster import FixtureCluster
from tidelog.testing.local_cluster import ClusterFailed, LocalCluster


def test_a_port_that_was_taken_meanwhile_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, places = LocalCluster.start, []
    with ExitStack() as stack:

        def start_late(local: LocalCluster, timeout_s: float) -> None:
            """Somebody else is quicker, once."""
            places.append(local.nodes[1].kafka)
            if len(places) == 1:
                other = stack.enter_context(socket.socket())
                other.bind((places[0].host, places[0].port))
                other.listen()
            start(local, timeout_s)

        monkeypatch.setattr(LocalCluster, "start", start_late)
        with FixtureCluster(1) as cluster:
            assert cluster.bootstrap == str(places[1])
            cluster.create_topic("t")
    assert len(places) == 2


def test_when_every_draw_fails_the_node_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    start = LocalCluster.start

    def start_counted(local: LocalCluster, timeout_s: float) -> None:
        made.append(local)
        start(local, timeout_s)

    monkeypatch.setattr(LocalCluster, "start", start_counted)
    cluster = FixtureCluster(1, settings={"num.partitons": 3})
    with pytest.raises(ClusterFailed, match=r"num\.partitons=3.*did you mean num\.partitions"):
        cluster.start()
    assert made and not any(local.data_dir.exists() for local in made)


def test_no_port_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.testing.ports.is_port_free", lambda address: False)
    with pytest.raises(ClusterFailed, match="no port from 15000 to 32767 can be bound"):
        FixtureCluster(1).start()


def test_settings_may_be_numbers_and_flags() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": False, "broker.rack": "r1"}
    found = FixtureCluster(1, settings=settings)._settings
    assert {name: found[name] for name in settings} == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "broker.rack": "r1",
    }
    nothing: Any = None
    with pytest.raises(TypeError, match=r"num\.partitions: text, a number, true or false"):
        FixtureCluster(1, settings={"num.partitions": nothing})


def test_an_interrupted_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def interrupted(local: LocalCluster, timeout_s: float) -> None:
        made.append(local)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalCluster, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FixtureCluster(3).start()
    assert len(made) == 1 and not made[0].data_dir.exists()
