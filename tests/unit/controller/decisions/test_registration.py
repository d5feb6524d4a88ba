"""Brokers register by incarnation, and what a restart costs them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    decide_incremental_configs,
)
from tidelog.controller.decisions.features import FeatureUpdate, decide_feature_updates
from tidelog.controller.decisions.registration import (
    RecoveryReport,
    RecoveryVerdict,
    decide_unregistration,
)
from tidelog.controller.metadata.records import (
    Endpoint,
    FeatureRange,
    LeaderRecovery,
    RegisterBroker,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, DirectoryId, LeaderEpoch, NodeId, Offset

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene


def test_the_epoch_is_the_offset_of_the_registration(scene: Scene) -> None:
    scene.create("t", (1, 2))
    scene.fence(2)
    scene.fence(1)  # ISR empty, ELR 1 and 2: a lossy restart of 1 writes a change first
    set_page_cache(scene)
    offset = scene.next_offset
    answer = scene.register(scene.registration(1))
    assert isinstance(scene.last[-1], RegisterBroker) and len(scene.last) == 2
    assert answer.broker_epoch == offset + 1 == scene.image.offset


def test_registering_again_changes_nothing(scene: Scene) -> None:
    """Hazard 12: a lost answer does not wedge the broker."""
    request = scene.registration(4, incarnation=99)
    first = scene.register(request)
    scene.heartbeat(4)
    again = scene.register(request, has_session=True)
    assert again == first and scene.last == ()
    assert not scene.image.brokers[NodeId(4)].fenced
    moved = dataclasses.replace(request, endpoints=(Endpoint("PLAINTEXT", "other", 1),))
    assert scene.register(moved, has_session=True) == first
    known = scene.image.brokers[NodeId(4)]
    assert (known.endpoints[0].host, known.fenced, known.epoch) == (
        "other",
        False,
        first.broker_epoch,
    )


def test_another_incarnation_waits_for_the_end_of_the_first(scene: Scene) -> None:
    refused = scene.register(scene.registration(1), has_session=True)
    assert refused.error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    old = scene.epoch(1)
    assert scene.register(scene.registration(1)).broker_epoch > old
    assert scene.image.brokers[NodeId(1)].fenced


def test_a_broker_in_shutdown_may_be_followed_at_once(scene: Scene) -> None:
    scene.create("t", (1, 2))
    scene.heartbeat(1, wants_shut_down=True)
    assert scene.register(scene.registration(1), has_session=True).error.code is ErrorCode.NONE


def test_bad_registrations(scene: Scene) -> None:
    good = scene.registration(4)
    zero = DirectoryId(ZERO_UUID)
    old = (FeatureRange("metadata.version", 1, 7),)
    for change, code in [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": good.log_dirs * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (zero,)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": scene.image.brokers[NodeId(1)].log_dirs}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": (*good.features[1:], *old)}, ErrorCode.UNSUPPORTED_VERSION),
    ]:
        answer = scene.register(dataclasses.replace(good, **change))  # type: ignore[arg-type]
        assert answer.error.code is code, change
        assert answer.error.message and scene.last == ()


def set_page_cache(scene: Scene) -> None:
    change = ResourceChange(4, "", (ConfigOperation("log.flush.policy", 0, "page-cache"),))
    [result] = scene.take(decide_incremental_configs(scene.image, scene.policy, [change]))
    assert result.error.code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("flush", "clean", "dirs", "expected"),
    [
        ("fsync", True, None, "2|2|1|1"),
        ("fsync", False, None, "2|2|1|1"),
        ("fsync", False, (77,), "2|2||1"),  # its disk was replaced
        ("page-cache", True, None, "2|2|1|1"),
        ("page-cache", False, None, "2|2||1"),
    ],
)
def test_what_a_restart_costs(
    scene: Scene, flush: str, clean: bool, dirs: tuple[int, ...] | None, expected: str
) -> None:
    """DESIGN 2.2; hazard 7."""
    scene.create("t", (1, 2), flush_policy=flush)
    previous = scene.epoch(1) if clean else -1
    scene.register(scene.registration(1, dirs=dirs, previous_epoch=previous))
    assert scene.summary("t") == expected


def test_without_elr_the_last_member_of_the_isr_stays(scene: Scene) -> None:
    off = FeatureUpdate("eligible.leader.replicas.version", 0, 2)
    scene.take(decide_feature_updates(scene.image, scene.policy, [off]))
    scene.create("t", (1,), flush_policy="page-cache")
    scene.register(scene.registration(1))
    assert scene.summary("t") == "-1|1||1"
    scene.heartbeat(1)
    assert scene.summary("t") == "1|1||2"


def suspect(scene: Scene, end: int, epoch: int = 0, name: str = "t") -> tuple[RecoveryReport, ...]:
    report = RecoveryReport(
        scene.ref(name), LeaderEpoch(epoch), Offset(end), RecoveryVerdict.SUSPECT
    )
    return (report,)


def test_a_torn_tail_costs_nothing(scene: Scene) -> None:
    scene.create("t", (1, 2))
    scene.fence(1)
    [report] = suspect(scene, 10)
    torn = dataclasses.replace(report, verdict=RecoveryVerdict.TORN_TAIL)
    scene.register(scene.registration(1, reports=(torn,)))
    assert scene.summary("t") == "2|2|1|1"
    assert scene.state("t").suspects == ()


def test_a_suspect_leaves_when_a_sound_replica_leads(scene: Scene) -> None:
    """Hazard 41."""
    scene.create("t", (1, 2))
    scene.fence(1)
    scene.register(scene.registration(1, reports=suspect(scene, 10)))
    assert scene.summary("t") == "2|2||1"


def test_a_suspect_waits_for_those_who_have_not_reported(scene: Scene) -> None:
    scene.create("t", (1, 2))
    scene.fence(1)
    scene.fence(2)
    assert scene.summary("t") == "-1||1,2|2"
    scene.register(scene.registration(1, reports=suspect(scene, 10)))
    scene.heartbeat(1)
    assert scene.summary("t") == "-1||1,2|2"
    # The other one turns out to be sound: it leads, and the suspect fetches anew.
    scene.register(scene.registration(2))
    scene.heartbeat(2)
    assert scene.summary("t") == "2|2||3"
    assert scene.state("t").suspects == ()
    assert scene.state("t").leader_recovery is LeaderRecovery.RECOVERED


@pytest.mark.parametrize(
    ("one", "two", "leader"),
    [((0, 10), (0, 20), 2), ((0, 20), (0, 10), 1), ((1, 5), (0, 20), 1), ((0, 9), (0, 9), 1)],
)
def test_when_all_are_suspect_the_longest_history_leads(
    scene: Scene, one: tuple[int, int], two: tuple[int, int], leader: int
) -> None:
    scene.create("t", (1, 2))
    scene.fence(1)
    scene.fence(2)
    for broker, (epoch, end) in ((1, one), (2, two)):
        scene.register(scene.registration(broker, reports=suspect(scene, end, epoch)))
    loser = 3 - leader
    scene.heartbeat(loser)
    assert scene.state("t").leader == -1
    scene.heartbeat(leader)
    assert scene.summary("t") == f"{leader}|{leader}||3"
    assert scene.state("t").leader_recovery is LeaderRecovery.RECOVERING


def test_a_replica_whose_log_is_missing_does_not_lead_before_one_that_has_it(scene: Scene) -> None:
    """Its directory was removed, or no longer says which topic it belongs to."""
    scene.create("t", (1, 2))
    scene.create("u", (1, 2))
    scene.fence(1)
    scene.fence(2)
    scene.register(scene.registration(1, held=(scene.ref("u"),)))
    scene.heartbeat(1)
    assert scene.summary("u").startswith("1|1|")
    assert scene.summary("t") == "-1||1,2|2"
    scene.register(scene.registration(2, held=(scene.ref("t"), scene.ref("u"))))
    scene.heartbeat(2)
    assert scene.summary("t") == "2|2||3"


def test_a_suspicion_outlives_the_next_restart(scene: Scene) -> None:
    """What recovery cut off does not come back by restarting once more."""
    scene.create("t", (1, 2))
    scene.fence(1)
    scene.fence(2)
    scene.register(scene.registration(1, reports=suspect(scene, 10)))
    scene.register(scene.registration(1))
    scene.heartbeat(1)
    assert scene.state("t").leader == -1


def test_unregistration(scene: Scene) -> None:
    scene.create("t", (1, 2, 3))
    answer = scene.take(decide_unregistration(scene.image, scene.policy, NodeId(1)))
    assert answer.code is ErrorCode.NONE
    assert scene.summary("t") == "2|2,3||1"
    assert NodeId(1) not in scene.image.brokers
