"""Replicas move: beside each other first, then the old ones go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.controller.decisions.reassignment import (
    ReassignmentRequest,
    decide_reassignments,
    ongoing_reassignments,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId, PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene

T0 = TopicPartition("t", PartitionIndex(0))


def move(scene: Scene, *replicas: int, may_change_factor: bool = True) -> ErrorCode:
    return request(scene, tuple(map(NodeId, replicas)), may_change_factor)


def cancel(scene: Scene) -> ErrorCode:
    return request(scene, None, True)


def request(
    scene: Scene, replicas: tuple[NodeId, ...] | None, may_change_factor: bool
) -> ErrorCode:
    decision = decide_reassignments(
        scene.image,
        scene.policy,
        [ReassignmentRequest(T0, replicas)],
        may_change_factor=may_change_factor,
    )
    [result] = scene.take(decision)
    return result.error.code


def lists(scene: Scene) -> str:
    state = scene.state("t")
    return "|".join(
        ",".join(map(str, nodes)) for nodes in (state.replicas, state.adding, state.removing)
    )


@pytest.fixture
def four(scene: Scene) -> Scene:
    scene.start(4, 5)
    scene.create("t", (1, 2, 3))
    return scene


def test_it_completes_when_every_target_is_in_sync(four: Scene) -> None:
    assert move(four, 4, 5, 2) is ErrorCode.NONE
    assert lists(four) == "4,5,2,1,3|4,5|1,3"
    assert four.set_isr("t", 0, 1, 2, 3, 4) is ErrorCode.NONE
    assert lists(four) == "4,5,2,1,3|4,5|1,3"
    assert four.set_isr("t", 0, 1, 2, 3, 4, 5) is ErrorCode.NEW_LEADER_ELECTED
    assert lists(four) == "4,5,2||"
    assert four.summary("t") == "4|2,4,5||1"
    assert four.state("t").restarts_empty == (1, 3)


def test_a_target_that_fell_out_of_sync_holds_it_up(four: Scene) -> None:
    move(four, 4, 2)
    four.fence(2)
    four.set_isr("t", 0, 1, 3, 4)
    assert lists(four) == "4,2,1,3|4|1,3"


def test_a_new_target_replaces_the_old_one(four: Scene) -> None:
    move(four, 4, 2)
    assert move(four, 5, 2) is ErrorCode.NONE
    assert lists(four) == "5,2,1,3|5|1,3"
    assert four.state("t").leader_epoch == 1  # 4 was dropped from the replicas
    move(four, 1, 2, 3)
    assert lists(four) == "1,2,3||"


def test_a_replica_in_sync_is_not_dropped_by_a_new_target(four: Scene) -> None:
    move(four, 4, 5, 2)
    four.set_isr("t", 0, 1, 2, 3, 4)
    move(four, 1, 2, 3)
    assert lists(four) == "1,2,3||"
    move(four, 4, 5, 2)
    assert lists(four) == "4,5,2,1,3|4,5|1,3"


def test_one_that_was_added_but_not_wanted_any_more_goes_last(four: Scene) -> None:
    move(four, 4, 2)
    four.set_isr("t", 0, 1, 3, 4)
    move(four, 5, 2)
    assert lists(four) == "5,2,1,3,4|5|1,3,4"


def test_cancelling(four: Scene) -> None:
    assert cancel(four) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    move(four, 4, 2, 1)
    assert cancel(four) is ErrorCode.NONE
    assert lists(four) == "2,1,3||"
    assert four.summary("t") == "1|1,2,3||1"
    assert ongoing_reassignments(four.image, None) == ()


def test_cancelling_is_refused_when_it_would_lose_data(four: Scene) -> None:
    move(four, 4, 5)
    assert four.set_isr("t", 0, 1, 4) is ErrorCode.NONE
    four.set_isr("t", 0, 1, 2, 3, 4)
    for broker in (1, 2, 3):
        four.fence(broker)
    assert four.summary("t") == "4|4|3|1"
    assert cancel(four) is ErrorCode.NONE  # 3 is eligible: nothing is lost
    assert four.summary("t") == "-1||3|2"


def test_cancelling_without_anybody_in_sync(four: Scene) -> None:
    move(four, 4, 5)
    four.set_isr("t", 0, 1, 2, 3, 4)
    for broker in (1, 2, 3):
        four.fence(broker)
    four.register(four.registration(3, dirs=(99,)))  # and its disk is gone
    assert four.summary("t") == "4|4||1"
    assert cancel(four) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_factor_may_be_kept(four: Scene) -> None:
    assert move(four, 1, 2, may_change_factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(four, 4, 2, 3, may_change_factor=False) is ErrorCode.NONE


def test_listing(four: Scene) -> None:
    move(four, 4, 2)
    [one] = ongoing_reassignments(four.image, [T0])
    assert (one.replicas, one.adding, one.removing) == ((4, 2, 1, 3), (4,), (1, 3))
    other = TopicPartition("u", PartitionIndex(0))
    assert ongoing_reassignments(four.image, [other]) == ()


def test_a_replica_that_comes_back_starts_empty(four: Scene) -> None:
    """DESIGN 2.4: the cleaner did not wait for it while it was away."""
    move(four, 1, 2)
    move(four, 1, 2, 3)
    assert four.set_isr("t", 0, 1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA


def test_a_move_that_completes_at_once_keeps_a_directory_for_each_replica(four: Scene) -> None:
    """Targets that are all in sync already: replicas and directories shrink together."""
    assert move(four, 3, 1) is ErrorCode.NONE
    assert lists(four) == "3,1||"
    state = four.state("t")
    assert len(state.directories) == len(state.replicas)
