"""A cluster without processes: decisions are taken, replayed and checked, nothing else."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest

from tidelog.controller.decisions.alter_partition import (
    IsrMember,
    PartitionReport,
    PartitionVerdict,
    decide_alter_partition,
)
from tidelog.controller.decisions.broker_states import (
    BrokerHeartbeat,
    HeartbeatAnswer,
    decide_fencing,
    decide_heartbeat,
)
from tidelog.controller.decisions.create_topics import (
    CreatedTopic,
    NewTopic,
    decide_create_topics,
)
from tidelog.controller.decisions.features import bootstrap_records
from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES, ControllerPolicy
from tidelog.controller.decisions.registration import (
    RecoveryReport,
    RegistrationAnswer,
    RegistrationRequest,
    decide_registration,
)
from tidelog.controller.metadata.codec import decode_record, encode_record
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import (
    Endpoint,
    FeatureRange,
    LeaderRecovery,
    MetadataRecord,
    PartitionChange,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    NodeId,
    Offset,
    PartitionIndex,
    Uuid,
)
from tidelog.kernel.settings import Settings

R = TypeVar("R")
CLUSTER_ID = "0123456789abcdefghijkl"
FEATURES = tuple(FeatureRange(n, low, high) for n, (low, high) in SUPPORTED_FEATURES.items())


def node(number: int) -> NodeId:
    return NodeId(number)


def directory(number: int) -> DirectoryId:
    return DirectoryId(Uuid(number.to_bytes(16, "big")))


class Scene:
    """An active controller whose records commit at once."""

    def __init__(self, **settings: str) -> None:
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.policy = ControllerPolicy(CLUSTER_ID, node(1), Settings.of(values))
        self.random = random.Random(7)
        self.image = MetadataImage()
        self.last: tuple[MetadataRecord, ...] = ()
        self._incarnations = 0
        self.apply(bootstrap_records(self.policy))

    @property
    def next_offset(self) -> Offset:
        return Offset(self.image.offset + 1)

    def apply(self, records: tuple[MetadataRecord, ...]) -> None:
        self.last = records
        for record in records:
            stored = decode_record(encode_record(record))
            assert stored == record
            self.image = self.image.apply(stored, self.next_offset)

    def take(self, decision: Decision[R]) -> R:
        self.apply(decision.records)
        return decision.response

    def registration(
        self,
        broker: int,
        *,
        incarnation: int | None = None,
        dirs: tuple[int, ...] | None = None,
        rack: str | None = None,
        previous_epoch: int = -1,
        reports: tuple[RecoveryReport, ...] = (),
        held: tuple[PartitionRef, ...] | None = None,
    ) -> RegistrationRequest:
        self._incarnations += 1
        number = self._incarnations if incarnation is None else incarnation
        return RegistrationRequest(
            broker_id=node(broker),
            cluster_id=CLUSTER_ID,
            incarnation_id=IncarnationId(Uuid(number.to_bytes(16, "big"))),
            log_dirs=tuple(directory(d) for d in dirs or (100 + broker,)),
            endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + broker),),
            features=FEATURES,
            rack=rack,
            previous_broker_epoch=BrokerEpoch(previous_epoch),
            reports=reports,
            held=None if held is None else frozenset(held),
        )

    def register(
        self, request: RegistrationRequest, *, has_session: bool = False
    ) -> RegistrationAnswer:
        return self.take(
            decide_registration(
                self.image,
                self.policy,
                request,
                next_offset=self.next_offset,
                has_session=has_session,
            )
        )

    def start(self, *brokers: int, rack: str | None = None) -> None:
        """Brokers register and are unfenced."""
        for broker in brokers:
            answer = self.register(self.registration(broker, rack=rack))
            assert answer.error.code is ErrorCode.NONE, answer
            assert not self.heartbeat(broker).is_fenced

    def epoch(self, broker: int) -> BrokerEpoch:
        return self.image.brokers[node(broker)].epoch

    def heartbeat(
        self,
        broker: int,
        *,
        seen: int | None = None,
        lowest: int | None = None,
        wants_fence: bool = False,
        wants_shut_down: bool = False,
        offline: tuple[int, ...] = (),
    ) -> HeartbeatAnswer:
        heartbeat = BrokerHeartbeat(
            broker_id=node(broker),
            broker_epoch=self.epoch(broker),
            metadata_offset=self.image.offset if seen is None else Offset(seen),
            wants_fence=wants_fence,
            wants_shut_down=wants_shut_down,
            offline_log_dirs=tuple(directory(d) for d in offline),
        )
        least = self.image.offset if lowest is None else Offset(lowest)
        return self.take(
            decide_heartbeat(self.image, self.policy, heartbeat, lowest_active_offset=least)
        )

    def fence(self, broker: int) -> None:
        decision = decide_fencing(self.image, self.policy, node(broker), self.epoch(broker))
        answer = self.take(decision)
        assert answer.error.code is ErrorCode.NONE and answer.is_complete

    def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> CreatedTopic:
        new = NewTopic(
            name,
            assignments=tuple((i, tuple(map(node, r))) for i, r in enumerate(replicas)),
            configs=tuple((key.replace("_", "."), value) for key, value in configs.items()),
        )
        decision = decide_create_topics(self.image, self.policy, [new], self.random)
        [created] = self.take(decision)
        assert created.error.code is ErrorCode.NONE, created
        return created

    def ref(self, name: str, partition: int = 0) -> PartitionRef:
        return PartitionRef(self.image.topics.by_name[name], PartitionIndex(partition))

    def state(self, name: str, partition: int = 0) -> PartitionState:
        state = self.image.topics.partition(self.ref(name, partition))
        assert state is not None
        return state

    def report_of(self, name: str, partition: int, *isr: int) -> PartitionReport:
        """What the leader would report if it wanted this ISR."""
        state = self.state(name, partition)
        return PartitionReport(
            partition=self.ref(name, partition),
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple(IsrMember(node(b), self.epoch(b)) for b in isr),
            recovery=LeaderRecovery.RECOVERED,
        )

    def alter(self, report: PartitionReport, sender: int | None = None) -> PartitionVerdict:
        state = self.image.topics.partition(report.partition)
        leader = sender if sender is not None else (state.leader if state is not None else 1)
        decision = decide_alter_partition(
            self.image, self.policy, node(leader), self.epoch(leader), [report]
        )
        answer = self.take(decision)
        assert answer.error.code is ErrorCode.NONE, answer
        [verdict] = answer.partitions
        return verdict

    def set_isr(self, name: str, partition: int, *isr: int) -> ErrorCode:
        return self.alter(self.report_of(name, partition, *isr)).error.code

    def take_elr_away(self, name: str, partition: int = 0) -> None:
        ref = self.ref(name, partition)
        self.apply((PartitionChange(ref.topic_id, ref.partition, elr=()),))

    def summary(self, name: str, partition: int = 0) -> str:
        """``leader|isr|elr|leader epoch``, for tables."""
        state = self.state(name, partition)
        lists = "|".join(",".join(map(str, nodes)) for nodes in (state.isr, state.elr))
        return f"{state.leader}|{lists}|{state.leader_epoch}"


@pytest.fixture
def scene() -> Scene:
    """Brokers 1, 2 and 3, min.insync.replicas=2, nothing else."""
    made = Scene(min_insync_replicas="2")
    made.start(1, 2, 3)
    return made


@pytest.fixture(scope="module")
def lone_broker() -> Scene:
    """Broker 1 alone with default settings, shared by a module."""
    made = Scene()
    made.start(1)
    return made


@pytest.fixture
def fresh_scene() -> type[Scene]:
    """For tests that need many of them."""
    return Scene
