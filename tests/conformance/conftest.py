"""One cluster of three nodes for all conformance tests.

They are in one group of pytest-xdist, so that one worker runs them and one cluster serves them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_log import NodeLog

from tidelog.testing.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def node_log() -> NodeLog:
    return NodeLog()


@pytest.fixture(scope="session")
def cluster(node_log: NodeLog) -> Iterator[LocalCluster]:
    with LocalCluster(3, on_line=node_log.add) as running:
        yield running


@pytest.fixture(autouse=True)
def _nodes_report_nothing_unforeseen(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may leave an unhandled exception in a node's log."""
    yield
    if "cluster" in request.fixturenames:
        log: NodeLog = request.getfixturevalue("node_log")
        assert not log.unforeseen(), "\n".join(log.unforeseen())
