"""The heartbeat stream as a controller serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from controller_cluster import context_of, directory, node

from tidelog.controller.liveness import BrokerLost, LossReason, Tick
from tidelog.controller.metadata.records import BrokerRegistrationChange
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.peers import PeerRefused
from tidelog.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from tests.unit.controller.service.conftest import Desk, ScriptedStream

AtTheDesk = Callable[..., Any]


def new_stream() -> ScriptedStream:
    from tests.unit.controller.service.conftest import ScriptedStream

    return ScriptedStream()


def test_a_heartbeat_unfences_after_the_commit(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.register(desk.request(11))
        stream = new_stream()
        serving = asyncio.ensure_future(desk.heartbeats.serve(context_of(11), stream))
        behind = desk.heartbeat(answer.broker_epoch, 1, metadata_end_offset=answer.broker_epoch)
        stream.put(behind)
        await asyncio.sleep(0.1)
        assert (stream.sent[-1].is_caught_up, stream.sent[-1].is_fenced) == (False, True)
        desk.log.hold()
        stream.put(desk.heartbeat(answer.broker_epoch, 2))
        await asyncio.sleep(0.1)
        for sequence in (3, 4, 5):
            stream.put(desk.heartbeat(answer.broker_epoch, sequence))
            await asyncio.sleep(0.1)
        assert len(stream.sent) == 1
        desk.log.release()
        await asyncio.sleep(0.1)
        # The newest of those that came meanwhile is answered, the others are not.
        assert [(one.sequence, one.is_fenced) for one in stream.sent[1:]] == [
            (2, False),
            (5, False),
        ]
        assert stream.sent[-1].active_controller.node_id == 1
        serving.cancel()

    at_the_desk(scenario)


def test_heartbeats_count_while_an_answer_waits_for_its_commit(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        epoch, stream = await desk.add_broker(11)
        desk.log.hold()
        stream.put(desk.heartbeat(epoch, want_fence=True))
        for _ in range(20):
            await asyncio.sleep(0.5)
            stream.put(desk.heartbeat(epoch))
        now_ms = desk.controller.clock.monotonic_ms()
        assert desk.controller.liveness.step(now_ms, Tick(now_ms, drained=True)) == []
        stream.reset()
        await asyncio.sleep(1)
        now_ms = desk.controller.clock.monotonic_ms()
        [lost] = desk.controller.liveness.step(now_ms, Tick(now_ms, drained=True))
        assert lost == BrokerLost(node(11), epoch, LossReason.STREAM_RESET)  # type: ignore[arg-type]

    at_the_desk(scenario)


def test_a_broker_without_an_epoch_is_told_who_is_active(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        stream = new_stream()
        serving = asyncio.ensure_future(desk.heartbeats.serve(context_of(11), stream))
        stream.put(desk.heartbeat(None, 7))
        await asyncio.sleep(0.1)
        [answer] = stream.sent
        assert (answer.sequence, answer.error_code) == (7, 0)
        assert answer.active_controller.node_id == 1
        serving.cancel()

    at_the_desk(scenario)


@pytest.mark.parametrize("offset", [-1, 1, 1000])
def test_a_wrong_epoch_is_stale(at_the_desk: AtTheDesk, offset: int) -> None:
    async def scenario(desk: Desk) -> None:
        epoch, stream = await desk.add_broker(11)
        stream.put(desk.heartbeat(epoch + offset, 9))
        await asyncio.sleep(0.1)
        assert stream.sent[-1].error_code == ErrorCode.STALE_BROKER_EPOCH

    at_the_desk(scenario)


def test_a_standby_takes_notes_and_judges_nothing(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        epoch, stream = await desk.add_broker(11)
        desk.log.depose()
        desk.log.leader = node(3)
        before = len(desk.log.committed)
        stream.put(desk.heartbeat(epoch + 5, 2, want_fence=True))
        await asyncio.sleep(0.1)
        answer = stream.sent[-1]
        assert (answer.sequence, answer.error_code, answer.is_fenced) == (2, 0, False)
        assert answer.active_controller.node_id == 3
        assert len(desk.log.committed) == before
        assert desk.controller.liveness.lowest_metadata_offset([node(11)]) is not None

    at_the_desk(scenario)


def test_leadership_lost_before_the_commit_makes_it_a_standbys_answer(
    at_the_desk: AtTheDesk,
) -> None:
    async def scenario(desk: Desk) -> None:
        epoch, stream = await desk.add_broker(11)
        desk.log.hold()
        stream.put(desk.heartbeat(epoch, 2, want_fence=True))
        await asyncio.sleep(0.1)
        desk.log.depose()
        await asyncio.sleep(0.1)
        answer = stream.sent[-1]
        assert (answer.sequence, answer.is_fenced) == (2, False)
        assert not answer.HasField("active_controller")

    at_the_desk(scenario)


def test_a_failed_directory_is_noted_once(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        request = desk.request(11, log_dirs=(directory(1), directory(2)))
        epoch = (await desk.register(request)).broker_epoch
        stream = new_stream()
        serving = asyncio.ensure_future(desk.heartbeats.serve(context_of(11), stream))
        for sequence in range(3):
            failed = [directory(2).raw]
            stream.put(desk.heartbeat(epoch, sequence, offline_log_directory_ids=failed))
            await asyncio.sleep(0.1)
        changes = [
            record
            for batch in desk.log.committed
            for record in batch.records
            if isinstance(record, BrokerRegistrationChange) and record.log_dirs is not None
        ]
        assert [change.log_dirs for change in changes] == [(directory(1),)]
        serving.cancel()

    at_the_desk(scenario)


def test_the_stream_of_an_earlier_incarnation_does_not_speak_for_its_successor(
    at_the_desk: AtTheDesk,
) -> None:
    """It may reconnect and go again; its successor lives on."""

    async def scenario(desk: Desk) -> None:
        old = (await desk.register(desk.request(11))).broker_epoch
        new = (await desk.register(desk.request(11, incarnation=2))).broker_epoch
        assert new > old
        streams = [new_stream(), new_stream()]
        for stream, epoch in zip(streams, (new, old), strict=True):
            desk.spawn_heartbeats(11, stream)
            stream.put(desk.heartbeat(epoch))
            await asyncio.sleep(0.1)
        assert streams[1].sent[-1].error_code == ErrorCode.STALE_BROKER_EPOCH
        streams[1].reset()
        await asyncio.sleep(1)
        now_ms = desk.controller.clock.monotonic_ms()
        assert desk.controller.liveness.step(now_ms, Tick(now_ms, drained=True)) == []

    at_the_desk(scenario)


def test_nonsense_ends_the_stream(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        for heartbeat in (
            pb.HeartbeatRequest(broker_epoch=1, offline_log_directory_ids=[b"x"]),
            pb.HeartbeatRequest(broker_epoch=1, offline_log_directory_ids=[b"x" * 16] * 257),
        ):
            stream = new_stream()
            stream.put(heartbeat)
            with pytest.raises(PeerRefused, match="INVALID_REQUEST"):
                await desk.heartbeats.serve(context_of(11), stream)

    at_the_desk(scenario)
