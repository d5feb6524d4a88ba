"""One cluster of three nodes for all conformance tests.

They are in one group of pytest-xdist, so that one worker runs them and one cluster serves them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_log import NodeLog

from tidelog.testing.local_cluster import LocalCluster

# Members of the new protocol learn what is theirs by heartbeats; every 5 s by default.
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="session")
def node_log() -> NodeLog:
    return NodeLog()


@pytest.fixture(scope="session")
def cluster(node_log: NodeLog) -> Iterator[LocalCluster]:
    with LocalCluster(3, settings=SETTINGS, on_line=node_log.add) as running:
        yield running
        running.kill_all()  # nobody will look at its data


@pytest.fixture(autouse=True)
def _nothing_unforeseen_is_printed(node_log: NodeLog) -> Iterator[None]:
    """No test may leave an exception that nobody handled in a node's log."""
    yield
    assert not (odd := node_log.unforeseen()), "\n".join(odd)
