"""What a leader reports about its ISR counts only if nothing it was based on has changed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tidelog.controller.decisions.alter_partition import (
    IsrMember,
    PartitionReport,
    decide_alter_partition,
)
from tidelog.controller.decisions.delete_topics import Deletion, decide_delete_topics
from tidelog.controller.decisions.leaders import decide_elections
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import LeaderRecovery
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    TopicPartition,
)

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene


@pytest.fixture
def led(scene: Scene) -> Scene:
    """t-0 on 1, 2 and 3: leader 2 in its epoch 1, partition epoch 2, ISR 2 and 3."""
    scene.create("t", (1, 2, 3))
    scene.fence(1)
    scene.heartbeat(1)
    assert scene.set_isr("t", 0, 1, 2, 3) is ErrorCode.NONE
    assert scene.summary("t") == "2|1,2,3||1"
    return scene


def test_a_shrunk_isr_keeps_leader_and_epoch(led: Scene) -> None:
    verdict = led.alter(led.report_of("t", 0, 3, 2))
    assert verdict.state == led.state("t")
    assert led.summary("t") == "2|2,3||1"
    assert led.state("t").partition_epoch == 3


def test_below_min_isr_those_who_leave_stay_eligible(led: Scene) -> None:
    led.set_isr("t", 0, 2)
    assert led.summary("t") == "2|2|1,3|1"
    led.set_isr("t", 0, 2, 3)
    assert led.summary("t") == "2|2,3||1"


def test_the_same_isr_again_writes_nothing(led: Scene) -> None:
    verdict = led.alter(led.report_of("t", 0, 3, 1, 2))
    assert verdict.error.code is ErrorCode.NONE and led.last == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader_epoch": LeaderEpoch(0)}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": LeaderEpoch(2)}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": PartitionEpoch(1)}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": PartitionEpoch(3)}, ErrorCode.NOT_CONTROLLER),
        ({"recovery": LeaderRecovery.RECOVERING}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
def test_epochs_are_fenced(led: Scene, change: dict[str, object], code: ErrorCode) -> None:
    report = dataclasses.replace(led.report_of("t", 0, 2), **change)  # type: ignore[arg-type]
    before = led.image
    assert led.alter(report).error.code is code
    assert led.image == before


def test_only_the_leader_reports(led: Scene) -> None:
    verdict = led.alter(led.report_of("t", 0, 2, 3), sender=3)
    assert verdict.error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("isr", [(2, 4), (1, 3), (2, 2), ()], ids=str)
def test_an_isr_is_made_of_replicas_and_has_the_leader(led: Scene, isr: tuple[int, ...]) -> None:
    """Hazard 4: who was never assigned holds nothing."""
    led.start(4)
    assert led.set_isr("t", 0, *isr) is ErrorCode.INVALID_REQUEST


def test_a_fenced_or_leaving_member_is_not_admitted(led: Scene) -> None:
    led.set_isr("t", 0, 2)
    led.fence(1)
    assert led.set_isr("t", 0, 1, 2) is ErrorCode.INELIGIBLE_REPLICA
    led.create("u", (3,))
    led.heartbeat(3, wants_shut_down=True)
    assert led.set_isr("t", 0, 2, 3) is ErrorCode.INELIGIBLE_REPLICA


def test_a_wiped_broker_is_not_admitted_by_a_report_about_its_predecessor(led: Scene) -> None:
    """Hazard 6, KIP-903: the report was on its way when 3 lost its disk and registered again."""
    led.set_isr("t", 0, 1, 2)
    on_its_way = led.report_of("t", 0, 1, 2, 3)
    led.register(led.registration(3))
    led.heartbeat(3)
    verdict = led.alter(on_its_way)
    assert verdict.error.code is ErrorCode.INELIGIBLE_REPLICA
    assert led.summary("t") == "2|1,2||1"
    refreshed = dataclasses.replace(
        on_its_way, isr=(*on_its_way.isr[:2], IsrMember(NodeId(3), BrokerEpoch(-1)))
    )
    assert led.alter(refreshed).error.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_stale_sender_is_refused_as_a_whole(led: Scene) -> None:
    report = led.report_of("t", 0, 2)
    epoch = led.epoch(2)
    led.register(led.registration(2))
    decision = decide_alter_partition(led.image, led.policy, NodeId(2), epoch, [report])
    assert decision.response.error.code is ErrorCode.STALE_BROKER_EPOCH
    assert decision.records == () and decision.response.partitions == ()


def test_a_report_about_a_deleted_topic_does_not_reach_its_successor(led: Scene) -> None:
    """Hazard 9: the name is the same, the topic is not."""
    report = led.report_of("t", 0, 2)
    led.take(decide_delete_topics(led.image, led.policy, [Deletion("t")]))
    assert led.alter(report, sender=2).error.code is ErrorCode.UNKNOWN_TOPIC_ID
    led.create("t", (2, 3))
    assert led.alter(report, sender=2).error.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert led.summary("t") == "2|2,3||0"
    beyond = PartitionRef(led.ref("t").topic_id, PartitionIndex(7))
    unknown = led.alter(dataclasses.replace(report, partition=beyond), sender=2)
    assert unknown.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_is_reported_once_per_request(led: Scene) -> None:
    reports: list[PartitionReport] = [led.report_of("t", 0, 2, 3), led.report_of("t", 0, 2)]
    decision = decide_alter_partition(led.image, led.policy, NodeId(2), led.epoch(2), reports)
    codes = [verdict.error.code for verdict in decision.response.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST] and len(decision.records) == 1


def test_an_isr_may_grow_whatever_the_high_watermark(led: Scene) -> None:
    """Hazard 11: below min ISR the high watermark is frozen, so admission must not wait for it;
    the controller knows no high watermark and asks for none."""
    led.set_isr("t", 0, 2)
    led.fence(2)
    led.fence(1)
    led.fence(3)
    led.heartbeat(2)
    assert led.summary("t") == "2|2|1,3|5"
    led.heartbeat(3)
    assert led.set_isr("t", 0, 2, 3) is ErrorCode.NONE
    assert led.summary("t") == "2|2,3||5"


def test_a_recovering_leader_says_when_it_has_recovered(led: Scene) -> None:
    led.create("u", (1, 2))
    led.set_isr("u", 0, 1)
    led.take_elr_away("u")
    led.fence(1)
    led.take(decide_elections(led.image, led.policy, 1, [TopicPartition("u", PartitionIndex(0))]))
    assert led.summary("u") == "2|2||2"
    assert led.state("u").leader_recovery is LeaderRecovery.RECOVERING
    alone = dataclasses.replace(led.report_of("u", 0, 2), recovery=LeaderRecovery.RECOVERING)
    assert led.alter(alone).error.code is ErrorCode.NONE and led.last == ()
    led.heartbeat(1)
    two = dataclasses.replace(led.report_of("u", 0, 1, 2), recovery=LeaderRecovery.RECOVERING)
    assert led.alter(two).error.code is ErrorCode.INVALID_REQUEST
    assert led.set_isr("u", 0, 1, 2) is ErrorCode.NONE
    assert led.state("u").leader_recovery is LeaderRecovery.RECOVERED
