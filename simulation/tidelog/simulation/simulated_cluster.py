"""A simulated cluster to hold in the hand: for tests of what happens around a log over days.

Real nodes on simulated machines, driven by a seed. Time stands still between two calls; ``advance``
lets it pass. A week would be many millions of heartbeats, so a long advance leaps: everything that
was due meanwhile (retention, sessions, transactions, requests) is due at the same moment, as after
a night in which all machines slept, and then some seconds pass one by one, in which the nodes find
each other again.

Every call runs the virtual loop in a thread of its own, since a test may have an event loop of its
own in this one. ``cluster.aio`` has the calls as coroutines.

Owner: one test; one call at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeVar

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import kafka_messages, sim_group_calls
from tidelog.simulation.clients import Clients
from tidelog.simulation.clock import SimClock
from tidelog.simulation.cluster import BOTH_ROLES, ClusterPlan, SimCluster
from tidelog.simulation.event_loop import VirtualEventLoop, World
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_answers import CallFailed, check
from tidelog.simulation.sim_client import Leadership, NoAnswer, SimKafkaClient
from tidelog.testing.threads import in_thread
from tidelog.wire.batch import check_batch
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.records import Record, build_batch, decode_records

P = ParamSpec("P")
T = TypeVar("T")

LEAP_FROM_S: Final = 60.0
"""An advance that is longer leaps over what is more than ``SETTLE_S``."""
SETTLE_S: Final = 20.0
_WITHIN_S: Final = 120.0
_CALL_S: Final = 5.0
_RETRY_S: Final = 0.1
_FETCH_BYTES: Final = 1 << 20
_EARLIEST: Final = -2
_ACKS_ALL: Final = -1

SETTINGS: Final[Mapping[str, str]] = {
    "log.roll.ms": str(7 * 24 * 3_600_000),
    "log.cleaner.enable": "true",
    "log.retention.check.interval.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.check.interval.ms": "5000",
}
"""As in production, but what is looked for every few minutes there is within ``SETTLE_S``."""


class SimRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class _LeapingLoop(VirtualEventLoop):
    def leap(self, seconds: float) -> None:
        """All timers up to then are due at once."""
        self._now_s += seconds


class SimulatedCluster:
    """Use as a context manager, or by the fixture ``simulated_cluster``."""

    def __init__(
        self, seed: int, *, nodes: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        self.seed = seed
        random = SimRandom(seed)
        self._loop = _LeapingLoop(shuffle=random.fork("ready tasks"))
        self._world = World(self._loop, SimClock(elapsed_ms=self._loop.elapsed_ms), random)
        self._plan = ClusterPlan(
            {number: BOTH_ROLES for number in range(1, nodes + 1)},
            {**_replicated(nodes), **SETTINGS, **(settings or {})},
        )
        self._thread = ThreadPoolExecutor(1, f"simulated-cluster-{seed}")
        self._runner = asyncio.Runner(loop_factory=lambda: self._loop)
        self._unhandled: list[BaseException] = []
        self._is_closed = False
        self._numbers = iter(range(1, 1 << 62))
        self._sequences: dict[tuple[str, int], int] = {}
        self._producer: tuple[int, int] | None = None
        self.aio = AsyncView(self)
        """The same methods, as coroutines."""
        self._loop.set_exception_handler(self._note_unhandled)
        self._run(self._start)

    # --- time -------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """What the calendars say, in milliseconds since 1970."""
        return int(self._world.clock.wall_ms())

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass, and wait until living nodes serve again."""
        span = timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        ).total_seconds()
        if span < 0:
            raise ValueError(f"time does not go back: {span:g} s")
        self._run(lambda: self._pass(span))

    async def _pass(self, span_s: float) -> None:
        until_s = self._loop.time() + span_s
        if span_s > LEAP_FROM_S:
            self._loop.leap(span_s - SETTLE_S)
        await asyncio.sleep(max(0.0, until_s - self._loop.time()))

    # --- the log ----------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        factor = min(3, len(self._plan.brokers))
        request = kafka_messages.create_topic(name, partitions, factor, dict(configs or {}), 5_000)

        async def create(client: SimKafkaClient) -> None:
            answer = await client.call_any(request, _CALL_S)
            check(f"topic {name!r} could not be created", answer.topics[0].error_code)

        self._ask(f"topic {name!r} is created", create)
        for partition in range(partitions):
            self.leader_of(name, partition)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record once, however often it must be sent; its offset."""
        where = (topic, partition)
        sequence = self._sequences.get(where, 0)
        at_ms = self.now_ms if timestamp_ms is None else timestamp_ms

        async def produce(client: SimKafkaClient) -> int:
            producer_id, epoch = await self._identity(client)
            batch = build_batch(
                [Record(0, at_ms, key, value)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            known = await _leader(client, topic, partition)
            request = kafka_messages.produce(topic, partition, batch, _ACKS_ALL, 4_000)
            answer = await client.call(known.leader, request, _CALL_S)
            (row,) = answer.responses[0].partition_responses
            check(f"{topic}-{partition} refused a record", row.error_code)
            return int(row.base_offset)

        offset = self._ask(f"{topic}-{partition} takes a record", produce)
        self._sequences[where] = sequence + 1
        return offset

    def read(self, topic: str, partition: int = 0, offset: int | None = None) -> list[SimRecord]:
        """All records from an offset, or from the first there is, to the high watermark."""

        async def read(client: SimKafkaClient) -> list[SimRecord]:
            known = await _leader(client, topic, partition)
            at = await _first_offset(client, known, topic, partition) if offset is None else offset
            found: list[SimRecord] = []
            while True:
                row = await _fetch(client, known, partition, at)
                check(f"{topic}-{partition} could not be read at {at}", row.error_code)
                found += [one for one in _records(bytes(row.records or b"")) if one.offset >= at]
                if at >= int(row.high_watermark):
                    return found
                at = found[-1].offset + 1 if found and found[-1].offset >= at else at + 1

        return self._ask(f"{topic}-{partition} is read", read)

    def first_offset(self, topic: str, partition: int = 0) -> int:
        """Of what retention left."""

        async def ask(client: SimKafkaClient) -> int:
            known = await _leader(client, topic, partition)
            return await _first_offset(client, known, topic, partition)

        return self._ask(f"the first offset of {topic}-{partition} is known", ask)

    # --- groups -----------------------------------------------------------------------------

    def join_group(self, group: str, *, session_timeout_ms: int = 45_000) -> str:
        """A member that joins and is silent from then on; its id. Its session runs out in time."""
        return self._ask(
            f"group {group!r} takes a member",
            lambda client: sim_group_calls.join_group(client, group, session_timeout_ms),
        )

    def group_members(self, group: str) -> tuple[str, ...]:
        """The ids of those whose sessions are not over."""
        return self._ask(
            f"group {group!r} is described",
            lambda client: sim_group_calls.group_members(client, group),
        )

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """An offset of a group that has no members."""
        self._ask(
            f"group {group!r} commits",
            lambda client: sim_group_calls.commit(client, group, topic, partition, offset),
        )

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """What a group committed; None if it is nothing, or expired."""
        return self._ask(
            f"offsets of group {group!r} are read",
            lambda client: sim_group_calls.committed(client, group, topic, partition),
        )

    # --- faults -----------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[int, ...]:
        return self._plan.brokers

    def kill(self, node: int) -> None:
        """The process ends; what it wrote is still in its machine's memory."""
        self._run(lambda: self._sim.kill(self._known(node)))

    def power_loss(self, *nodes: int) -> None:
        """Machines lose what was not synced."""
        self._run(lambda: self._sim.power_loss([self._known(node) for node in nodes]))

    def restart(self, node: int) -> None:
        """Start a node again, killing it first if it runs; returns when it serves."""

        async def restart() -> None:
            if self._sim.is_alive(self._known(node)):
                await self._sim.kill(node)
            await self._sim.restart(node)
            serving = self._sim.nodes[node]
            await self._sim.until(lambda: serving.is_serving, f"node {node} serves", _WITHIN_S)

        self._run(restart)

    def pause(self, node: int) -> None:
        self._act(lambda: self._sim.pause(self._known(node)))

    def resume(self, node: int) -> None:
        self._act(lambda: self._sim.resume(self._known(node)))

    def cut(self, a: int, b: int) -> None:
        """Nothing passes between two nodes, either way."""
        self._act(lambda: self._sim.network.cut_both(self._known(a), self._known(b)))

    def mend(self, a: int, b: int) -> None:
        self._act(lambda: self._sim.network.mend_both(self._known(a), self._known(b)))

    # --- asking -----------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int = 0) -> int:
        async def ask(client: SimKafkaClient) -> int:
            return (await _leader(client, topic, partition)).leader

        return self._ask(f"{topic}-{partition} has a leader", ask)

    def wait_healthy(self, within_s: float = _WITHIN_S) -> None:
        """Until all nodes serve; ``within_s`` is virtual time."""
        self._run(lambda: self._sim.until_serving(within_s))

    async def healthy(self, within_s: float = _WITHIN_S) -> None:
        await self.aio.wait_healthy(within_s)

    def run(self, work: Callable[[SimKafkaClient], Awaitable[T]]) -> T:
        """Whatever a client can ask, in virtual time: ``work`` is given one."""
        return self._run(lambda: Clients(self._sim).do(f"client-{next(self._numbers)}", work))

    # --- life -------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._thread.submit(self._close).result()
            self._thread.shutdown()

    def _close(self) -> None:
        self._loop.release_all()
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _start(self) -> None:
        self._sim = SimCluster(self._world, self._plan)
        await self._sim.start()
        await self._sim.until_serving()

    # --- running ----------------------------------------------------------------------------

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise RuntimeError("the simulated cluster is closed")
        return self._thread.submit(lambda: self._runner.run(self._watched(work))).result()

    async def _watched(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        found = await work()
        if self._unhandled:
            raise self._unhandled.pop()
        return found

    def _act(self, act: Callable[[], None]) -> None:
        async def do_it() -> None:
            act()

        self._run(do_it)

    def _note_unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), BaseException):
            self._unhandled.append(error)

    def _known(self, node: int) -> int:
        if node not in self._plan.roles:
            known = ", ".join(map(str, self._plan.roles))
            raise ValueError(f"there is no node {node!r}; there are {known}")
        return node

    def _ask(self, what: str, ask: Callable[[SimKafkaClient], Awaitable[T]]) -> T:
        """Ask until somebody answers; refusals that pass are no answer."""

        async def until_answered(client: SimKafkaClient) -> T:
            deadline_s = self._loop.time() + _WITHIN_S
            while True:
                try:
                    return await ask(client)
                except (NoAnswer, CallFailed) as problem:
                    final = isinstance(problem, CallFailed) and not problem.code.retriable
                    if final:
                        raise
                    if self._loop.time() > deadline_s:
                        text = f"not within {_WITHIN_S:g} virtual seconds: {what}: {problem}"
                        raise TimeoutError(text) from problem
                await asyncio.sleep(_RETRY_S)

        return self.run(until_answered)

    async def _identity(self, client: SimKafkaClient) -> tuple[int, int]:
        if self._producer is None:
            answer = await client.call_any(kafka_messages.init_producer_id(), _CALL_S)
            check("no producer id was given", answer.error_code)
            self._producer = int(answer.producer_id), int(answer.producer_epoch)
        return self._producer


class AsyncView:
    """The methods of a simulated cluster for tests on an event loop of their own."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    async def advance(self, **span: float) -> None:
        await self._run(self._cluster.advance, **span)

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        await self._run(self._cluster.create_topic, name, partitions, configs)

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
    ) -> int:
        return await self._run(
            self._cluster.produce,
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def read(
        self, topic: str, partition: int = 0, offset: int | None = None
    ) -> list[SimRecord]:
        return await self._run(self._cluster.read, topic, partition, offset)

    async def first_offset(self, topic: str, partition: int = 0) -> int:
        return await self._run(self._cluster.first_offset, topic, partition)

    async def join_group(self, group: str, *, session_timeout_ms: int = 45_000) -> str:
        return await self._run(
            self._cluster.join_group, group, session_timeout_ms=session_timeout_ms
        )

    async def group_members(self, group: str) -> tuple[str, ...]:
        return await self._run(self._cluster.group_members, group)

    async def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        await self._run(self._cluster.commit, group, topic, offset, partition)

    async def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        return await self._run(self._cluster.committed, group, topic, partition)

    async def kill(self, node: int) -> None:
        await self._run(self._cluster.kill, node)

    async def power_loss(self, *nodes: int) -> None:
        await self._run(self._cluster.power_loss, *nodes)

    async def restart(self, node: int) -> None:
        await self._run(self._cluster.restart, node)

    async def pause(self, node: int) -> None:
        await self._run(self._cluster.pause, node)

    async def resume(self, node: int) -> None:
        await self._run(self._cluster.resume, node)

    async def cut(self, a: int, b: int) -> None:
        await self._run(self._cluster.cut, a, b)

    async def mend(self, a: int, b: int) -> None:
        await self._run(self._cluster.mend, a, b)

    async def leader_of(self, topic: str, partition: int = 0) -> int:
        return await self._run(self._cluster.leader_of, topic, partition)

    async def wait_healthy(self, within_s: float = _WITHIN_S) -> None:
        await self._run(self._cluster.wait_healthy, within_s)

    async def run(self, work: Callable[[SimKafkaClient], Awaitable[T]]) -> T:
        return await self._run(self._cluster.run, work)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(call, *args, **kwargs)


# --- requests ----------------------------------------------------------------------------


def _replicated(nodes: int) -> dict[str, str]:
    factor = min(nodes, 3)
    return {
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(2 if factor == 3 else 1),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(2 if factor == 3 else 1),
    }


async def _leader(client: SimKafkaClient, topic: str, partition: int) -> Leadership:
    with suppress(NoAnswer):
        await client.refresh([topic])
    known = client.leaders.get((topic, partition))
    if known is None:
        raise CallFailed(f"{topic}-{partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if known.leader < 0:
        raise CallFailed(f"{topic}-{partition}", ErrorCode.LEADER_NOT_AVAILABLE)
    return known


async def _first_offset(
    client: SimKafkaClient, known: Leadership, topic: str, partition: int
) -> int:
    s = kafka_messages.Structs(ApiKey.LIST_OFFSETS, 7)
    wanted = s.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=_EARLIEST
    )
    request = s.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(s.ListOffsetsTopic(name=topic, partitions=(wanted,)),),
    )
    answer = await client.call(known.leader, request, _CALL_S)
    (row,) = answer.topics[0].partitions
    check(f"{topic}-{partition} did not say where it begins", row.error_code)
    return int(row.offset)


async def _fetch(client: SimKafkaClient, known: Leadership, partition: int, offset: int) -> Any:
    request = kafka_messages.fetch(
        known.topic_id,
        partition,
        offset,
        leader_epoch=known.leader_epoch,
        last_epoch=-1,
        max_wait_ms=0,
        max_bytes=_FETCH_BYTES,
    )
    answer = await client.call(known.leader, request, _CALL_S)
    check("a fetch was refused", answer.error_code)
    (row,) = answer.responses[0].partitions
    return row


def _records(data: bytes) -> list[SimRecord]:
    """Of whole batches; control batches are no records."""
    found: list[SimRecord] = []
    position = 0
    while position < len(data):
        header = check_batch(data, position)
        batch = data[position : position + header.size]
        if not header.is_control:
            found += [SimRecord(*record[:4]) for record in decode_records(batch, header)]
        position += header.size
    return found
