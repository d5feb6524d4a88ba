"""Groups that read what is written while their members come, go, vanish and stop.

Each group has places; a place is a host on which one life of a member follows another. Every third
place is a static member: whoever lives there has the same instance id. ``begin`` fills the places
and starts the churn; ``drain`` ends it and waits until every group has committed all there is;
``check_failover`` kills coordinators of groups at rest and compares what the next ones know.

Owner: the run of one seed, from outside of all processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.simulation.classic_member import ClassicMember
from tidelog.simulation.clients import Clients
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.consumer_member import ConsumerMember
from tidelog.simulation.group_ledger import GroupLedger
from tidelog.simulation.group_member import GroupMember, GroupPlan
from tidelog.simulation.group_observer import GroupState, observe
from tidelog.simulation.history import History, Violation
from tidelog.simulation.random import SimRandom

GROUP_SETTINGS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    # Replicas are compared byte by byte, and what was committed must stay where it is.
    "log.cleaner.enable": "false",
}
_FROZEN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class GroupsPlan:
    topic: str
    partitions: int
    classic: str | None
    """The assignor of the classic group's members; None: there is no such group."""
    consumer: str | None
    """The assignor of the group that speaks KIP-848; None: there is no such group."""
    members: int
    churn_s: float
    """On average between two changes in a group."""
    may_be_damaged: bool = False


class Place:
    """Where one member lives after another."""

    def __init__(self, group: GroupPlan, number: int) -> None:
        self.group = group
        self.host = f"{group.group}-{number}"
        self.instance_id = f"{self.host}-static" if number % 3 == 2 else None
        self.member: GroupMember | None = None
        self.task: asyncio.Task[None] | None = None
        self.lives = 0

    @property
    def is_empty(self) -> bool:
        return self.task is None or self.task.done()


class GroupWorkload:
    def __init__(
        self, cluster: SimCluster, plan: GroupsPlan, history: History, random: SimRandom
    ) -> None:
        self.plan = plan
        self.ledgers: dict[str, GroupLedger] = {}
        self.places: list[Place] = []
        self._cluster = cluster
        self._clients = Clients(cluster)
        self._history = history
        self._random = random
        self._churn: list[asyncio.Task[None]] = []
        for name, protocol in (("classic", plan.classic), ("consumer", plan.consumer)):
            if protocol is not None:
                self._plan_group(name, protocol)

    def _plan_group(self, name: str, protocol: str) -> None:
        plan = self.plan
        group = GroupPlan(
            name, plan.topic, plan.partitions, protocol, name == "classic", plan.may_be_damaged
        )
        self.ledgers[name] = GroupLedger(name)
        self.places += [Place(group, number) for number in range(plan.members)]

    def summary(self) -> str:
        lives = sum(place.lives for place in self.places)
        return f"{lives} members, {', '.join(one.summary() for one in self.ledgers.values())}"

    # --- churn -------------------------------------------------------------------------

    async def begin(self) -> None:
        for place in self.places:
            if self._random.random() < 0.7:
                await self._fill(place)
        for group in self.ledgers:
            self._churn.append(asyncio.create_task(self._churn_for_ever(group)))

    async def _churn_for_ever(self, group: str) -> None:
        places = [place for place in self.places if place.group.group == group]
        random = self._random.fork(f"churn {group}")
        while True:
            await asyncio.sleep(self.plan.churn_s * 2 * random.random())
            place = random.choice(places)
            act = random.random()
            if place.is_empty:
                await self._fill(place)
            elif act < 0.4 and place.member is not None:
                place.member.leave()
            elif act < 0.7:
                await self._cluster.network.kill(place.host)
            else:
                self._cluster.network.pause(place.host)
                await asyncio.sleep(0.5 + 9 * random.random() ** 2)
                self._cluster.network.resume(place.host)

    async def _fill(self, place: Place) -> None:
        if self._cluster.network.is_alive(place.host):
            await self._cluster.network.kill(place.host)
        place.lives += 1
        client = self._clients.client(place.host)
        random = self._random.fork(f"{place.host} {place.lives}")
        kind = ClassicMember if place.group.is_classic else ConsumerMember
        place.member = kind(
            client, place.group, self.ledgers[place.group.group], self._history, random,
            instance_id=place.instance_id,
        )  # fmt: skip
        place.task = self._clients.run(client, place.member.run())

    # --- rest --------------------------------------------------------------------------

    async def drain(self, ends: Mapping[int, int], within_s: float) -> None:
        """All places are filled, and everything is read and committed."""
        for task in self._churn:
            task.cancel()
        for place in self.places:
            self._cluster.network.resume(place.host)
            if place.is_empty or (place.member is not None and place.member.is_leaving):
                await self._fill(place)

        def unread() -> list[str]:
            found = [ledger.unread(ends) for ledger in self.ledgers.values()]
            return [one for one in found if one is not None]

        try:
            await self._cluster.until(lambda: not unread(), "", within_s)
        except TimeoutError:
            raise Violation(f"after {within_s:g} s without faults: {unread()[0]}") from None

    async def check_failover(self, group: str, within_s: float) -> None:
        """What the coordinator of a group at rest knows, the next one knows too."""
        before = await self._freeze(group, within_s)
        ledger = self.ledgers[group]
        if before.offsets != {p: o for p, o in ledger.floor.items() if o > 0}:
            raise Violation(f"{group}: {ledger.floor} is committed, {before.offsets} is told")
        await self._cluster.kill(before.coordinator)
        after = await self._observe(group, not_at=before.coordinator)
        if before.comparable != after.comparable:
            raise Violation(
                f"{group}: node {before.coordinator} coordinated {before.comparable}, and node"
                f" {after.coordinator} after it {after.comparable}"
            )
        await self._cluster.restart(before.coordinator)
        await self._cluster.until_serving()
        self._resume(group)

    async def _freeze(self, group: str, within_s: float) -> GroupState:
        """Stop all members at a moment at which the group is stable."""
        deadline_s = self._cluster.world.loop.time() + within_s
        while True:
            for place in self._of(group):
                self._cluster.network.pause(place.host)
            await asyncio.sleep(_FROZEN_S)
            state = await self._observe(group)
            if state.is_stable:
                return state
            self._resume(group)
            if self._cluster.world.loop.time() > deadline_s:
                raise Violation(f"{group} does not come to rest: {state}")
            await asyncio.sleep(1.0)

    def _resume(self, group: str) -> None:
        for place in self._of(group):
            self._cluster.network.resume(place.host)

    def _of(self, group: str) -> list[Place]:
        return [place for place in self.places if place.group.group == group]

    async def _observe(self, group: str, *, not_at: int | None = None) -> GroupState:
        plan = self._of(group)[0].group
        return await self._clients.do(
            "observer", lambda client: observe(client, plan, not_at=not_at)
        )

    async def end(self) -> None:
        """All members leave."""
        for place in self.places:
            if place.member is not None:
                place.member.leave()
        await self._cluster.until(lambda: self._clients.are_done, "all members left", 30.0)
