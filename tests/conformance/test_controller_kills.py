"""Real processes: the active controller is killed under a stream of topic creations."""

from __future__ import annotations

import pytest
from controller_kills import kill_controllers

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")


def test_nothing_that_was_answered_is_lost() -> None:
    with LocalCluster(3) as cluster:
        outcome = kill_controllers(cluster, 5)
    assert outcome.answered
    assert outcome.missing == []
    assert outcome.split_terms == []
    assert len(outcome.elections_s) == 5
