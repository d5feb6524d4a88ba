"""The controller between its quorum and its callers: what is decided, known and answered when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from controller_cluster import CLUSTER_ID, QuorumLog, node

from tidelog.controller.decisions.create_topics import CreatedTopic, NewTopic, decide_create_topics
from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.decisions.registration import RegistrationRequest, decide_registration
from tidelog.controller.metadata.records import (
    Config,
    FeatureLevel,
    MetadataRecord,
    NoOp,
    RegisterBroker,
    RegisterController,
    ResourceType,
    UnregisterBroker,
)
from tidelog.controller.metadata.snapshot import image_to_records
from tidelog.controller.quorum.interface import CommittedBatch, NotController, QuorumOverloaded
from tidelog.controller.raft.model import SnapshotId, Term
from tidelog.controller.service.controller import Basis, Cause, Controller
from tidelog.kernel.ids import BrokerEpoch, DirectoryId, IncarnationId, NodeId, Offset, Uuid
from tidelog.kernel.settings import Settings
from tidelog.simulation import SimRandom, World, run_simulation

ASKED = Cause("test", "somebody asked")
OWN = RegisterController(NodeId(1), IncarnationId(Uuid(bytes(16))))


class Scene:
    def __init__(self, world: World, *numbers: int, **settings: str) -> None:
        self.log = QuorumLog(follower_delay_s=0)
        self.halted: list[str] = []
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.controllers = {
            number: Controller(
                ControllerPolicy(CLUSTER_ID, node(number), Settings.of(values)),
                clock=world.clock,
                random=SimRandom(number),
                halt=lambda why, error: self.halted.append(f"{why}: {error}"),
            )
            for number in numbers
        }
        for controller in self.controllers.values():
            self.log.join(controller)


def on_controllers(
    *numbers: int, **settings: str
) -> Callable[[Callable[[Scene], Awaitable[None]]], Callable[[], None]]:
    def wrap(scenario: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            async def main(world: World) -> None:
                await scenario(Scene(world, *numbers, **settings))

            run_simulation(main, seed=1)

        test.__doc__ = scenario.__doc__
        return test

    return wrap


def set_config(name: str, value: str) -> Callable[[Basis], Decision[str]]:
    record = Config(ResourceType.BROKER, "", name, value)
    return lambda _: Decision((record,), value)


def look_at(name: str) -> Callable[[Basis], Decision[str | None]]:
    return lambda basis: Decision((), basis.image.config(ResourceType.BROKER, "").get(name))


def create(name: str) -> Callable[[Basis], Decision[tuple[CreatedTopic, ...]]]:
    topic = NewTopic(name, 1, 1)
    return lambda b: decide_create_topics(b.image, b.policy, [topic], b.random)


def register(basis: Basis) -> Decision[BrokerEpoch]:
    request = RegistrationRequest(
        node(11),
        CLUSTER_ID,
        IncarnationId(Uuid(b"i" * 16)),
        (DirectoryId(Uuid(b"d" * 16)),),
        features=(),
    )
    decision = decide_registration(
        basis.image.__class__(offset=basis.image.offset),
        basis.policy,
        request,
        next_offset=basis.next_offset,
        has_session=False,
    )
    return Decision(decision.records, decision.response.broker_epoch)


@on_controllers(1, 2, 3)
async def test_a_new_cluster_is_bootstrapped_once(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    first = scene.controllers[3].committed
    assert first.features["metadata.version"] == 30
    assert first.config(ResourceType.BROKER, "")["min.insync.replicas"] == "1"
    scene.log.elect(node(2))
    await asyncio.sleep(0.1)
    assert scene.controllers[1].committed == first


@on_controllers(1, eligible_leader_replicas_enable="false")
async def test_eligible_leader_replicas_can_be_left_out(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    features = scene.controllers[1].committed.features
    assert "eligible.leader.replicas.version" not in features
    assert "metadata.version" in features


@on_controllers(1, 2)
async def test_an_answer_waits_for_its_commit(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    active = scene.controllers[1]
    scene.log.hold()
    answer = asyncio.ensure_future(active.change(ASKED, set_config("a", "1")))
    await asyncio.sleep(10)
    assert not answer.done()
    assert "a" not in active.committed.config(ResourceType.BROKER, "")
    assert active.image.config(ResourceType.BROKER, "")["a"] == "1"
    scene.log.release()
    assert await answer == "1"
    assert active.committed.config(ResourceType.BROKER, "")["a"] == "1"
    await asyncio.sleep(0.1)
    assert scene.controllers[2].committed == active.committed == active.image


@on_controllers(1)
async def test_decisions_build_on_what_is_not_committed_yet(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    active = scene.controllers[1]
    scene.log.hold()
    first = asyncio.ensure_future(active.change(ASKED, set_config("a", "1")))
    await asyncio.sleep(1)
    read = asyncio.ensure_future(active.change(ASKED, look_at("a")))
    await asyncio.sleep(1)
    assert not read.done()  # what it saw may yet be undone
    scene.log.release()
    assert (await first, await read) == ("1", "1")


@on_controllers(1, 2)
async def test_lost_leadership_fails_what_is_pending_and_forgets_it(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    old = scene.controllers[1]
    scene.log.hold()
    changes = old.decide(ASKED, set_config("a", "1")), old.decide(ASKED, look_at("a"))
    pending = asyncio.gather(*(one.answer() for one in changes), return_exceptions=True)
    await asyncio.sleep(1)
    scene.log.depose()
    assert [type(answer) for answer in await pending] == [NotController, NotController]
    assert "a" not in old.image.config(ResourceType.BROKER, "")
    with pytest.raises(NotController):
        old.decide(ASKED, set_config("b", "1"))
    scene.log.commits = True
    scene.log.elect(node(1))
    assert await old.change(ASKED, look_at("a")) is None


@on_controllers(1, 2)
async def test_what_was_pending_may_be_committed_by_the_next_leader(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    scene.log.hold()
    lost = asyncio.ensure_future(scene.controllers[1].change(ASKED, set_config("a", "1")))
    await asyncio.sleep(1)
    scene.log.depose(keep_uncommitted=True)
    scene.log.commits = True
    scene.log.elect(node(2))
    with pytest.raises(NotController):
        await lost
    scene.log.members[node(1)].catch_up()
    assert scene.controllers[1].committed.config(ResourceType.BROKER, "")["a"] == "1"
    assert scene.halted == []


@on_controllers(1)
async def test_who_gives_up_waiting_does_not_undo_the_proposal(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    scene.log.hold()
    impatient = asyncio.ensure_future(scene.controllers[1].change(ASKED, set_config("a", "1")))
    await asyncio.sleep(1)
    patient = asyncio.ensure_future(scene.controllers[1].change(ASKED, look_at("a")))
    await asyncio.sleep(1)
    impatient.cancel()
    await asyncio.sleep(1)
    scene.log.release()
    assert await patient == "1"


@on_controllers(1)
async def test_an_overloaded_quorum_refuses_without_a_trace(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    active = scene.controllers[1]
    before = active.image
    scene.log.is_overloaded = True
    with pytest.raises(QuorumOverloaded):
        active.decide(ASKED, set_config("a", "1"))
    assert active.image is before


@on_controllers(1)
async def test_a_broker_epoch_is_the_offset_of_its_registration(scene: Scene) -> None:
    """Also right after an election, whose own record is not shown to the controller."""
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    scene.log.elect(node(1))
    epoch = await scene.controllers[1].change(ASKED, register)
    [(batch, index)] = [
        (batch, index)
        for batch in scene.log.committed
        for index, record in enumerate(batch.records)
        if isinstance(record, RegisterBroker)
    ]
    assert epoch == batch.base_offset + index


@on_controllers(1)
async def test_a_decision_of_very_many_records_goes_in_several_batches(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    records: tuple[MetadataRecord, ...] = (NoOp(),) * 25_000
    before = len(scene.log.committed)
    await scene.controllers[1].change(ASKED, lambda _: Decision(records, None))
    sizes = [len(batch.records) for batch in scene.log.committed[before:]]
    assert sizes == [10_000, 10_000, 5_000]


@on_controllers(1, 2)
async def test_a_record_that_does_not_fit_halts_the_node(scene: Scene) -> None:
    stray = UnregisterBroker(node(5), BrokerEpoch(3))
    scene.controllers[2].apply(CommittedBatch(Offset(0), Offset(0), Term(1), (stray,)))
    assert "cannot change broker 5" in scene.halted[0]


@on_controllers(1)
async def test_a_foreign_record_while_active_halts_the_node(scene: Scene) -> None:
    scene.log.elect(node(1))
    await asyncio.sleep(0.1)
    active = scene.controllers[1]
    foreign = CommittedBatch(scene.log.end, scene.log.end, Term(9), (NoOp(),))
    active.apply(foreign)
    assert "is not what this active controller proposed" in scene.halted[0]


@on_controllers(1, 2)
async def test_a_snapshot_replaces_everything(scene: Scene) -> None:
    scene.log.elect(node(1))
    active = scene.controllers[1]
    await active.change(ASKED, set_config("a", "1"))
    fresh = scene.controllers[2]
    end = Offset(active.committed.offset + 1)
    fresh.load_snapshot(SnapshotId(end, Term(1)), active.snapshot_records())
    assert fresh.committed == active.committed
    assert (fresh.history.start_offset, fresh.history.end_offset) == (end, end)
    assert list(fresh.snapshot_records()) == list(image_to_records(active.committed))


@on_controllers(1)
async def test_a_damaged_snapshot_halts_the_node(scene: Scene) -> None:
    records = [FeatureLevel("metadata.version", 30)]
    scene.controllers[1].load_snapshot(SnapshotId(Offset(5), Term(1)), records)
    assert "is damaged" in scene.halted[0]


def test_an_elected_controller_registers_itself_once() -> None:
    async def main(world: World) -> None:
        log = QuorumLog()
        controller = Controller(
            ControllerPolicy(CLUSTER_ID, node(1)),
            clock=world.clock,
            random=SimRandom(1),
            halt=lambda why, error: pytest.fail(why),
            registration=OWN,
        )
        log.join(controller)
        for _ in range(3):
            log.elect(node(1))
            await asyncio.sleep(0.1)
        records = [record for batch in log.committed for record in batch.records]
        assert records.count(OWN) == 1

    run_simulation(main, seed=1)


def test_decisions_are_logged_with_their_cause(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        scene = Scene(world, 1)
        scene.log.elect(node(1))
        with caplog.at_level(logging.INFO, logger="tidelog.controller.service.controller"):
            caplog.clear()
            cause = Cause("raise the limit", "an operator asked")
            await scene.controllers[1].change(cause, set_config("a", "1"))

    run_simulation(main, seed=1)
    [line] = caplog.records
    assert line.getMessage() == "raise the limit, because an operator asked"
    extra = vars(line)
    assert (extra["what"], extra["epoch"], extra["record_count"]) == ("raise the limit", 1, 1)
