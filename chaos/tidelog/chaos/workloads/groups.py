"""Groups whose members come and go while they read and commit.

Each member commits what it has got, one portion at a time. A watcher asks all the time what is
committed: that may never go back, whoever coordinates the group.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from tidelog.chaos.history import Outcome, Record, Verb
from tidelog.chaos.workloads.outcomes import outcome_of_commit
from tidelog.chaos.workloads.patience import Patience
from tidelog.chaos.workloads.reader import (
    UnfinishedRead,
    end_offsets,
    note_poll,
    read_everything,
)
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, Workload, client_settings
from tidelog.chaos.workloads.writer import Writer

_PARTITIONS: Final = 6
_SESSION_MS: Final = 6_000
_MEMBERS: Final = (2, 4)
_STAYS_S: Final = (3.0, 12.0)
_ASK_S: Final = 5.0
_WATCH_S: Final = 0.5
_SHARE_OF_RATE: Final = 0.25
"""Every record is read once per group, with a commit per portion."""


class Member(Worker):
    """One consumer, from joining to leaving."""

    def __init__(
        self, stage: Stage, topic: TopicPlan, group: str, protocol: str, client: str
    ) -> None:
        super().__init__(client)
        self._stage = stage
        self._recorder = stage.recorder
        self._topic = topic
        self._group = group
        self._protocol = protocol
        self._session = 0

    def work(self) -> None:
        consumer = Consumer(self._settings())
        consumer.subscribe([self._topic.name], on_assign=self._began_session)
        try:
            while not self.stopping.is_set():
                invoked_ms = self._recorder.now_ms()
                messages = consumer.consume(200, 0.2)
                client = f"{self.name}.{self._session}"
                if read := note_poll(self._recorder, client, invoked_ms, messages, self._group):
                    self._commit(consumer, client, read)
        finally:
            consumer.close()

    def _began_session(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._session += 1

    def _commit(self, consumer: Consumer, client: str, read: Sequence[Record]) -> None:
        places = {(r.topic, r.partition): r.offset + 1 for r in read}
        asked = [TopicPartition(t, p, offset) for (t, p), offset in places.items()]
        invoked_ms = self._recorder.now_ms()
        error: KafkaError | None = None
        answers = asked
        try:
            answers = consumer.commit(offsets=asked, asynchronous=False) or asked
        except KafkaException as failed:
            error = failed.args[0]
        for place in answers:
            own = error or place.error
            if own is None:
                self.note_success()
            self._recorder.operation(
                client,
                Verb.COMMIT_OFFSET,
                invoked_ms,
                outcome_of_commit(own),
                topic=place.topic,
                partition=place.partition,
                offset=places[place.topic, place.partition],
                group=self._group,
                error="" if own is None else own.str(),
            )

    def _settings(self) -> dict[str, object]:
        own: dict[str, object] = {"group.protocol": self._protocol}
        if self._protocol == "classic":
            own["session.timeout.ms"] = _SESSION_MS
            own["heartbeat.interval.ms"] = 1_000
        return {
            **client_settings(
                self._stage.bootstrap,
                self.name,
                group_id=self._group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_wait_max_ms=100,
            ),
            **own,
        }


class Churn(Worker):
    """Keeps a group between two and four members, none of which stays long.

    When it ends, those that are there go on reading until they are told to ``leave``.
    """

    def __init__(self, stage: Stage, topic: TopicPlan, group: str, protocol: str) -> None:
        super().__init__(f"churn of {group}")
        self._stage, self._topic, self._group, self._protocol = stage, topic, group, protocol
        self._drawn = random.Random(f"{stage.seed} {group}")
        self._number = 0
        self._members: dict[Member, float] = {}
        self.failures: list[str] = []

    @property
    def has_succeeded(self) -> bool:
        """The least number of members are there and have committed something."""
        return sum(member.has_succeeded for member in list(self._members)) >= _MEMBERS[0]

    def work(self) -> None:
        while not self.stopping.is_set():
            now_s = time.monotonic()
            for member in [m for m, until_s in self._members.items() if until_s < now_s]:
                if len(self._members) > _MEMBERS[0]:
                    self._remove(member)
            if len(self._members) < _MEMBERS[1] and (
                len(self._members) < _MEMBERS[0] or self._drawn.random() < 0.2
            ):
                self._add(now_s)
            self.stopping.wait(0.5)

    def leave(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        for member in self._members:
            member.stopping.set()
        for member in list(self._members):
            self._remove(member, max(1.0, deadline - time.monotonic()))

    def _add(self, now_s: float) -> None:
        self._number += 1
        name = f"{self._group}-member-{self._number}"
        member = Member(self._stage, self._topic, self._group, self._protocol, name)
        member.start()
        self._members[member] = now_s + self._drawn.uniform(*_STAYS_S)

    def _remove(self, member: Member, patience_s: float = 30.0) -> None:
        member.finish(patience_s)
        del self._members[member]
        if member.failure:
            self.failures.append(member.failure)


class CommitWatch(Worker):
    """Asks what a group has committed, and notes every answer."""

    def __init__(self, stage: Stage, topic: TopicPlan, group: str) -> None:
        super().__init__(f"{group}-watch")
        self._stage = stage
        self._topic = topic
        self._group = group
        self.latest: dict[int, int] = {}
        """By partition, as it was last heard."""

    def work(self) -> None:
        consumer = Consumer(
            client_settings(
                self._stage.bootstrap,
                self.name,
                group_id=self._group,
                enable_auto_commit=False,
                isolation_level="read_committed",  # waits for transactions that are under way
            )
        )
        try:
            while not self.stopping.wait(_WATCH_S):
                self._look(consumer)
        finally:
            consumer.close()

    def _look(self, consumer: Consumer) -> None:
        recorder = self._stage.recorder
        invoked_ms = recorder.now_ms()
        places = [TopicPartition(self._topic.name, p) for p in range(self._topic.partitions)]
        try:
            answers = consumer.committed(places, _ASK_S)
        except KafkaException:
            return  # nobody answered: nothing was learnt
        found = {a.partition: a.offset for a in answers if a.error is None}
        self.latest.update(found)
        if found:
            self.note_success()
        for partition, offset in found.items():
            recorder.operation(
                self.name,
                Verb.FETCH_OFFSET,
                invoked_ms,
                Outcome.OK,
                topic=self._topic.name,
                partition=partition,
                offset=offset if offset >= 0 else None,
                group=self._group,
            )


def wait_until_committed(
    stage: Stage, topic: TopicPlan, watches: Sequence[CommitWatch], patience_s: float
) -> bool:
    """Until every group watched has committed the end of the topic, which nobody writes to now."""
    deadline = time.monotonic() + patience_s
    try:
        ends = end_offsets(stage, [topic], deadline)
    except UnfinishedRead:
        return False
    while time.monotonic() < deadline:
        if all(w.latest.get(p, 0) >= end for w in watches for (_, p), end in ends.items()):
            return True
        time.sleep(0.1)
    return False


class Groups(Workload):
    name = "groups"
    node_settings: Mapping[str, str] = {
        "group.consumer.min.session.timeout.ms": str(_SESSION_MS),
        "group.consumer.session.timeout.ms": str(_SESSION_MS),
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    """A member whose farewell was lost keeps its partitions for a session, else of 45 s."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._topic = TopicPlan(f"{stage.topic_prefix}group-events", _PARTITIONS)
        protocols = ("classic", "consumer") if stage.has_new_groups else ("classic",)
        self._group_names = [f"{stage.topic_prefix}{name}-group" for name in protocols]
        self._writer = Writer(
            stage, self._topic, "group-writer", rate=max(1.0, stage.rate * _SHARE_OF_RATE)
        )
        named = list(zip(self._group_names, protocols, strict=True))
        self._churns = [Churn(stage, self._topic, group, kind) for group, kind in named]
        self._watches = [CommitWatch(stage, self._topic, group) for group in self._group_names]

    @property
    def topics(self) -> Sequence[TopicPlan]:
        return (self._topic,)

    @property
    def groups(self) -> Sequence[str]:
        return self._group_names

    @property
    def workers(self) -> Sequence[Worker]:
        return (self._writer, *self._churns, *self._watches)

    def stop(self, patience_s: float) -> None:
        patience = Patience(patience_s)
        self._writer.finish(patience.left_s)
        for churn in self._churns:
            churn.finish(patience.left_s)
        if not wait_until_committed(self._stage, self._topic, self._watches, patience.left_s):
            self._note_who_has_what()
        for churn in self._churns:
            churn.leave(patience.left_s)
        for watch in self._watches:
            watch.finish(patience.left_s)

    def _note_who_has_what(self) -> None:
        """Who keeps a partition and does not read it, or whom nobody gave it to."""
        admin = AdminClient(client_settings(self._stage.bootstrap, "group-inquiry"))
        said = [
            _members_of(group, answer)
            for group, answer in admin.describe_consumer_groups(self._group_names).items()
        ]
        read = [
            f"{watch.name} last heard {dict(sorted(watch.latest.items()))}"
            for watch in self._watches
        ]
        what = "not every group had read all when the run ended"
        self._stage.recorder.note("; ".join([what, *said, *read]))

    def read_back(self, patience_s: float) -> None:
        read_everything(self._stage, self.topics, patience_s)

    def failures(self) -> Sequence[str]:
        return [*super().failures(), *self._members_failures()]

    def _members_failures(self) -> Sequence[str]:
        return [text for churn in self._churns for text in churn.failures]


def _members_of(group: str, answer: Future[ConsumerGroupDescription]) -> str:
    try:
        found = answer.result(_ASK_S)
    except (KafkaException, TimeoutError) as error:
        return f"{group} could not be described: {error}"
    members = [
        f"{member.client_id} has {sorted(p.partition for p in member.assignment.topic_partitions)}"
        for member in found.members
    ]
    return f"{group} is {found.state.name.lower()}: {', '.join(members) or 'nobody'}"
