"""Transactions while coordinators and leaders die: all or nothing, and nothing stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from sim_lab import STEADY, SimLab, simulate
from sim_transactions import Deeds, Refused, Transactor, committed_records
from slow_tests import slow_after

from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex
from tidelog.replication.partition import Partition
from tidelog.simulation import kafka_messages
from tidelog.simulation.partition_checks import newest_image
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.simulation.sim_node import client_address
from tidelog.testing.checkers import Outcome, TransactionalHistory, check_transactional_log

PARTITIONS = 3
TOPIC = "payments"
QUIET = replace(STEADY, pause_s=1.0)
"""The lab's own producers write to another topic, outside of transactions."""
TIMEOUT_MS = 5_000
CUT_S = 12.0
"""Four sessions of a broker."""


class TransactionLab:
    def __init__(self, lab: SimLab, *, is_new: bool) -> None:
        self.lab = lab
        self.is_new = is_new
        self.deeds = Deeds()
        self.random: SimRandom = lab.world.random.fork("transactions")

    async def create_topic(self) -> None:
        client = self._client("creator")
        request = kafka_messages.create_topic(TOPIC, PARTITIONS, 3, {}, 10_000)
        while not self._is_created():
            with suppress(NoAnswer):
                await client.call_any(request, 15.0)
            await asyncio.sleep(0.1)

    def _is_created(self) -> bool:
        image = newest_image(self.lab.cluster)
        return image is not None and image.topics.named(TOPIC) is not None

    def transactor(
        self, name: str, life: str, *, timeout_ms: int = TIMEOUT_MS, answer_s: float = 4.0
    ) -> Transactor:
        return Transactor(
            self._client(life), name, life, TOPIC, PARTITIONS, self.deeds,
            is_new=self.is_new, timeout_ms=timeout_ms, answer_s=answer_s,
        )  # fmt: skip

    def _client(self, name: str) -> SimKafkaClient:
        cluster = self.lab.cluster
        process = cluster.network.boot(f"client-{name}")
        return SimKafkaClient(
            cluster.network, process, [client_address(node) for node in cluster.plan.brokers]
        )

    def coordinator_of(self, name: str) -> int:
        image = newest_image(self.lab.cluster)
        topic = None if image is None else image.topics.named("__transaction_state")
        assert topic is not None
        return int(topic.partitions[coordinator_partition(name, len(topic.partitions))].leader)

    def leader_id(self, index: int) -> int:
        image = newest_image(self.lab.cluster)
        topic = None if image is None else image.topics.named(TOPIC)
        assert topic is not None
        return int(topic.partitions[PartitionIndex(index)].leader)

    def leader(self, index: int) -> Partition | None:
        replicas = self.lab.cluster.replicas(self.leader_id(index))
        found = None if replicas is None else replicas.lookup(TOPIC, index)
        is_there = isinstance(found, Partition) and found.leader is not None
        return found if is_there and isinstance(found, Partition) else None

    def is_stable(self) -> bool:
        """Whether no transaction is open anywhere."""
        for index in range(PARTITIONS):
            leader = self.leader(index)
            if leader is None or not leader.leader or not leader.leader.is_established:
                return False
            if leader.log.last_stable_offset != leader.log.end_offset:
                return False
        return True

    async def judge(self) -> None:
        """All transactions end by themselves, and what they left is whole."""
        await self.lab.cluster.until(self.is_stable, "no transaction is open", 30.0)
        final = {}
        for index in range(PARTITIONS):
            leader = self.leader(index)
            assert leader is not None
            final[TOPIC, index] = committed_records(leader)
        history = TransactionalHistory(self.deeds.writes, self.deeds.ends, (), final)
        assert check_transactional_log(history) == []


def run(scenario: Callable[[TransactionLab], Awaitable[None]], seed: int, *, is_new: bool) -> None:
    async def play(lab: SimLab) -> None:
        await lab.begin()
        transactions = TransactionLab(lab, is_new=is_new)
        await transactions.create_topic()
        task = asyncio.create_task(_as_coroutine(scenario(transactions)))
        await asyncio.wait([task])
        task.result()
        await transactions.judge()
        await lab.finish()

    simulate(play, seed=seed, workload=QUIET)


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


def committed(lab: TransactionLab) -> int:
    return sum(end.outcome is Outcome.COMMITTED for end in lab.deeds.ends)


@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
@pytest.mark.parametrize("seed", slow_after(1, range(1, 3)))
def test_transactions_survive_the_death_of_coordinators_and_leaders(
    seed: int, is_new: bool
) -> None:
    async def scenario(lab: TransactionLab) -> None:
        producer = lab.transactor("tx", "only")
        await producer.begin()
        faults = asyncio.create_task(strike(lab))
        number = 0
        while not faults.done():
            number += 1
            await producer.transaction(lab.random, commit=number % 3 != 0)
        faults.result()
        assert committed(lab) >= 5

    async def strike(lab: TransactionLab) -> None:
        cluster = lab.lab.cluster
        for victim in (lab.coordinator_of("tx"), lab.leader_id(0), 1 + seed % 3):
            await asyncio.sleep(0.8)
            if cluster.is_alive(victim):
                await cluster.kill(victim)
            await asyncio.sleep(1.5)
            await cluster.restart(victim)
            await lab.lab.until_in_sync()

    run(scenario, seed, is_new=is_new)


CUT_OFF = [
    (1, "coordinator", False),
    (1, "leader", True),
    (2, "coordinator", False),
    (2, "coordinator", True),
    (2, "leader", False),
    (3, "coordinator", True),
]


@pytest.mark.parametrize("case", slow_after(2, CUT_OFF), ids=str)
def test_a_node_that_is_cut_off_holds_transactions_up_until_it_is_replaced_and_no_longer(
    case: tuple[int, str, bool],
) -> None:
    """Though clients reach it, and this one waits for whatever it is not told."""
    seed, whom, is_new = case

    async def scenario(lab: TransactionLab) -> None:
        producer = lab.transactor("tx", "only", timeout_ms=60_000, answer_s=30.0)
        await producer.begin()
        ended_ms = [lab.lab.world.loop.elapsed_ms()]
        striking = asyncio.create_task(strike(lab))
        while not striking.done():
            await producer.transaction(lab.random, commit=True)
            ended_ms.append(lab.lab.world.loop.elapsed_ms())
        striking.result()
        gap_ms = max(after - before for before, after in pairwise(ended_ms))
        assert gap_ms < CUT_S * 1000 / 2, f"nothing was committed for {gap_ms:.0f} ms"

    async def strike(lab: TransactionLab) -> None:
        await asyncio.sleep(1.0 + lab.random.random())
        victim = lab.coordinator_of("tx") if whom == "coordinator" else lab.leader_id(0)
        network = lab.lab.cluster.network
        for other in lab.lab.cluster.plan.brokers:
            if other != victim:
                network.cut_both(victim, other)
        await asyncio.sleep(CUT_S)
        network.heal()
        await lab.lab.until_in_sync()

    run(scenario, seed, is_new=is_new)


@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
@pytest.mark.parametrize("seed", slow_after(1, range(1, 3)))
def test_a_zombie_is_fenced_and_leaves_nothing(seed: int, is_new: bool) -> None:
    """Hazard 31: it goes on writing when its successor has begun."""

    async def scenario(lab: TransactionLab) -> None:
        zombie = lab.transactor("tx", "zombie")
        await zombie.begin()
        await zombie.transaction(lab.random, commit=True)
        await zombie.write_unended(lab.random)
        heir = lab.transactor("tx", "heir")
        await heir.begin()
        working = asyncio.create_task(heir.transaction(lab.random, commit=True))
        with pytest.raises(Refused) as refused:
            await zombie.transaction(lab.random, commit=True)
        assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        await asyncio.wait([working])
        assert working.result() is Outcome.COMMITTED

    run(scenario, seed, is_new=is_new)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 3)))
def test_a_delayed_end_does_not_end_the_next_transaction(seed: int) -> None:
    """Hazard 29: one epoch for each transaction (KIP-890)."""

    async def scenario(lab: TransactionLab) -> None:
        producer = lab.transactor("tx", "only")
        await producer.begin()
        late = lab.transactor("tx", "late")
        for _ in range(4):
            before = producer.epoch
            await producer.transaction(lab.random, commit=True)
            late.producer_id = producer.producer_id
            await producer.write_unended(lab.random)
            with pytest.raises(Refused) as refused:
                await late.end(before, commit=True)
            assert refused.value.code is ErrorCode.PRODUCER_FENCED
            await producer.end(producer.epoch, commit=False)

    run(scenario, seed, is_new=True)


@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
@pytest.mark.parametrize("seed", slow_after(1, range(1, 3)))
def test_what_nobody_ends_is_aborted_though_the_coordinator_dies(seed: int, is_new: bool) -> None:
    """Hazard 28: the last stable offset stalls for the time-out of the transaction, no longer."""

    async def scenario(lab: TransactionLab) -> None:
        for number in range(3):
            producer = lab.transactor(f"tx-{number}", f"life-{number}")
            await producer.begin()
            await producer.write_unended(lab.random)
        victim = lab.coordinator_of("tx-0")
        await lab.lab.cluster.kill(victim)
        begun_ms = lab.lab.world.loop.elapsed_ms()
        await lab.lab.cluster.until(lab.is_stable, "nothing is open", 30.0)
        assert lab.lab.world.loop.elapsed_ms() - begun_ms < TIMEOUT_MS + 10_000
        await lab.lab.cluster.restart(victim)
        await lab.lab.until_in_sync()

    run(scenario, seed, is_new=is_new)
