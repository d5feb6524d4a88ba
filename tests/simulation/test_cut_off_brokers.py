"""Transactions and a broker that clients reach, and no other broker: others have replaced it.

It cannot know. So it keeps nobody waiting for what it cannot do, says nothing that its successor
would contradict, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages
from tidelog.simulation import transaction_messages as requests
from tidelog.simulation.group_messages import GROUP_KEY, TRANSACTION_KEY
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.simulation.simulated_cluster import SimulatedCluster
from tidelog.simulation.transaction_messages import Producer
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.records import Record, build_batch

E = ErrorCode
TOPIC, PARTITIONS = "t", 3
PATIENT_S = 60.0
"""How long clients wait for an answer: what they are not told they wait for."""
REPLACED_S = 4.0
"""A session of a broker (3 s), and what it takes to elect others and to find them."""
AT_ONCE_S = 1.0
COORDINATED_ELSEWHERE = {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR}
LED_ELSEWHERE = {E.NOT_LEADER_OR_FOLLOWER}
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(5, settings=SETTINGS) as made:
        made.create_topic(TOPIC, PARTITIONS)
        yield made


@dataclass
class Desk:
    """A client, and what it knows of the cluster."""

    cluster: SimulatedCluster
    client: SimKafkaClient
    is_new: bool

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def coordinator(self, kind: int, key: str) -> int:
        request = group_messages.find_coordinator(kind, key)
        while True:
            with suppress(NoAnswer):
                (found,) = (await self.client.call_any(request, 1.0)).coordinators
                if int(found.error_code) == E.NONE:
                    node = int(found.node_id)
                    address = SocketAddress(str(found.host), int(found.port))
                    self.client.note_address(node, address)
                    return node
            await asyncio.sleep(0.05)

    async def leader(self, partition: int) -> int:
        while True:
            with suppress(NoAnswer):
                await self.client.refresh([TOPIC], 1.0)
            known = self.client.leaders.get((TOPIC, partition))
            if known is not None and known.leader >= 0:
                return known.leader
            await asyncio.sleep(0.05)

    async def code(self, node: int, request: Any) -> tuple[ErrorCode, Any]:
        answer = await self.client.call(node, request, PATIENT_S)
        return _code(answer), answer

    async def until_done(self, find: Callable[[], Awaitable[int]], request: Any) -> Any:
        while True:
            with suppress(NoAnswer):
                code, answer = await self.code(await find(), request)
                if code is E.NONE:
                    return answer
                assert code.retriable, code
            await asyncio.sleep(0.05)

    async def ask_coordinator(self, name: str, request: Any) -> Any:
        return await self.until_done(lambda: self.coordinator(TRANSACTION_KEY, name), request)

    async def begin(self, name: str) -> Producer:
        answer = await self.ask_coordinator(name, requests.init_producer_id(name, 60_000))
        return Producer(name, int(answer.producer_id), int(answer.producer_epoch))

    async def write(self, who: Producer, partition: int, sequence: int = 0) -> None:
        if not self.is_new:
            await self.ask_coordinator(who.name, requests.add_partition(who, TOPIC, partition))
        request = self.produce(who, partition, sequence)
        await self.until_done(lambda: self.leader(partition), request)

    def produce(self, who: Producer, partition: int, sequence: int = 0) -> Any:
        batch = build_batch(
            [Record(0, 1_000, None, b"x")],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return requests.produce(who, TOPIC, partition, batch, is_new=self.is_new)

    async def named(self, kind: int, node: int, *, there: bool = True) -> Iterator[str]:
        """Names of groups or transactional ids that the node coordinates, or does not."""
        names = [f"name-{number}" for number in range(30)]
        found = [n for n in names if (await self.coordinator(kind, n) == node) is there]
        return iter(found)

    async def led(self, node: int, *, there: bool = True) -> int:
        """A partition that the node leads, or does not."""
        for partition in range(PARTITIONS):
            if (await self.leader(partition) == node) is there:
                return partition
        raise AssertionError("each node leads one")

    def cut_off(self, node: int) -> None:
        for other in self.cluster.nodes:
            if other != node:
                self.cluster._sim.network.cut_both(node, other)

    async def successor(self, name: str, of: int) -> int:
        while (found := await self.coordinator(TRANSACTION_KEY, name)) == of:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return found


def _code(answer: Any) -> ErrorCode:
    if hasattr(answer, "responses"):
        return ErrorCode(int(answer.responses[0].partition_responses[0].error_code))
    if hasattr(answer, "results_by_topic_v3_and_below"):
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return ErrorCode(int(row.partition_error_code))
    if hasattr(answer, "topics"):
        return ErrorCode(int(answer.topics[0].partitions[0].error_code))
    return ErrorCode(int(answer.error_code))


VICTIM = 1

Prepare = Callable[[Desk], Awaitable[Any]]
"""What goes before; the request that is then put to the broker that was cut off."""


async def end(desk: Desk) -> Any:
    who = await desk.begin(next(await desk.named(TRANSACTION_KEY, VICTIM)))
    await desk.write(who, await desk.led(VICTIM, there=False))
    return requests.end(who, commit=True, is_new=desk.is_new)


async def add_partition(desk: Desk) -> Any:
    who = await desk.begin(next(await desk.named(TRANSACTION_KEY, VICTIM)))
    return requests.add_partition(who, TOPIC, 0)


async def add_offsets(desk: Desk) -> Any:
    who = await desk.begin(next(await desk.named(TRANSACTION_KEY, VICTIM)))
    return requests.add_offsets(who, "group")


async def begin(desk: Desk) -> Any:
    return requests.init_producer_id(next(await desk.named(TRANSACTION_KEY, VICTIM)), 60_000)


async def produce(desk: Desk) -> Any:
    """To a leader that has to ask a coordinator elsewhere."""
    who = await desk.begin(next(await desk.named(TRANSACTION_KEY, VICTIM, there=False)))
    partition = await desk.led(VICTIM)
    if not desk.is_new:
        await desk.ask_coordinator(who.name, requests.add_partition(who, TOPIC, partition))
    return desk.produce(who, partition)


async def produce_more(desk: Desk) -> Any:
    """To a leader that has not to ask anybody, and replicas to wait for."""
    who = await desk.begin(next(await desk.named(TRANSACTION_KEY, VICTIM, there=False)))
    partition = await desk.led(VICTIM)
    await desk.write(who, partition)
    return replace(desk.produce(who, partition, sequence=1), timeout=duration_i32(60_000))


async def commit_offsets(desk: Desk) -> Any:
    who = await desk.begin(next(await desk.named(TRANSACTION_KEY, VICTIM, there=False)))
    group = next(await desk.named(GROUP_KEY, VICTIM))
    if not desk.is_new:
        await desk.ask_coordinator(who.name, requests.add_offsets(who, group))
    return requests.commit_offset(who, group, TOPIC, 0, 5, is_new=desk.is_new)


@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
@pytest.mark.parametrize(
    "prepare", [end, add_partition, add_offsets, begin, produce, produce_more, commit_offsets]
)
def test_whoever_asks_it_is_sent_away_when_it_may_have_been_replaced(
    cluster: SimulatedCluster, prepare: Prepare, is_new: bool
) -> None:
    async def script(client: SimKafkaClient) -> None:
        desk = Desk(cluster, client, is_new)
        request = await prepare(desk)
        desk.cut_off(VICTIM)
        for within_s in (REPLACED_S, AT_ONCE_S):
            began_s = desk.now_s()
            code, _ = await desk.code(VICTIM, request)
            is_write = prepare in (produce, produce_more)
            assert code in (LED_ELSEWHERE if is_write else COORDINATED_ELSEWHERE)
            assert desk.now_s() - began_s < within_s

    cluster.run(script)


@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
@pytest.mark.parametrize("fault", ["cut off", "paused"])
def test_no_other_broker_waits_for_it(cluster: SimulatedCluster, fault: str, is_new: bool) -> None:
    """Neither the leader of a partition nor a group's coordinator, which ask about transactions."""

    async def script(client: SimKafkaClient) -> None:
        desk = Desk(cluster, client, is_new)
        names = await desk.named(TRANSACTION_KEY, VICTIM)
        writer, committer = await desk.begin(next(names)), await desk.begin(next(names))
        partition = await desk.led(VICTIM, there=False)
        group = next(await desk.named(GROUP_KEY, VICTIM, there=False))
        if not is_new:
            add = requests.add_partition(writer, TOPIC, partition)
            await desk.ask_coordinator(writer.name, add)
            await desk.ask_coordinator(committer.name, requests.add_offsets(committer, group))
        leader, coordinator = await desk.leader(partition), await desk.coordinator(GROUP_KEY, group)
        desk.cut_off(VICTIM) if fault == "cut off" else cluster._sim.pause(VICTIM)
        began_s = desk.now_s()
        await desk.until_done(lambda: _known(leader), desk.produce(writer, partition))
        commit = requests.commit_offset(committer, group, TOPIC, 0, 5, is_new=is_new)
        await desk.until_done(lambda: _known(coordinator), commit)
        assert desk.now_s() - began_s < REPLACED_S

    cluster.run(script)


async def _known(node: int) -> int:
    return node


@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
def test_it_does_not_judge_what_began_at_its_successor(
    cluster: SimulatedCluster, is_new: bool
) -> None:
    """An old client's next transaction has the epoch of the last, which this broker saw committed:
    it must not say that this one was. A new client's has an epoch that this broker never saw: it
    must not call that fenced."""

    async def script(client: SimKafkaClient) -> None:
        desk = Desk(cluster, client, is_new)
        name = next(await desk.named(TRANSACTION_KEY, VICTIM))
        partition = await desk.led(VICTIM, there=False)
        who = await desk.begin(name)
        await desk.write(who, partition)
        ended = await desk.ask_coordinator(name, requests.end(who, commit=True, is_new=is_new))
        if is_new:
            who = Producer(name, int(ended.producer_id), int(ended.producer_epoch))
        desk.cut_off(VICTIM)
        await desk.successor(name, VICTIM)
        await desk.write(who, partition, sequence=0 if is_new else 1)
        if is_new:
            end = requests.end(who, commit=True, is_new=True)
            ended = await desk.until_done(lambda: desk.successor(name, VICTIM), end)
            who = Producer(name, int(ended.producer_id), int(ended.producer_epoch))
        code, _ = await desk.code(VICTIM, requests.end(who, commit=True, is_new=is_new))
        assert code is E.COORDINATOR_NOT_AVAILABLE

    cluster.run(script)


def test_it_does_not_judge_members_of_a_group_that_may_have_gone_on_elsewhere(
    cluster: SimulatedCluster,
) -> None:
    async def script(client: SimKafkaClient) -> None:
        desk = Desk(cluster, client, is_new=True)
        request = await commit_offsets(desk)
        assert (await desk.code(VICTIM, request))[0] is E.NONE
        of_a_member = replace(request, member_id="member", generation_id=7)
        assert (await desk.code(VICTIM, of_a_member))[0] is E.UNKNOWN_MEMBER_ID
        desk.cut_off(VICTIM)
        await asyncio.sleep(REPLACED_S)
        assert (await desk.code(VICTIM, of_a_member))[0] is E.COORDINATOR_NOT_AVAILABLE

    cluster.run(script)
