"""Real processes: the active controller is killed under a stream of topic creations."""

from __future__ import annotations

import asyncio

import pytest
from controller_kills import kill_controllers, kill_dedicated
from dedicated_controllers import ControllerTrio

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")


def test_nothing_that_was_answered_is_lost() -> None:
    with LocalCluster(3) as cluster:
        outcome = kill_controllers(cluster, 5)
    assert outcome.answered
    assert outcome.missing == []
    assert outcome.split_terms == []
    assert len(outcome.elections_s) == 5


def test_controllers_without_brokers_keep_what_they_answered() -> None:
    with ControllerTrio() as trio:
        outcome = asyncio.run(kill_dedicated(trio, 4))
    assert outcome.answered
    assert outcome.missing == []
    assert outcome.split_terms == []
