"""Kill the active controller again and again under a stream of topic creations.

What was answered must be there afterwards, terms must have one leader each, and nobody may wait
for ever: every creation ends with an answer or an error within its time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from dedicated_controllers import ControllerTrio, ScriptedBroker, scripted_brokers

from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.metadata.image import MetadataImage
from tidelog.kernel.errors import ErrorCode
from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.probe import ProbeFailed, QuorumAnswer, ask_quorum


@dataclass
class QuorumOutcome:
    answered: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    elections_s: list[float] = field(default_factory=list)
    """From the kill until another node tells of a new leader."""
    leaders_of_terms: dict[int, set[int]] = field(default_factory=dict)

    @property
    def split_terms(self) -> list[int]:
        return [term for term, leaders in self.leaders_of_terms.items() if len(leaders) > 1]


class TopicCreator:
    """Creates one topic after the other until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answered: list[str] = []
        self.failed: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._thread.is_alive():
            raise TimeoutError("a creation of a topic has not ended within a minute")

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            name = f"topic-{number}"
            number += 1
            request = self._admin.create_topics(
                [NewTopic(name, 1, 3)], request_timeout=10, operation_timeout=10
            )
            try:
                request[name].result(30)
                self.answered.append(name)
            except KafkaException:
                self.failed.append(name)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=30).topics)


def kill_controllers(
    cluster: LocalCluster, kills: int, *, say: Callable[[str], None] = lambda line: None
) -> QuorumOutcome:
    outcome = QuorumOutcome()
    creator = TopicCreator(cluster.bootstrap)
    creator.start()
    for kill in range(1, kills + 1):
        before = _leader(cluster, outcome)
        killed_at = time.monotonic()
        cluster.kill(before.leader_id)
        after = _leader(cluster, outcome, not_term=before.term)
        outcome.elections_s.append(time.monotonic() - killed_at)
        say(
            f"kill {kill}: controller {before.leader_id} of term {before.term}, then "
            f"{after.leader_id} of {after.term} after {outcome.elections_s[-1] * 1000:.0f} ms"
        )
        cluster.start_node(before.leader_id)
        cluster.wait_until_serving(60)
    creator.stop()
    outcome.answered, outcome.failed = creator.answered, creator.failed
    there = creator.topics()
    outcome.missing = [name for name in creator.answered if name not in there]
    return outcome


def _leader(
    cluster: LocalCluster, outcome: QuorumOutcome, *, not_term: int | None = None
) -> QuorumAnswer:
    """The leader that any running node knows, of a later term than ``not_term``."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for node in cluster.nodes.values():
            if not node.is_running:
                continue
            try:
                answer = ask_quorum(node.kafka, timeout_s=0.5)
            except ProbeFailed:
                continue
            outcome.leaders_of_terms.setdefault(answer.term, set()).add(answer.leader_id)
            if not_term is None or answer.term > not_term:
                return answer
        time.sleep(0.005)
    raise TimeoutError("no leader of the quorum within 60 s")


async def kill_dedicated(
    trio: ControllerTrio, kills: int, *, say: Callable[[str], None] = lambda line: None
) -> QuorumOutcome:
    """The same with controllers that are nothing else, asked by brokers of this process."""
    outcome = QuorumOutcome()
    async with scripted_brokers(trio) as (watcher, asker, *_):
        creating = asyncio.create_task(_create_topics(asker, outcome))
        for kill in range(1, kills + 1):
            active, term = await _later_leader(watcher, outcome, -1)
            killed_at = time.monotonic()
            trio.kill(active)
            successor, new_term = await _later_leader(watcher, outcome, term)
            outcome.elections_s.append(time.monotonic() - killed_at)
            say(
                f"kill {kill}: controller {active} of term {term}, then {successor} of {new_term} "
                f"after {outcome.elections_s[-1] * 1000:.0f} ms"
            )
            trio.start_node(active)
            await _all_caught_up(watcher, len(trio.nodes))
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        image = await _committed_image(watcher)
        outcome.missing = [n for n in outcome.answered if image.topics.named(n) is None]
    return outcome


async def _create_topics(broker: ScriptedBroker, outcome: QuorumOutcome) -> None:
    number = 0
    while True:
        name = f"topic-{number}"
        number += 1
        try:
            code = await broker.create_topic(name, 1)
        except ControllerUnavailable:
            code = ErrorCode.REQUEST_TIMED_OUT
        (outcome.answered if code is ErrorCode.NONE else outcome.failed).append(name)


async def _later_leader(
    broker: ScriptedBroker, outcome: QuorumOutcome, than: int
) -> tuple[int, int]:
    async with asyncio.timeout(60):
        while True:
            leader, term = await broker.leader()
            outcome.leaders_of_terms.setdefault(term, set()).add(leader)
            if term > than:
                return leader, term
            await asyncio.sleep(0.002)


async def _committed_image(broker: ScriptedBroker) -> MetadataImage:
    """With everything that is committed by now."""
    answer = await broker.client.describe_quorum(timeout_ms=60_000)
    arrived = asyncio.Event()

    def look(_: object) -> None:
        if broker.client.feed.end_offset >= answer.high_watermark:
            arrived.set()

    broker.client.feed.subscribe(look)
    look(None)
    async with asyncio.timeout(60):
        await arrived.wait()
    return broker.client.feed.image


async def _all_caught_up(broker: ScriptedBroker, count: int) -> None:
    """Every controller has fetched lately: else the next kill would take the majority."""
    since_ms = time.time() * 1000
    async with asyncio.timeout(60):
        while True:
            answer = await broker.client.describe_quorum(timeout_ms=60_000)
            leader = answer.active_controller.node_id
            there = [
                voter
                for voter in answer.voters
                if voter.key.node_id == leader or voter.last_fetch_timestamp_ms >= since_ms
            ]
            if len(there) == count:
                return
            await asyncio.sleep(0.01)
