"""Fixtures for pytest, there as soon as tidelog is installed.

``tidelog_cluster`` and ``tidelog_broker`` run for a whole session (with pytest-xdist: of each
worker), ``tidelog_topic`` is fresh for each test. After a test that left a node down or a link cut,
the cluster is healed before the next one starts.

This module is imported by every run of pytest in an environment that has tidelog, also by those
that never ask for a cluster. So it imports nothing but pytest; the rest is loaded by the fixtures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from tidelog.testing.fixture_cluster import FixtureCluster, SettingValue

_CLUSTERS: pytest.StashKey[list[FixtureCluster]] = pytest.StashKey()
_NAME_LENGTH = 60


@pytest.fixture(scope="session")
def tidelog_settings() -> Mapping[str, SettingValue]:
    """Settings of the nodes; override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def tidelog_cluster(
    request: pytest.FixtureRequest, tidelog_settings: Mapping[str, SettingValue]
) -> Iterator[FixtureCluster]:
    """Three nodes on this machine, each a process."""
    yield from _run_cluster(request.config, 3, tidelog_settings)


@pytest.fixture(scope="session")
def tidelog_broker(
    request: pytest.FixtureRequest, tidelog_settings: Mapping[str, SettingValue]
) -> Iterator[FixtureCluster]:
    """One node: less to wait for, and enough for tests without faults."""
    yield from _run_cluster(request.config, 1, tidelog_settings)


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, deleted after the test.

    It is on ``tidelog_broker`` if the test asks for that one, else on ``tidelog_cluster``.
    """
    asks_for_broker = "tidelog_broker" in request.fixturenames
    cluster: FixtureCluster = request.getfixturevalue(
        "tidelog_broker" if asks_for_broker else "tidelog_cluster"
    )
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:_NAME_LENGTH].strip("-.")
    name = f"{words}-{uuid4().hex[:8]}"
    cluster.create_topic(name)
    yield name
    if cluster.is_harmed:
        cluster.heal()
    cluster.delete_topic(name)


@pytest.fixture
def simulated_cluster() -> Iterator[Callable[..., Any]]:
    """``simulated_cluster(seed)``: a cluster in virtual time, without processes or ports.

    It also takes ``nodes`` and ``settings``, as ``tidelog.simulation`` has it.
    """
    from importlib.metadata import entry_points

    (offered,) = entry_points(group="tidelog.testing", name="simulated_cluster")
    make = offered.load()
    with ExitStack() as stack:
        yield lambda seed, **options: stack.enter_context(make(seed, **options))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a test broke, the next one does not find."""
    for cluster in item.config.stash.get(_CLUSTERS, ()):
        if cluster.is_harmed:
            cluster.heal()


def _run_cluster(
    config: pytest.Config, nodes: int, settings: Mapping[str, SettingValue]
) -> Iterator[FixtureCluster]:
    from tidelog.testing.fixture_cluster import FixtureCluster

    with FixtureCluster(nodes, settings=settings) as cluster:
        config.stash.setdefault(_CLUSTERS, []).append(cluster)
        yield cluster
        config.stash[_CLUSTERS].remove(cluster)
