"""A broker without logs: all that the controllers see of one, and nothing behind it.

It registers, heartbeats and follows the metadata with the client that real brokers use. Of the
partitions it leads it reports changes of the ISR that it makes up; it passes on requests to create
topics and asks for producer ids. So the controllers are busy with what brokers ask of them, and a
seed of the quorum costs a fraction of one of the whole cluster.

What it was answered goes into ``Answered``, which all scripted brokers share: it must hold at the
end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tidelog.controller.client.answers import ForwardedRequest
from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.client.controller_client import (
    ControllerClient,
    NotRegistered,
    RegistrationRefused,
)
from tidelog.controller.client.lifecycle import BrokerState
from tidelog.controller.decisions.alter_partition import IsrMember, PartitionReport
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES
from tidelog.controller.decisions.registration import RegistrationRequest
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import Endpoint, FeatureRange
from tidelog.kernel.addresses import AddressBook
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, IncarnationId, NodeId
from tidelog.kernel.peers import PeerRefused
from tidelog.simulation import kafka_messages
from tidelog.simulation.event_loop import World
from tidelog.simulation.history import Violation
from tidelog.simulation.network import SimNetwork
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_node import CLUSTER_ID, PEER_PORT, CannotStart, NodePlan, SimNode
from tidelog.simulation.sim_peers import SimPeers
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response


@dataclass(slots=True)
class Answered:
    """What the controllers have promised to anybody."""

    topics: dict[str, int] = field(default_factory=dict)
    """Topics whose creation was acknowledged, with their partitions."""
    states: dict[PartitionRef, PartitionState] = field(default_factory=dict)
    """The newest state of a partition that a report was answered with."""
    producer_ids: list[range] = field(default_factory=list)

    def took_ids(self, block: range) -> None:
        for known in self.producer_ids:
            if block.start < known.stop and known.start < block.stop:
                raise Violation(f"producer ids {block} and {known} were both given away")
        self.producer_ids.append(block)

    def told(self, ref: PartitionRef, state: PartitionState) -> None:
        known = self.states.get(ref)
        if known is None or state.partition_epoch > known.partition_epoch:
            self.states[ref] = state
        elif state.partition_epoch == known.partition_epoch and (
            (state.isr, state.leader, state.leader_epoch)
            != (known.isr, known.leader, known.leader_epoch)
        ):
            raise Violation(f"{ref}: answers differ, {known} and {state}")

    def check(self, image: MetadataImage) -> None:
        """All of it is in the metadata at the end."""
        for name, partitions in self.topics.items():
            topic = image.topics.named(name)
            if topic is None or len(topic.partitions) != partitions:
                raise Violation(f"topic {name} was created with {partitions} partitions: {topic}")
        for ref, told in self.states.items():
            state = image.topics.partition(ref)
            if state is None or state.partition_epoch < told.partition_epoch:
                raise Violation(f"{ref}: {told} was answered, {state} is the end")
        for block in self.producer_ids:
            if image.next_producer_id < block.stop:
                raise Violation(
                    f"producer ids {block} were given, next is {image.next_producer_id}"
                )


class ScriptedBroker(SimNode):
    """Started, killed and cut off like any node of the cluster."""

    def __init__(
        self, world: World, network: SimNetwork, plan: NodePlan, answered: Answered
    ) -> None:
        super().__init__(world, network, plan)
        self._answered = answered

    async def _live(self, process: SimProcess) -> None:
        random = self._random.fork(process.name)
        try:
            identity = self._identity(random)
        except CannotStart as problem:
            self.last_words = str(problem)
            return
        addresses = AddressBook(self._endpoints.voters, self._endpoints.dial_overrides)
        peers = SimPeers(self._network, process, identity, addresses)
        client = ControllerClient(
            identity.node_id,
            peers=peers,
            controllers=sorted(self._endpoints.voters),
            clock=self.clock,
            random=random.fork("client"),
            settings=self.plan.settings,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client.run())
                await client.register(self._registration(identity.incarnation_id))
                client.become_ready()
                await client.wait_for_state(BrokerState.RUNNING)
                self.is_serving = True
                await _Acts(client, self.number, random.fork("acts"), self._answered).run(
                    self._stop
                )
                await client.shut_down(timeout_ms=5_000)
                raise _Stopped
        except* (RegistrationRefused, ControllerUnavailable) as refused:
            self.last_words = f"{refused.exceptions[0]}"
        except* _Stopped:
            pass
        finally:
            self.is_serving = False

    def _registration(self, incarnation: IncarnationId) -> RegistrationRequest:
        return RegistrationRequest(
            NodeId(self.number),
            CLUSTER_ID,
            incarnation,
            tuple(self.directory_ids.values()),
            (Endpoint("PLAINTEXT", f"node-{self.number}", 9092),),
            tuple(FeatureRange(n, *levels) for n, levels in sorted(SUPPORTED_FEATURES.items())),
            None,
            Endpoint("CONTROLLER", f"node-{self.number}", PEER_PORT),
        )


class _Stopped(Exception):
    """The broker was asked to end, and has."""


class _Acts:
    """What a broker asks of the controllers, at random."""

    def __init__(
        self, client: ControllerClient, number: int, random: SimRandom, answered: Answered
    ) -> None:
        self._client = client
        self._number = number
        self._random = random
        self._answered = answered
        self._topics = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.sleep(self._random.uniform(0.01, 0.3))
            if self._client.state is not BrokerState.RUNNING:
                continue
            act = self._random.random()
            with suppress(ControllerUnavailable, PeerRefused, NotRegistered):
                if act < 0.15:
                    await self._create_topic()
                elif act < 0.25:
                    await self._take_producer_ids()
                else:
                    await self._report()

    async def _create_topic(self) -> None:
        self._topics += 1
        name = f"topic-{self._number}-{self._random.randrange(1 << 40):x}"
        count = self._random.randrange(1, 4)
        request = kafka_messages.create_topic(name, count, 3, {"retention.ms": "1000"}, 3_000)
        api, version = int(request.__api_key__), int(request.__version__)
        forwarded = ForwardedRequest(api, version, kio_bytes(request))
        answer = await self._client.forward(forwarded, timeout_ms=3_000)
        if isinstance(answer, ApiError):
            return
        response: Any = decode_response(api, version, memoryview(answer))
        if int(response.topics[0].error_code) == ErrorCode.NONE:
            self._answered.topics[name] = count

    async def _take_producer_ids(self) -> None:
        block = await self._client.allocate_producer_ids(timeout_ms=3_000)
        if not block.error.is_error:
            self._answered.took_ids(range(block.first, block.first + block.size))

    async def _report(self) -> None:
        image = self._client.feed.image
        led = sorted(image.topics.led_by(NodeId(self._number)))
        if not led:
            return
        ref = self._random.choice(led)
        state = image.topics.partition(ref)
        if state is None:
            return
        report = PartitionReport(
            ref, state.leader_epoch, state.partition_epoch, self._members(image, state)
        )
        answer = await self._client.alter_partition([report], timeout_ms=3_000)
        for verdict in answer.partitions:
            if not verdict.error.is_error and verdict.state is not None:
                if verdict.state.partition_epoch < report.partition_epoch:
                    raise Violation(f"{report} was answered with an older {verdict.state}")
                self._answered.told(verdict.partition, verdict.state)

    def _members(self, image: MetadataImage, state: PartitionState) -> tuple[IsrMember, ...]:
        """Drop somebody or take somebody in; sometimes with an epoch that is long over."""
        isr = set(state.isr)
        other = self._random.choice(state.replicas)
        if other in isr and other != self._number:
            isr.discard(other)
        else:
            isr.add(other)
        lag = 0 if self._random.random() < 0.9 else self._random.randrange(1, 50)
        return tuple(
            IsrMember(broker, BrokerEpoch(image.brokers[broker].epoch - lag))
            for broker in sorted(isr)
            if broker in image.brokers
        )
