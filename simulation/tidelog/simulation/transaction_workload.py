"""Transactional clients that fence each other, vanish and stop, and what comes of it.

Every transactional id has two places, each a host on which one life follows another: two lives of
one name are rivals, and the older one is a zombie. ``begin`` fills the places and starts the churn;
``drain`` lets one copier per partition finish; ``abandon`` kills everybody in the middle of what
they do and requires that nothing stays open for longer than the time-out and a sweep; ``check``
judges everything that was ever written and read.

Owner: the run of one seed, from outside of all processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.replication.partition import Partition
from tidelog.simulation.clients import Clients
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.committed_reader import CommittedReader
from tidelog.simulation.history import History, PartitionName, Violation
from tidelog.simulation.partition_checks import newest_image
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import SimKafkaClient
from tidelog.simulation.sim_transactor import RETRY_S, TRANSACTION_TIMEOUT_MS, Deeds, Transactor
from tidelog.simulation.transaction_clients import Copier, Writer, name_of
from tidelog.simulation.workload import create_topic
from tidelog.testing.checkers import Outcome, Poll, TransactionalHistory, check_transactional_log

PAYMENTS: Final = "payments"
COPIES: Final = "copies"
SWEEP_MS: Final = 1_000
TRANSACTION_SETTINGS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(SWEEP_MS),
    # Replicas are compared byte by byte, and what was committed must stay where it is.
    "log.cleaner.enable": "false",
}
_MARKERS_MS: Final = 5_000
"""How long markers and their replication may take when nothing is broken."""


@dataclass(frozen=True, slots=True)
class TransactionsPlan:
    source: str
    partitions: int
    """Of each topic."""
    writers: int
    """Transactional ids of writers."""
    pause_s: float
    churn_s: float
    """On average between two changes."""
    replication_factor: int
    may_be_damaged: bool = False


class Seat:
    """Where one life of a transactional id follows another."""

    def __init__(self, name: str, rival: int, copied: int | None) -> None:
        self.name = name
        self.host = f"{name}-{rival}"
        self.copied = copied
        """The partition a copier reads; None: a writer."""
        self.copier: Copier | None = None
        self.task: asyncio.Task[None] | None = None
        self.lives = 0

    @property
    def is_empty(self) -> bool:
        return self.task is None or self.task.done()


class TransactionWorkload:
    def __init__(
        self, cluster: SimCluster, plan: TransactionsPlan, history: History, random: SimRandom
    ) -> None:
        self.plan = plan
        self.deeds = Deeds()
        self._cluster = cluster
        self._clients = Clients(cluster)
        self._history = history
        self._random = random
        self._readers: list[CommittedReader] = []
        self._churn: asyncio.Task[None] | None = None
        self.seats = [
            Seat(f"writer-{number}", rival, None)
            for number in range(plan.writers)
            for rival in range(2)
        ] + [
            Seat(f"copier-{index}", rival, index)
            for index in range(plan.partitions)
            for rival in range(2)
        ]

    @property
    def partitions(self) -> list[PartitionName]:
        indexes = range(self.plan.partitions)
        return [(topic, index) for topic in (PAYMENTS, COPIES) for index in indexes]

    def summary(self) -> str:
        deeds = self.deeds
        return (
            f"{sum(seat.lives for seat in self.seats)} lives, {deeds.count(Outcome.COMMITTED)}"
            f" transactions committed, {deeds.count(Outcome.ABORTED)} aborted,"
            f" {deeds.count(Outcome.UNKNOWN)} unknown, {deeds.fenced} fenced"
        )

    # --- at work -----------------------------------------------------------------------

    async def begin(self) -> None:
        await self._clients.do("topic-creator", self._create_topics)
        for seat in self.seats:
            if seat.host.endswith("0"):
                await self._fill(seat)
        for partition in self.partitions:
            self._start_reader(partition, "reader")
        self._churn = asyncio.create_task(self._churn_for_ever())

    async def _create_topics(self, client: SimKafkaClient) -> None:
        for topic in (PAYMENTS, COPIES):
            await create_topic(client, topic, self.plan.partitions, self.plan.replication_factor)

    def _start_reader(self, partition: PartitionName, kind: str) -> CommittedReader:
        name = f"{kind}-{partition[0]}-{partition[1]}"
        client = self._clients.client(name)
        reader = CommittedReader(client, name, partition, may_be_damaged=self.plan.may_be_damaged)
        self._readers.append(reader)
        self._clients.run(client, reader.run())
        return reader

    async def _churn_for_ever(self) -> None:
        random = self._random.fork("churn")
        network = self._cluster.network
        while True:
            await asyncio.sleep(self.plan.churn_s * 2 * random.random())
            seat = random.choice(self.seats)
            act = random.random()
            if seat.is_empty:
                await self._fill(seat)
            elif act < 0.5:
                await network.kill(seat.host)
            else:
                network.pause(seat.host)
                await asyncio.sleep(0.2 + 7 * random.random() ** 2)
                network.resume(seat.host)

    async def _fill(self, seat: Seat) -> None:
        if self._cluster.network.is_alive(seat.host):
            await self._cluster.network.kill(seat.host)
        seat.lives += 1
        life = f"{seat.host}/{seat.lives}"
        random = self._random.fork(life)
        client = self._clients.client(seat.host)
        transactor = Transactor(client, seat.name, life, self.deeds, is_new=random.random() < 0.5)
        if seat.copied is None:
            payments = [(PAYMENTS, index) for index in range(self.plan.partitions)]
            work = Writer(transactor, payments, random, pause_s=self.plan.pause_s).run()
        else:
            seat.copier = Copier(
                transactor, (self.plan.source, seat.copied), (COPIES, seat.copied), self._history,
                random, may_be_damaged=self.plan.may_be_damaged,
            )  # fmt: skip
            work = seat.copier.run()
        seat.task = self._clients.run(client, work)

    # --- at rest -----------------------------------------------------------------------

    async def drain(self, ends: Mapping[int, int], within_s: float) -> None:
        """New copiers, one per partition, copy all there is; writers go on meanwhile."""
        if self._churn is not None:
            self._churn.cancel()
        drained = [s for s in self.seats if s.copied is not None and s.host.endswith("0")]
        for seat in self.seats:
            self._cluster.network.resume(seat.host)
            if seat in drained:
                await self._fill(seat)
        refilling = asyncio.get_running_loop().create_task(self._refill(drained))

        def is_copied() -> bool:
            return _positions(drained) == [ends[index] for index in range(len(drained))]

        try:
            await self._cluster.until(is_copied, "", within_s)
        except TimeoutError:
            raise Violation(
                f"copiers are at {_positions(drained)} of {ends}"
                f" after {within_s:g} s without faults"
            ) from None
        finally:
            refilling.cancel()

    async def _refill(self, seats: Sequence[Seat]) -> None:
        """One that was about to begin when the faults were over may fence those that drain."""
        while True:
            for seat in seats:
                if seat.is_empty:
                    await self._fill(seat)
            await asyncio.sleep(RETRY_S)

    async def abandon(self) -> None:
        """Everybody vanishes; what they leave open is ended in time (hazard 28)."""
        for seat in self.seats:
            if self._cluster.network.is_alive(seat.host):
                await self._cluster.network.kill(seat.host)
        within_s = (TRANSACTION_TIMEOUT_MS + SWEEP_MS + _MARKERS_MS) / 1000
        try:
            await self._cluster.until(lambda: not list(self._open()), "", within_s)
        except TimeoutError:
            raise Violation(f"still open after {within_s:g} s: {list(self._open())}") from None

    def _open(self) -> Iterator[str]:
        """Partitions whose stable offset lags behind their end, with both."""
        image = newest_image(self._cluster)
        assert image is not None
        for topic in image.topics.by_id.values():
            for index, state in sorted(topic.partitions.items()):
                replicas = self._cluster.replicas(int(state.leader))
                found = None if replicas is None else replicas.lookup(topic.name, index)
                if not isinstance(found, Partition):
                    yield f"{topic.name}-{index} has no leader"
                elif found.log.last_stable_offset != found.log.end_offset:
                    ends = f"{found.log.last_stable_offset} of {found.log.end_offset}"
                    yield f"{topic.name}-{index} is stable up to {ends}"

    async def check(self, within_s: float) -> None:
        """Whole transactions, and every record copied once and in order."""
        late = [self._start_reader(partition, "late-reader") for partition in self.partitions]
        await self._cluster.until(
            lambda: all(reader.is_at_end for reader in self._readers), "all is read", within_s
        )
        for reader in self._readers:
            reader.stop()
        final = {one.partition: [(seen.offset, seen.value) for seen in one.seen] for one in late}
        polls = [Poll(one.name, tuple(one.seen)) for one in self._readers]
        history = TransactionalHistory(self.deeds.writes, self.deeds.ends, polls, final)
        anomalies = check_transactional_log(history)
        if anomalies:
            raise Violation(f"{len(anomalies)} anomalies, the first: {anomalies[:3]}")
        for index in range(self.plan.partitions):
            read = self._history.reads.get((self.plan.source, index), {})
            wanted = [name_of(read[offset]) for offset in sorted(read)]
            copied = [value.split(":", 1)[1] for _, value in final[COPIES, index]]
            if copied != wanted:
                raise Violation(f"{COPIES}-{index} has {copied}, its source {wanted}")


def _positions(seats: Sequence[Seat]) -> list[int]:
    return [-1 if seat.copier is None else seat.copier.position for seat in seats]
