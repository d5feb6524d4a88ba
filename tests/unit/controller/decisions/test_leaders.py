"""Elections: who may win in which order, on request, for balance, and for the leaderless."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    decide_incremental_configs,
)
from tidelog.controller.decisions.leaders import (
    decide_balancing,
    decide_elections,
    decide_leaderless,
)
from tidelog.controller.metadata.records import LeaderRecovery
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene

# What happens to t (replicas 1, 2, 3), and how it then stands: leader|ISR|ELR|leader epoch.
# "-n" fences broker n, "+n" unfences it, "!n" restarts it with its data in doubt (page cache),
# "n,m" is an ISR that the leader reports.
STORIES = [
    ("", "1|1,2,3||0"),
    ("-1", "2|2,3||1"),
    ("-1 +1", "2|2,3||1"),  # an election needs a reason; being preferred is none
    ("-3", "1|1,2||0"),  # a shrunk ISR alone is no new leader epoch
    ("-3 -2", "1|1|2|0"),  # below min ISR: 2 stays eligible, 3 left before
    ("-1 -2", "3|3|2|2"),
    ("-1 -2 -3", "-1||2,3|3"),
    ("-1 -2 -3 +1", "-1||2,3|3"),  # 1 left in time and may lack records
    ("-1 -2 -3 +1 +2", "2|2|3|4"),
    ("-1 -2 -3 +3 +2", "3|3|2|4"),
    ("-1 -2 -3 +2 +3 2,3", "2|2,3||4"),
    ("-3 -2 -1 !1 +1", "-1||2|1"),  # 1 was the last leader, but 2 is eligible and sound
    ("-3 -2 !2 -1 !1 +1", "1|1||2"),  # nobody eligible is left: the last known leader
    ("-3 -2 !2 -1 !1 +2", "-1|||1"),  # 2 was not the last leader
    ("2,1 -1 -2", "-1||1,2|2"),
    ("1 -1 +2", "2|2|1,3|1"),
]


@pytest.mark.parametrize(("story", "end"), STORIES)
def test_stories(scene: Scene, story: str, end: str) -> None:
    flush = "page-cache" if "!" in story else "fsync"
    scene.create("t", (1, 2, 3), flush_policy=flush)
    for event in story.split():
        if event[0] == "-":
            scene.fence(int(event[1:]))
        elif event[0] == "+":
            scene.heartbeat(int(event[1:]))
        elif event[0] == "!":
            scene.register(scene.registration(int(event[1:])))
        else:
            assert scene.set_isr("t", 0, *map(int, event.split(","))) is ErrorCode.NONE
    assert scene.summary("t") == end


def test_the_last_known_leader_counts_as_unclean(scene: Scene) -> None:
    scene.create("t", (1,), flush_policy="page-cache")
    scene.fence(1)
    scene.register(scene.registration(1))
    scene.heartbeat(1)
    assert scene.summary("t") == "1|1||2"
    assert scene.state("t").leader_recovery is LeaderRecovery.RECOVERING
    assert scene.state("t").last_known_elr == ()


def elect(scene: Scene, kind: int, *names: str) -> list[ErrorCode]:
    wanted = [TopicPartition(name, PartitionIndex(0)) for name in names]
    answer = scene.take(decide_elections(scene.image, scene.policy, kind, wanted))
    return [one.error.code for topic in answer.topics for one in topic.partitions]


def test_unclean_election_on_request(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    scene.set_isr("t", 0, 1, 2)
    for broker in (1, 2, 3):
        scene.fence(broker)
    scene.heartbeat(3)
    assert scene.summary("t") == "-1||1,2|2"
    assert elect(scene, 1, "t") == [ErrorCode.NONE]
    assert scene.summary("t") == "3|3||3"
    assert scene.state("t").leader_recovery is LeaderRecovery.RECOVERING
    assert elect(scene, 1, "t") == [ErrorCode.ELECTION_NOT_NEEDED]


def test_a_topic_that_allows_unclean_elections_gets_them_at_once(scene: Scene) -> None:
    unclean = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
    scene.create("t", (1, 2), **unclean)
    scene.set_isr("t", 0, 1)
    scene.fence(1)
    assert scene.summary("t") == "2|2||1"


def test_allowing_unclean_elections_later_helps_the_leaderless(scene: Scene) -> None:
    scene.create("t", (1, 2), min_insync_replicas="1")
    scene.set_isr("t", 0, 1)
    scene.fence(1)
    assert scene.summary("t") == "-1||1|1"
    assert decide_leaderless(scene.image, scene.policy).records == ()
    allow = ConfigOperation("unclean.leader.election.enable", 0, "true")
    change = ResourceChange(2, "t", (allow,))
    scene.take(decide_incremental_configs(scene.image, scene.policy, [change]))
    assert scene.take(decide_leaderless(scene.image, scene.policy)).is_complete
    assert scene.summary("t") == "2|2||2"


def test_balancing_gives_leadership_back_in_bounded_runs(scene: Scene) -> None:
    scene.create("t", *[(1, 2, 3)] * 5)
    scene.create("away", (1, 2, 3))
    scene.fence(1)
    scene.heartbeat(1)
    for index in range(5):
        scene.set_isr("t", index, 1, 2, 3)
    first = scene.take(decide_balancing(scene.image, scene.policy, limit=3))
    assert not first.is_complete and len(scene.last) == 3
    assert scene.take(decide_balancing(scene.image, scene.policy, limit=3)).is_complete
    assert [scene.state("t", i).leader for i in range(5)] == [1] * 5
    assert scene.state("away").leader == 2  # its preferred leader is not in sync
    assert decide_balancing(scene.image, scene.policy).records == ()


def test_preferred_election_needs_the_preferred_replica_in_sync(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    scene.fence(1)
    assert elect(scene, 0, "t") == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    scene.heartbeat(1)
    assert elect(scene, 0, "t") == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    scene.set_isr("t", 0, 1, 2, 3)
    assert elect(scene, 0, "t") == [ErrorCode.NONE]
    assert scene.summary("t") == "1|1,2,3||2"
