"""Heartbeats, fencing, controlled shutdown, log directories, replicas that restart empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.controller.decisions.broker_states import (
    BrokerHeartbeat,
    decide_fencing,
    decide_heartbeat,
)
from tidelog.controller.decisions.directories import (
    DirectoryAssignment,
    decide_directory_assignments,
)
from tidelog.controller.decisions.leaders import decide_elections
from tidelog.controller.decisions.producer_ids import BLOCK_SIZE, decide_producer_ids
from tidelog.controller.decisions.restart_empty import (
    decide_restart_empty,
    decide_restarted_empty,
)
from tidelog.controller.metadata.records import ProducerIds
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicPartition,
    Uuid,
)

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene

ONE, TWO = NodeId(1), NodeId(2)


def directory(number: int) -> DirectoryId:
    return DirectoryId(Uuid(number.to_bytes(16, "big")))


@pytest.mark.parametrize("epoch_error", [-1, 1])
def test_another_epoch_is_stale(scene: Scene, epoch_error: int) -> None:
    """Hazard 6: an earlier incarnation acts no more."""
    epoch = BrokerEpoch(scene.epoch(1) + epoch_error)
    heartbeat = BrokerHeartbeat(ONE, epoch, scene.image.offset)
    decision = decide_heartbeat(
        scene.image, scene.policy, heartbeat, lowest_active_offset=Offset(0)
    )
    assert decision.response.error.code is ErrorCode.STALE_BROKER_EPOCH
    fencing = decide_fencing(scene.image, scene.policy, ONE, epoch)
    assert fencing.response.error.code is ErrorCode.STALE_BROKER_EPOCH
    block = decide_producer_ids(scene.image, ONE, epoch)
    assert block.response.error.code is ErrorCode.STALE_BROKER_EPOCH
    assert decision.records == fencing.records == block.records == ()


def test_a_broker_is_unfenced_when_it_has_seen_its_registration(scene: Scene) -> None:
    scene.register(scene.registration(4))
    answer = scene.heartbeat(4, seen=scene.epoch(4) - 1)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    assert scene.heartbeat(4, wants_fence=True).is_fenced
    answer = scene.heartbeat(4, seen=scene.epoch(4))
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    assert scene.heartbeat(4).is_fenced is False and scene.last == ()


def test_a_broker_may_ask_to_be_fenced(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    assert scene.heartbeat(1, wants_fence=True).is_fenced
    assert scene.summary("t") == "2|2,3||1"


def test_fencing_twice_changes_nothing(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    scene.fence(1)
    scene.fence(1)
    assert scene.last == ()


def test_a_broker_with_many_partitions_is_fenced_in_steps(scene: Scene) -> None:
    scene.create("t", *[(1, 2, 3)] * 5)
    steps = []
    while not scene.image.brokers[ONE].fenced:
        step = decide_fencing(scene.image, scene.policy, ONE, scene.epoch(1), limit=2)
        steps.append((len(step.records), scene.take(step).is_complete))
    assert steps == [(2, False), (2, False), (2, True)]
    assert [scene.summary("t", i) for i in range(5)] == ["2|2,3||1"] * 5


def test_unfencing_leaves_led_partitions_alone(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    scene.create("alone", (1,))
    scene.fence(1)
    scene.heartbeat(1)
    assert scene.summary("t") == "2|2,3||1"
    assert scene.summary("alone") == "1|1||2"


def test_who_leads_nothing_may_go_at_once(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    assert scene.heartbeat(3, wants_shut_down=True).should_shut_down
    assert scene.summary("t") == "1|1,2||0"
    assert scene.image.brokers[NodeId(3)].fenced


def test_a_shutdown_waits_until_everybody_knows(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    begun_at = scene.next_offset
    assert not scene.heartbeat(1, wants_shut_down=True).should_shut_down
    assert scene.summary("t") == "2|2,3||1"
    assert not scene.heartbeat(1, wants_shut_down=True, lowest=begun_at - 1).should_shut_down
    assert not scene.heartbeat(1).should_shut_down and scene.last == ()
    assert scene.heartbeat(1, wants_shut_down=True, lowest=begun_at).should_shut_down
    assert scene.heartbeat(1, wants_shut_down=True).should_shut_down and scene.last == ()


def test_the_last_broker_may_go_although_nobody_takes_over(scene: Scene) -> None:
    scene.create("t", (1,))
    scene.heartbeat(1, wants_shut_down=True)
    assert scene.summary("t") == "-1||1|1"
    assert scene.heartbeat(1, wants_shut_down=True).should_shut_down


def test_a_failed_directory_costs_its_replicas_isr_and_elr(scene: Scene) -> None:
    """Hazard 44: pages of a failed fsync may look clean."""
    scene.register(scene.registration(4, dirs=(41, 42)))
    scene.heartbeat(4)
    scene.create("a", (4, 2))
    scene.create("b", (4, 2))
    assert scene.state("a").directories[0] == directory(0)
    for name, number in (("a", 41), ("b", 42)):
        assign(scene, 4, name, number)
    scene.heartbeat(4, offline=(41,))
    assert scene.summary("a") == "2|2||1"
    assert scene.summary("b") == "4|4,2||0"
    assert scene.image.brokers[NodeId(4)].log_dirs == (directory(42),)
    scene.heartbeat(4, offline=(41,))
    assert scene.last == ()
    assert scene.set_isr("a", 0, 2, 4) is ErrorCode.INELIGIBLE_REPLICA


def assign(scene: Scene, broker: int, name: str, number: int) -> ErrorCode:
    decision = decide_directory_assignments(
        scene.image,
        scene.policy,
        NodeId(broker),
        scene.epoch(broker),
        [DirectoryAssignment(scene.ref(name), directory(number))],
    )
    answer = scene.take(decision)
    [(_, error)] = answer.partitions
    return error.code


def test_a_replaced_disk_does_not_lead_an_empty_partition(scene: Scene) -> None:
    """The only replica lost its disk: nobody pretends that there never was any data."""
    scene.create("t", (1,))
    scene.fence(1)
    scene.register(scene.registration(1, dirs=(77,)))
    scene.heartbeat(1)
    assert scene.summary("t") == "-1|||1"
    assert assign(scene, 1, "t", 77) is ErrorCode.NONE
    assert scene.summary("t") == "-1|||1"
    unclean = decide_elections(
        scene.image, scene.policy, 1, [TopicPartition("t", PartitionIndex(0))]
    )
    scene.take(unclean)
    assert scene.summary("t") == "1|1||2"


def test_directory_assignments_are_checked(scene: Scene) -> None:
    scene.create("t", (1, 2))
    assert assign(scene, 3, "t", 103) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(scene, 1, "t", 101) is ErrorCode.NONE and scene.last == ()
    stale = decide_directory_assignments(
        scene.image,
        scene.policy,
        ONE,
        BrokerEpoch(0),
        [DirectoryAssignment(scene.ref("t"), directory(1))],
    )
    assert stale.response.error.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_absent_replica_restarts_empty(scene: Scene) -> None:
    """DESIGN 2.4, hazard 23."""
    scene.create("t", (1, 2, 3))
    ref = scene.ref("t")
    present = decide_restart_empty(scene.image, scene.policy, ref, ONE)
    assert present.response.code is ErrorCode.INVALID_REQUEST
    scene.fence(1)
    scene.fence(3)
    assert scene.summary("t") == "2|2|3|1"
    assert scene.take(decide_restart_empty(scene.image, scene.policy, ref, NodeId(3))).code == 0
    assert scene.summary("t") == "2|2||1"
    scene.register(scene.registration(3))
    scene.heartbeat(3)
    assert scene.set_isr("t", 0, 2, 3) is ErrorCode.INELIGIBLE_REPLICA
    early = decide_restarted_empty(scene.image, ref, NodeId(3), BrokerEpoch(0))
    assert early.response.code is ErrorCode.STALE_BROKER_EPOCH
    scene.take(decide_restarted_empty(scene.image, ref, NodeId(3), scene.epoch(3)))
    assert scene.set_isr("t", 0, 2, 3) is ErrorCode.NONE
    again = decide_restarted_empty(scene.image, ref, NodeId(3), scene.epoch(3))
    assert again.records == ()


def test_the_best_that_is_left_is_not_thrown_away(scene: Scene) -> None:
    scene.create("t", (1, 2))
    scene.fence(1)
    scene.fence(2)
    refused = decide_restart_empty(scene.image, scene.policy, scene.ref("t"), ONE)
    assert refused.response.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    unknown = decide_restart_empty(scene.image, scene.policy, scene.ref("t"), NodeId(9))
    assert unknown.response.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producer_ids_come_in_blocks_and_end(scene: Scene) -> None:
    first = scene.take(decide_producer_ids(scene.image, ONE, scene.epoch(1)))
    second = scene.take(decide_producer_ids(scene.image, TWO, scene.epoch(2)))
    assert (first.first, second.first, second.size) == (0, BLOCK_SIZE, BLOCK_SIZE)
    scene.apply((ProducerIds(ONE, scene.epoch(1), ProducerId(2**63 - 1000)),))
    last = decide_producer_ids(scene.image, ONE, scene.epoch(1))
    assert last.response.error.code is ErrorCode.UNKNOWN_SERVER_ERROR and last.records == ()
