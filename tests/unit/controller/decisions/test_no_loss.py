"""Whatever happens to the brokers, a cleanly elected leader holds everything acknowledged.

Beside the decisions runs a crude picture of the data: which replicas hold all records that were
acknowledged under acks=all. A record is acknowledged when the ISR has min.insync.replicas
members, and then by all of the ISR and nobody else. A replaced disk holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    decide_incremental_configs,
)
from tidelog.controller.decisions.directories import (
    DirectoryAssignment,
    decide_directory_assignments,
)
from tidelog.controller.decisions.leaders import (
    decide_balancing,
    decide_elections,
    decide_leaderless,
)
from tidelog.controller.decisions.policy import min_insync_replicas
from tidelog.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from tidelog.controller.decisions.registration import RecoveryReport, RecoveryVerdict
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.records import LeaderRecovery
from tidelog.kernel.ids import (
    DirectoryId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicPartition,
    Uuid,
)

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene

T0 = TopicPartition("t", PartitionIndex(0))
BROKERS = (1, 2, 3, 4)


class World:
    """One partition, and who holds what was acknowledged."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.holds = set(BROKERS[:3])
        self.disks = 200
        self.acknowledged = False

    @property
    def state(self) -> PartitionState:
        return self.scene.state("t")

    def is_alive(self, broker: int) -> bool:
        return self.scene.image.brokers[NodeId(broker)].is_active

    def produce(self, _: int) -> None:
        least = min_insync_replicas(self.scene.image, self.scene.policy, "t")
        isr = self.state.isr
        if self.state.leader in isr and len(isr) >= min(least, len(self.state.replicas)):
            self.holds &= set(isr)
            self.acknowledged = True

    def fence(self, broker: int) -> None:
        self.scene.fence(broker)

    def unfence(self, broker: int) -> None:
        if not self.scene.image.brokers[NodeId(broker)].in_controlled_shutdown:
            self.scene.heartbeat(broker)

    def restart(self, broker: int) -> None:
        self.scene.register(
            self.scene.registration(broker, dirs=tuple(self.numbers_of_dirs(broker)))
        )

    def restart_damaged(self, broker: int) -> None:
        """Recovery cut off something that may have been acknowledged, and says so."""
        epoch = self.state.leader_epoch
        report = RecoveryReport(
            self.scene.ref("t"), LeaderEpoch(epoch), Offset(5), RecoveryVerdict.SUSPECT
        )
        dirs = tuple(self.numbers_of_dirs(broker))
        self.scene.register(self.scene.registration(broker, dirs=dirs, reports=(report,)))
        self.holds.discard(broker)

    def numbers_of_dirs(self, broker: int) -> list[int]:
        known = self.scene.image.brokers[NodeId(broker)].log_dirs
        return [int.from_bytes(d.raw, "big") for d in known]

    def replace_disk(self, broker: int) -> None:
        self.disks += 1
        self.scene.register(self.scene.registration(broker, dirs=(self.disks,)))
        self.holds.discard(broker)
        if NodeId(broker) in self.state.replicas:
            new = DirectoryId(Uuid(self.disks.to_bytes(16, "big")))
            assignment = DirectoryAssignment(self.scene.ref("t"), new)
            scene = self.scene
            scene.take(
                decide_directory_assignments(
                    scene.image, scene.policy, NodeId(broker), scene.epoch(broker), [assignment]
                )
            )

    def shut_down(self, broker: int) -> None:
        self.scene.heartbeat(broker, wants_shut_down=True)

    def shrink(self, broker: int) -> None:
        state = self.state
        if state.has_leader and broker != state.leader:
            self.scene.set_isr("t", 0, *(b for b in state.isr if b != broker))

    def catch_up(self, broker: int) -> None:
        """A follower has fetched everything; the leader asks for its admission."""
        state = self.state
        if not state.has_leader or broker not in state.replicas or not self.is_alive(broker):
            return
        leader_holds = state.leader in self.holds
        self.scene.set_isr("t", 0, *{*state.isr, broker})
        if leader_holds and broker in self.state.isr:
            self.holds.add(broker)

    def reassign(self, broker: int) -> None:
        target = tuple(NodeId(b) for b in BROKERS if b != broker)
        request = ReassignmentRequest(T0, target)
        self.scene.take(decide_reassignments(self.scene.image, self.scene.policy, [request]))

    def cancel(self, _: int) -> None:
        request = ReassignmentRequest(T0, None)
        self.scene.take(decide_reassignments(self.scene.image, self.scene.policy, [request]))

    def change_min_isr(self, broker: int) -> None:
        change = ConfigOperation("min.insync.replicas", 0, str(1 + broker % 3))
        changes = [ResourceChange(2, "t", (change,))]
        self.scene.take(decide_incremental_configs(self.scene.image, self.scene.policy, changes))

    def balance(self, _: int) -> None:
        self.scene.take(decide_balancing(self.scene.image, self.scene.policy))
        self.scene.take(decide_leaderless(self.scene.image, self.scene.policy))

    def elect_unclean(self, _: int) -> None:
        self.scene.take(decide_elections(self.scene.image, self.scene.policy, 1, [T0]))


EVENTS = [
    World.produce,
    World.produce,
    World.fence,
    World.fence,
    World.unfence,
    World.unfence,
    World.unfence,
    World.restart,
    World.restart_damaged,
    World.replace_disk,
    World.shut_down,
    World.shrink,
    World.catch_up,
    World.catch_up,
    World.catch_up,
    World.reassign,
    World.cancel,
    World.change_min_isr,
    World.balance,
]


def check(world: World, before: PartitionState) -> None:
    state, scene = world.state, world.scene
    assert set(state.isr) | set(state.elr) <= set(state.replicas)
    assert not set(state.isr) & set(state.elr)
    assert (state.leader == -1) or state.leader in state.isr
    least = min_insync_replicas(scene.image, scene.policy, "t")
    if state.elr and state.isr:
        assert len(state.isr) < min(max(least, 1), len(state.replicas))
    assert state.leader_epoch - before.leader_epoch >= (state.leader != before.leader)
    assert state.partition_epoch >= before.partition_epoch
    if state.leader != before.leader and state.has_leader:
        assert world.is_alive(state.leader)
    suspects = {suspect.broker for suspect in state.suspects}
    assert suspects <= {*state.isr, *state.elr}
    if state.leader != before.leader and state.leader_recovery is LeaderRecovery.RECOVERING:
        # Data was given up knowingly; from here on the new leader's log is the truth.
        world.holds = {int(state.leader)}
    assert {int(b) for b in state.isr} <= world.holds, "the ISR lacks acknowledged data"
    sound = {int(b) for b in state.elr} - {int(b) for b in suspects}
    assert sound <= world.holds, "an eligible replica lacks acknowledged data"


events = st.lists(
    st.tuples(st.integers(0, len(EVENTS) - 1), st.sampled_from(BROKERS)), min_size=5, max_size=30
)


@settings(
    derandomize=True,
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(events, st.booleans())
def test_a_clean_leader_holds_everything_acknowledged(
    fresh_scene: type[Scene], script: list[tuple[int, int]], unclean_on_request: bool
) -> None:
    scene = fresh_scene(min_insync_replicas="2")
    scene.start(*BROKERS)
    scene.create("t", (1, 2, 3))
    world = World(scene)
    for number, broker in script:
        before = world.state
        EVENTS[number](world, broker)
        check(world, before)
    if unclean_on_request:
        before = world.state
        world.elect_unclean(0)
        check(world, before)
