"""The client through which a broker is part of the cluster.

``run`` keeps up a heartbeat stream to every controller and follows the metadata; ``register``,
``become_ready`` and ``shut_down`` lead the broker through its life; the other calls go to whoever
is active. What a heartbeat is answered is handed to ``BrokerLifecycle``, which decides.

Owner: the broker, on its event loop. A broker that is cut off from the quorum says so, once and
then every ten seconds, until it is heard again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tidelog.controller.client.active_controller import ActiveController
from tidelog.controller.client.answers import (
    ForwardedRequest,
    alter_partition_answer,
    api_error,
    forward_message,
)
from tidelog.controller.client.calls import (
    ControllerCalls,
    ControllerUnavailable,
    Request,
    Response,
)
from tidelog.controller.client.heartbeats import HeartbeatLink
from tidelog.controller.client.lifecycle import (
    BecameReady,
    BrokerLifecycle,
    BrokerState,
    EnterState,
    HeartbeatAnswered,
    LifecycleEvent,
    Register,
    Registered,
    RegistrationLost,
    SendHeartbeat,
    ShutdownRequested,
    ShutdownTimedOut,
)
from tidelog.controller.client.metadata_feed import MetadataFeed
from tidelog.controller.client.quorum_reach import QuorumReach
from tidelog.controller.decisions.alter_partition import AlterPartitionAnswer, PartitionReport
from tidelog.controller.decisions.directories import DirectoryAssignment
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.decisions.producer_ids import ProducerIdBlock
from tidelog.controller.decisions.registration import RegistrationRequest
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.service import contract, methods
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, DirectoryId, NodeId, Offset, ProducerId
from tidelog.kernel.peers import PeerRefused, Peers, Unary
from tidelog.kernel.ports import Clock, Random
from tidelog.kernel.settings import Settings
from tidelog.v1 import controller_pb2 as pb

HASTY_INTERVAL_MS: Final = 100.0
"""Between heartbeats of a broker that waits for the controller's permission to stop."""
REGISTRATION_RETRY_MS: Final = 100.0
REACH_CHECK_MS: Final = 500.0
_IN_TOUCH_INTERVALS: Final = 2
_EARLY_MS: Final = 2.0
"""Timers may be early by a little; the beat that they were set for is not sent twice."""

_PROTO_STATES: Final = {
    BrokerState.STARTING: pb.BROKER_STATE_STARTING,
    BrokerState.RECOVERY: pb.BROKER_STATE_RECOVERY,
    BrokerState.RUNNING: pb.BROKER_STATE_RUNNING,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: pb.BROKER_STATE_PENDING_CONTROLLED_SHUTDOWN,
    BrokerState.SHUTTING_DOWN: pb.BROKER_STATE_SHUTTING_DOWN,
}

_log = logging.getLogger(__name__)


class RegistrationRefused(Exception):
    """The cluster does not take this broker, and asking again would not help."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


class NotRegistered(Exception):
    """Only a registered broker may ask for this."""


class ControllerClient:
    def __init__(
        self,
        broker_id: NodeId,
        *,
        peers: Peers,
        controllers: Sequence[NodeId],
        clock: Clock,
        random: Random,
        settings: Settings,
    ) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._session_ms = float(settings.get_int("broker.session.timeout.ms"))
        self._interval_ms = float(settings.get_int("broker.heartbeat.interval.ms"))
        self._born_ms = clock.monotonic_ms()
        self._active = ActiveController(controllers)
        self._calls = ControllerCalls(peers, self._active, clock=clock, random=random)
        self._told_end = Offset(0)
        self._reach = QuorumReach(clock.monotonic_ms(), self._session_ms)
        self._links: dict[NodeId, HeartbeatLink] = {}
        self._sequence = 0
        self._epoch_since = 0
        """The first heartbeat that carried the current epoch has a larger number."""
        self._offline_directories: tuple[DirectoryId, ...] = ()
        self._registration: RegistrationRequest | None = None
        self._must_register = asyncio.Event()
        self._state_changed = asyncio.Event()
        self.lifecycle: Final = BrokerLifecycle()
        self.feed: Final = MetadataFeed(peers, self._active, clock)
        self.feed.subscribe(self._note_metadata)

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    @property
    def active_controller(self) -> NodeId | None:
        """Who is believed to be active."""
        return self._active.believed

    def silence_ms(self) -> float | None:
        """For how long no active controller has answered, if for longer than a session."""
        return self._reach.silence_ms(self._clock.monotonic_ms())

    def is_in_touch(self) -> bool:
        """Whether an active controller answered one of the last two heartbeats or so."""
        since_ms = self._reach.since_ms(self._clock.monotonic_ms())
        return since_ms < _IN_TOUCH_INTERVALS * self._interval_ms

    async def run(self) -> None:
        """Until cancelled; raises ``MetadataDiverged`` or ``RegistrationRefused``."""
        async with asyncio.TaskGroup() as tasks:
            for node in self._active.controllers:
                link = self._links[node] = self._link(node)
                tasks.create_task(link.run(), name=f"heartbeats to controller {node}")
            tasks.create_task(self.feed.run(), name="metadata feed")
            tasks.create_task(self._register_again(), name="register again")
            tasks.create_task(self._watch_reach(), name="watch the quorum's reach")

    # The life of the broker.

    async def register(self, request: RegistrationRequest) -> BrokerEpoch:
        """Register, also again after the registration was lost; ``ControllerUnavailable`` or
        ``RegistrationRefused`` if that does not succeed within its time."""
        timeout_ms = float(self._settings.get_int("initial.broker.registration.timeout.ms"))
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._registration = request
        message = contract.registration_message(request)
        was_told = False
        refusal: RegistrationRefused | None = None
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                answer = await self._ask_to_register(message, left_ms)
            except ControllerUnavailable:
                if refusal is not None:
                    raise refusal from None  # which tells more than that the last try had no time
                raise
            if answer.error_code == ErrorCode.NONE:
                break
            code = ErrorCode(answer.error_code)
            refusal = RegistrationRefused(code, answer.error_message)
            is_over = self._clock.monotonic_ms() + REGISTRATION_RETRY_MS >= deadline_ms
            if code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION or is_over:
                raise refusal
            # The session of this broker's last life runs out by itself; if it does not, the other
            # is no former life.
            if not was_told and timeout_ms - left_ms > self._session_ms:
                was_told = True
                _log.warning(
                    "%s; does another node have the same node.id? This one gives up in %.0f s",
                    answer.error_message,
                    left_ms / 1000,
                )
            await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)
        epoch = BrokerEpoch(answer.broker_epoch)
        self._epoch_since = self._sequence
        self._step(Registered(epoch))
        _log.info("broker %s is registered with epoch %s", self._broker_id, epoch)
        return epoch

    async def _ask_to_register(
        self, message: pb.RegisterBrokerRequest, timeout_ms: float
    ) -> pb.RegisterBrokerResponse:
        try:
            return await self._calls.call(methods.REGISTER_BROKER, message, timeout_ms=timeout_ms)
        except PeerRefused as refusal:
            raise RegistrationRefused(ErrorCode[refusal.reason], refusal.detail) from refusal

    def become_ready(self) -> None:
        """Ask to be unfenced, from now on."""
        self._step(BecameReady())

    def report_offline_directories(self, directories: Iterable[DirectoryId]) -> None:
        """All that have failed so far."""
        self._offline_directories = tuple(directories)
        self._beat()

    async def wait_for_state(self, *states: BrokerState) -> BrokerState:
        while self.state not in states:
            await self._state_changed.wait()
        return self.state

    async def shut_down(self, *, timeout_ms: float) -> bool:
        """Hand leadership over and return when the broker may stop; whether it was in time.

        If no controller is heard for a session there is none to wait for: all nodes were told to
        stop, and most have done so.
        """
        self._step(ShutdownRequested())
        begun_ms = self._clock.monotonic_ms()
        while self.state is not BrokerState.SHUTTING_DOWN:
            now_ms = self._clock.monotonic_ms()
            since_ms = now_ms - begun_ms
            silent_ms = min(since_ms, self._reach.since_ms(now_ms))
            left_ms = min(timeout_ms - since_ms, self._session_ms - silent_ms)
            if left_ms <= 0:
                self._step(ShutdownTimedOut())
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._state_changed.wait()
        return True

    # Calls to the active controller.

    async def alter_partition(
        self, reports: Iterable[PartitionReport], *, timeout_ms: float | None = None
    ) -> AlterPartitionAnswer:
        """What became of each partition, or the error of the whole request."""
        message = pb.AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._epoch(),
            partitions=map(contract.proposed_isr, reports),
        )
        answer = await self._call(methods.ALTER_PARTITION, message, timeout_ms)
        return alter_partition_answer(answer, self.feed.image)

    async def report_replicas(
        self,
        directories: Sequence[DirectoryAssignment],
        emptied: Sequence[PartitionRef],
        *,
        timeout_ms: float,
    ) -> pb.ReportReplicasResponse:
        """Say where replicas lie, and which were discarded as the controller wanted it."""
        message = pb.ReportReplicasRequest(
            broker_id=self._broker_id,
            broker_epoch=self._epoch(),
            directories=[
                pb.ReplicaDirectory(
                    partition=contract.partition_key(one.partition),
                    directory_id=one.directory.raw,
                )
                for one in directories
            ],
            emptied=map(contract.partition_key, emptied),
        )
        return await self._calls.call(methods.REPORT_REPLICAS, message, timeout_ms=timeout_ms)

    async def allocate_producer_ids(self, *, timeout_ms: float | None = None) -> ProducerIdBlock:
        message = pb.AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._epoch()
        )
        answer = await self._call(methods.ALLOCATE_PRODUCER_IDS, message, timeout_ms)
        error = api_error(answer.error_code, answer.error_message)
        return ProducerIdBlock(error, ProducerId(answer.first_producer_id), answer.count)

    async def forward(
        self, request: ForwardedRequest, *, timeout_ms: float | None = None
    ) -> bytes | ApiError:
        """The body of the response for the client, or why there is none."""
        answer = await self._call(methods.FORWARD, forward_message(request), timeout_ms)
        error = api_error(answer.error_code, answer.error_message)
        self._told_end = max(self._told_end, Offset(answer.metadata_end_offset))
        return error if error.is_error else answer.response

    async def catch_up(self, *, within_ms: float) -> None:
        """Until the feed has brought what answers were about, or the time is over."""
        told, feed = self._told_end, self.feed
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await feed.wait_for(lambda _: feed.end_offset >= told)

    async def describe_quorum(
        self, *, timeout_ms: float | None = None
    ) -> pb.DescribeQuorumResponse:
        return await self._call(methods.DESCRIBE_QUORUM, pb.DescribeQuorumRequest(), timeout_ms)

    async def _call(
        self, method: Unary[Request, Response], request: Request, timeout_ms: float | None
    ) -> Response:
        if timeout_ms is None:
            timeout_ms = float(self._settings.get_int("request.timeout.ms"))
        return await self._calls.call(method, request, timeout_ms=timeout_ms)

    # Inside.

    def _epoch(self) -> BrokerEpoch:
        epoch = self.lifecycle.epoch
        if epoch is None:
            raise NotRegistered(f"broker {self._broker_id} is not registered")
        return epoch

    def _link(self, node: NodeId) -> HeartbeatLink:
        return HeartbeatLink(
            self._peers,
            node,
            make=self._heartbeat,
            on_answer=self._heard,
            pause_ms=self._until_next_beat_ms,
            session_ms=self._session_ms,
        )

    def _current_interval_ms(self) -> float:
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return min(HASTY_INTERVAL_MS, self._interval_ms)
        return self._interval_ms

    def _until_next_beat_ms(self) -> float:
        """The same moment for all links, whenever they were opened: that wakes this node once."""
        interval_ms = self._current_interval_ms()
        left_ms = interval_ms - (self._clock.monotonic_ms() - self._born_ms) % interval_ms
        return left_ms if left_ms > _EARLY_MS else left_ms + interval_ms

    def _heartbeat(self) -> pb.HeartbeatRequest:
        self._sequence += 1
        life = self.lifecycle
        message = pb.HeartbeatRequest(
            sequence=self._sequence,
            state=_PROTO_STATES[life.state],
            metadata_end_offset=self.feed.end_offset,
            want_fence=life.wants_fence,
            want_shut_down=life.wants_shut_down,
            offline_log_directory_ids=[d.raw for d in self._offline_directories],
        )
        if life.epoch is not None:
            message.broker_epoch = life.epoch
        return message

    def _heard(self, node: NodeId, answer: pb.HeartbeatResponse) -> None:
        if not answer.HasField("active_controller"):
            return
        self._calls.learn(answer.active_controller)
        if answer.active_controller.node_id != node:
            return  # a standby does not judge
        if self._reach.heard(self._clock.monotonic_ms()):
            _log.info("broker %s reaches the quorum again", self._broker_id)
        if self.lifecycle.epoch is None or answer.sequence <= self._epoch_since:
            return  # about an earlier registration
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._step(RegistrationLost())
        elif answer.error_code == ErrorCode.NONE:
            self._step(
                HeartbeatAnswered(
                    is_caught_up=answer.is_caught_up,
                    is_fenced=answer.is_fenced,
                    should_shut_down=answer.should_shut_down,
                )
            )

    def _step(self, event: LifecycleEvent) -> None:
        for effect in self.lifecycle.step(event):
            match effect:
                case SendHeartbeat():
                    self._beat()
                case Register():
                    _log.warning("the registration of broker %s was lost", self._broker_id)
                    self._must_register.set()
                case EnterState(state):
                    _log.info("broker %s is %s", self._broker_id, state.name)
                    self._state_changed.set()
                    self._state_changed = asyncio.Event()

    def _beat(self) -> None:
        for link in self._links.values():
            link.beat()

    def _note_metadata(self, delta: MetadataDelta) -> None:
        """A starting broker is unfenced as soon as the controller knows that it caught up."""
        epoch = self.lifecycle.epoch
        if self.state is not BrokerState.STARTING or epoch is None:
            return
        if delta.before.offset < epoch <= delta.after.offset:
            self._beat()

    async def _register_again(self) -> None:
        while True:
            await self._must_register.wait()
            self._must_register.clear()
            if self._registration is not None:
                # What recovery found is old news by now; logs have come and gone since.
                await self.register(replace(self._registration, reports=(), held=None))

    async def _watch_reach(self) -> None:
        while True:
            silent_ms = self._reach.check(self._clock.monotonic_ms())
            if silent_ms is not None:
                _log.warning(
                    "broker %s has reached no active controller for %.1f s; %s",
                    self._broker_id,
                    silent_ms / 1000,
                    self._out_of_reach(),
                    extra={"silent_ms": silent_ms, "controllers": self._active.controllers},
                )
            await asyncio.sleep(REACH_CHECK_MS / 1000)

    def _out_of_reach(self) -> str:
        told = [
            f"controller {node}: {link.problem}"
            for node, link in self._links.items()
            if link.problem is not None
        ]
        return "; ".join(told) or "all controllers answer, but none of them is active"
