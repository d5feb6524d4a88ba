"""The Heartbeat stream: one from every broker to this controller, active or not.

The stream is read without pause, because reading is what keeps a broker alive: each heartbeat is
noted at once, and deciding about it happens beside the reading. Only the newest heartbeat counts,
so one that arrives while the answer to an earlier one waits for its commit replaces whatever else
was waiting.

A stream speaks for a broker from its first heartbeat with a current epoch on. A second process
with the same node id, or one that has not registered yet, must not take the place of the living:
the end of *its* stream would look like the death of the other (hazard 12).

Standbys answer too: they say who is active, and keep the notes from which they will judge should
they be elected (DESIGN 2.3).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.controller.decisions.broker_states import (
    BrokerHeartbeat,
    HeartbeatAnswer,
    decide_heartbeat,
)
from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.liveness import HeartbeatReceived, StreamOpened
from tidelog.controller.liveness import StreamReset as StreamWasReset
from tidelog.controller.quorum.interface import NotController, QuorumOverloaded
from tidelog.controller.service.contract import Malformed, broker_heartbeat
from tidelog.controller.service.controller import Basis, Cause, Controller
from tidelog.controller.service.refusals import active_controller
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import CallContext, PeerRefused, PeerStream
from tidelog.v1 import controller_pb2 as pb

_log = logging.getLogger(__name__)


HeartbeatStream: TypeAlias = PeerStream[pb.HeartbeatResponse, pb.HeartbeatRequest]


@dataclass(frozen=True, slots=True)
class _Heard:
    sequence: int
    heartbeat: BrokerHeartbeat | None
    """None from a broker that has not registered yet."""


@dataclass(slots=True)
class _Conversation:
    """One stream of one broker."""

    broker: NodeId
    number: int
    speaks_for_broker: bool = False
    newest: _Heard | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, heard: _Heard) -> None:
        self.newest = heard
        self.arrived.set()

    async def take(self) -> _Heard:
        while self.newest is None:
            self.arrived.clear()
            await self.arrived.wait()
        heard, self.newest = self.newest, None
        return heard


class Heartbeats:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._numbers = itertools.count(1)

    async def serve(self, context: CallContext, stream: HeartbeatStream) -> None:
        conversation = _Conversation(context.caller.node_id, next(self._numbers))
        answering = asyncio.create_task(self._answer_all(conversation, stream))
        answering.add_done_callback(lambda task: _end_with(task, stream))
        try:
            while True:
                heard = _read(conversation.broker, await stream.receive())
                if heard.heartbeat is not None:
                    self._note(conversation, heard.heartbeat)
                conversation.put(heard)
        finally:
            self._note_end(conversation)
            answering.cancel()
            await asyncio.wait({answering})

    def _note(self, conversation: _Conversation, heartbeat: BrokerHeartbeat) -> None:
        controller, broker, epoch = self._controller, heartbeat.broker_id, heartbeat.broker_epoch
        known = controller.committed.brokers.get(broker)
        if known is not None and epoch < known.epoch:
            return
        now_ms = controller.clock.monotonic_ms()
        if not conversation.speaks_for_broker:
            conversation.speaks_for_broker = True
            controller.liveness.step(now_ms, StreamOpened(broker, conversation.number))
        event = HeartbeatReceived(broker, epoch, heartbeat.metadata_offset)
        controller.liveness.step(now_ms, event)

    def _note_end(self, conversation: _Conversation) -> None:
        if conversation.speaks_for_broker:
            now_ms = self._controller.clock.monotonic_ms()
            event = StreamWasReset(conversation.broker, conversation.number)
            self._controller.liveness.step(now_ms, event)
            _log.debug("the heartbeat stream of broker %s ended", conversation.broker)

    async def _answer_all(self, conversation: _Conversation, stream: HeartbeatStream) -> None:
        while True:
            answer = await self._answer(await conversation.take())
            stream.offer(answer)  # a broker that does not read gets the next one

    async def _answer(self, heard: _Heard) -> pb.HeartbeatResponse:
        controller = self._controller
        response = pb.HeartbeatResponse(sequence=heard.sequence)
        if controller.is_active and heard.heartbeat is not None:
            try:
                _fill(response, await self._judge(heard.heartbeat))
            except NotController:
                pass  # answer as the standby that this node has become
            except QuorumOverloaded:
                response.error_code = ErrorCode.REQUEST_TIMED_OUT
        active = active_controller(controller.quorum)
        if active is not None:
            response.active_controller.CopyFrom(active)
        return response

    async def _judge(self, heartbeat: BrokerHeartbeat) -> HeartbeatAnswer:
        def decide(basis: Basis) -> Decision[HeartbeatAnswer]:
            active = (b.broker_id for b in basis.image.brokers.values() if b.is_active)
            lowest = self._controller.liveness.lowest_metadata_offset(active)
            return decide_heartbeat(
                basis.image, basis.policy, heartbeat, lowest_active_offset=lowest
            )

        cause = Cause(f"change the state of broker {heartbeat.broker_id}", _reason(heartbeat))
        return await self._controller.change(cause, decide)


def _read(broker: NodeId, message: pb.HeartbeatRequest) -> _Heard:
    if not message.HasField("broker_epoch"):
        return _Heard(message.sequence, None)
    try:
        return _Heard(message.sequence, broker_heartbeat(broker, message))
    except Malformed as error:
        raise PeerRefused("INVALID_REQUEST", str(error)) from error


def _end_with(answering: asyncio.Task[None], stream: HeartbeatStream) -> None:
    """A failure to answer is a defect: it is told, and the stream ends with it."""
    if not answering.cancelled() and (error := answering.exception()) is not None:
        _log.error("could not answer a heartbeat", exc_info=error)
        stream.close()


def _reason(heartbeat: BrokerHeartbeat) -> str:
    if heartbeat.wants_shut_down:
        return "it wants to shut down"
    if heartbeat.wants_fence:
        return "it wants to be fenced"
    if heartbeat.offline_log_dirs:
        return "it reported failed log directories"
    return "it has caught up and wants to be unfenced"


def _fill(response: pb.HeartbeatResponse, answer: HeartbeatAnswer) -> None:
    response.error_code = answer.error.code
    response.is_caught_up = answer.is_caught_up
    response.is_fenced = answer.is_fenced
    response.should_shut_down = answer.should_shut_down
