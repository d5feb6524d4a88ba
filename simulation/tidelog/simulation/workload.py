"""What clients do to a cluster while faults strike it.

A few partitions are written by idempotent producers (and some by careless ones) and read by
consumers all the while; an administrator creates, deletes and changes things. Each client is a
process of its own. ``finish`` stops writing, waits until everything sent is acknowledged and
everything acknowledged is read.

Owner: the run of one seed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import kafka_messages
from tidelog.simulation.administrator import Administrator
from tidelog.simulation.clients import Clients
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.history import History, PartitionName
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.simulation.sim_consumer import SimConsumer
from tidelog.simulation.sim_producer import CarelessProducer, IdempotentProducer

TOPIC: Final = "orders"


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    partitions: int = 2
    producers_per_partition: int = 1
    window: int = 5
    pause_s: float = 0.4
    request_timeout_s: float = 5.0
    has_careless: bool = True
    has_admin: bool = True
    may_reassign: bool = False
    replication_factor: int = 3


def draw_workload(random: SimRandom, brokers: int) -> WorkloadPlan:
    return WorkloadPlan(
        partitions=random.choice((1, 2, 3)),
        producers_per_partition=random.choice((1, 1, 2)),
        window=random.choice((1, 3, 5)),
        pause_s=random.choice((0.1, 0.4, 1.0)),
        request_timeout_s=random.choice((1.5, 5.0, 30.0)),
        has_careless=random.random() < 0.6,
        has_admin=random.random() < 0.6,
        may_reassign=random.random() < 0.5,
        replication_factor=min(3, brokers),
    )


class Workload:
    """``begin``, let time pass, ``finish``."""

    def __init__(
        self,
        cluster: SimCluster,
        plan: WorkloadPlan,
        history: History,
        random: SimRandom,
        *,
        may_be_damaged: bool = False,
    ) -> None:
        self.plan = plan
        self.history = history
        self._cluster = cluster
        self._clients = Clients(cluster)
        self._random = random
        self._may_be_damaged = may_be_damaged
        self._producers: list[IdempotentProducer | CarelessProducer] = []
        self._consumers: list[SimConsumer] = []
        self._admin: Administrator | None = None

    @property
    def partitions(self) -> list[PartitionName]:
        return [(TOPIC, index) for index in range(self.plan.partitions)]

    async def begin(self) -> None:
        """Create the topic and start all clients."""
        await self._clients.do("creator", self._create_topic)
        for partition in self.partitions:
            for number in range(self.plan.producers_per_partition):
                self._start_producer(partition, number)
            if self.plan.has_careless:
                self._start_careless(partition)
            self._start_consumer(partition, "reader")
        if self.plan.has_admin:
            self._start_admin()

    async def finish(self, within_s: float) -> None:
        """Everything sent is acknowledged, everything committed is read from its beginning."""
        for producer in self._producers:
            producer.stop()
        if self._admin is not None:
            self._admin.stop()

        def is_idle() -> bool:
            return not any(one.backlog for one in self._idempotent())

        await self._until(is_idle, self._describe_backlog, within_s)
        for partition in self.partitions:
            self._start_consumer(partition, "late-reader")

        def is_read() -> bool:
            return all(consumer.is_at_end for consumer in self._consumers)

        await self._until(is_read, self._describe_readers, within_s)
        for consumer in self._consumers:
            consumer.stop()
        await self._until(lambda: self._clients.are_done, lambda: "clients end")

    async def _until(self, condition: Any, describe: Any, within_s: float = 60.0) -> None:
        try:
            await self._cluster.until(condition, "", within_s)
        except TimeoutError:
            raise TimeoutError(f"{describe()} after {within_s:g} s without faults") from None

    def _idempotent(self) -> list[IdempotentProducer]:
        return [one for one in self._producers if isinstance(one, IdempotentProducer)]

    def _describe_backlog(self) -> str:
        waiting = [str(send) for one in self._idempotent() for send in one.backlog[:1]]
        return f"not acknowledged: {', '.join(waiting)}"

    def _describe_readers(self) -> str:
        late = [
            f"{one.name} at {one.position} of {one.high_watermark}"
            for one in self._consumers
            if not one.is_at_end
        ]
        return f"not read: {', '.join(late)}"

    # --- clients -----------------------------------------------------------------------

    def _start_producer(self, partition: PartitionName, number: int) -> None:
        name = f"producer-{partition[1]}-{number}"
        client = self._clients.client(name)
        producer = IdempotentProducer(
            client,
            name,
            partition,
            self.history,
            self._cluster.world.clock,
            self._random.fork(name),
            window=self.plan.window,
            pause_s=self.plan.pause_s,
            request_timeout_s=self.plan.request_timeout_s,
        )
        self._producers.append(producer)
        self._clients.run(client, producer.run())

    def _start_careless(self, partition: PartitionName) -> None:
        name = f"careless-{partition[1]}"
        client = self._clients.client(name)
        producer = CarelessProducer(
            client,
            name,
            partition,
            self.history,
            self._cluster.world.clock,
            self._random.fork(name),
            pause_s=self.plan.pause_s,
        )
        self._producers.append(producer)
        self._clients.run(client, producer.run())

    def _start_consumer(self, partition: PartitionName, kind: str) -> None:
        name = f"{kind}-{partition[1]}"
        client = self._clients.client(name)
        consumer = SimConsumer(
            client, name, partition, self.history, may_be_damaged=self._may_be_damaged
        )
        self._consumers.append(consumer)
        self._clients.run(client, consumer.run())

    def _start_admin(self) -> None:
        client = self._clients.client("admin")
        self._admin = Administrator(
            client,
            self.history,
            self._cluster.world.clock,
            self._random.fork("admin"),
            brokers=self._cluster.plan.brokers,
            moved=self.partitions if self.plan.may_reassign else [],
            replication_factor=self.plan.replication_factor,
        )
        self._clients.run(client, self._admin.run())

    async def _create_topic(self, client: SimKafkaClient) -> None:
        await create_topic(client, TOPIC, self.plan.partitions, self.plan.replication_factor)


async def create_topic(
    client: SimKafkaClient, name: str, partitions: int, replication_factor: int
) -> None:
    """Ask until it is there."""
    request = kafka_messages.create_topic(name, partitions, replication_factor, {}, 10_000)
    while True:
        try:
            answer = await client.call_any(request, 15.0)
        except NoAnswer:
            continue
        code = ErrorCode(int(answer.topics[0].error_code))
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        await asyncio.sleep(0.1)
