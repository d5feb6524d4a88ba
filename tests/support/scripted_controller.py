"""An active controller without a quorum: the real decisions, committed at once.

Every step appends a delta to ``deltas``; whoever plays a broker takes them in order, at its own
pace, as it would from the metadata stream.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from tidelog.controller.decisions.alter_partition import (
    AlterPartitionAnswer,
    PartitionReport,
    decide_alter_partition,
)
from tidelog.controller.decisions.broker_states import (
    BrokerHeartbeat,
    decide_fencing,
    decide_heartbeat,
)
from tidelog.controller.decisions.configs import (
    ConfigOperation,
    Operation,
    ResourceChange,
    decide_incremental_configs,
)
from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.decisions.delete_topics import Deletion, decide_delete_topics
from tidelog.controller.decisions.directories import (
    DirectoryAssignment,
    decide_directory_assignments,
)
from tidelog.controller.decisions.features import bootstrap_records
from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES, ControllerPolicy
from tidelog.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from tidelog.controller.decisions.registration import RegistrationRequest, decide_registration
from tidelog.controller.decisions.restart_empty import decide_restart_empty, decide_restarted_empty
from tidelog.controller.metadata.delta import MetadataDelta, advance
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import Endpoint, FeatureRange, MetadataRecord, ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    NodeId,
    Offset,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.settings import Settings

R = TypeVar("R")
CLUSTER_ID = "0123456789abcdefghijkl"
_FEATURES = tuple(FeatureRange(n, low, high) for n, (low, high) in SUPPORTED_FEATURES.items())


def directory(number: int) -> DirectoryId:
    return DirectoryId(Uuid(number.to_bytes(16, "big")))


class ScriptedController:
    def __init__(self, **settings: str) -> None:
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.policy = ControllerPolicy(CLUSTER_ID, NodeId(1), Settings.of(values))
        self.image = MetadataImage()
        self.deltas: list[MetadataDelta] = []
        self._random = random.Random(7)
        self._incarnations = 0
        self.apply(bootstrap_records(self.policy))

    def apply(self, records: Sequence[MetadataRecord]) -> None:
        if records:
            first = self.image.offset + 1
            numbered = [(Offset(first + i), record) for i, record in enumerate(records)]
            self.image, delta = advance(self.image, numbered)
            self.deltas.append(delta)

    def take(self, decision: Decision[R]) -> R:
        self.apply(decision.records)
        return decision.response

    # --- brokers -----------------------------------------------------------------------

    def register(
        self, broker: int, *dirs: DirectoryId, rack: str | None = None, previous_epoch: int = -1
    ) -> BrokerEpoch:
        """A new incarnation of a broker; it is fenced until ``unfence``."""
        self._incarnations += 1
        request = RegistrationRequest(
            broker_id=NodeId(broker),
            cluster_id=CLUSTER_ID,
            incarnation_id=IncarnationId(Uuid(self._incarnations.to_bytes(16, "big"))),
            log_dirs=dirs or (directory(100 + broker),),
            endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + broker),),
            features=_FEATURES,
            rack=rack,
            previous_broker_epoch=BrokerEpoch(previous_epoch),
        )
        answer = self.take(
            decide_registration(
                self.image,
                self.policy,
                request,
                next_offset=Offset(self.image.offset + 1),
                has_session=False,
            )
        )
        assert answer.error.code is ErrorCode.NONE, answer
        return self.epoch(broker)

    def unfence(self, broker: int, *, offline: tuple[DirectoryId, ...] = ()) -> None:
        self._heartbeat(broker, wants_shut_down=False, offline=offline)

    def shut_down(self, broker: int) -> None:
        self._heartbeat(broker, wants_shut_down=True)

    def _heartbeat(
        self, broker: int, *, wants_shut_down: bool, offline: tuple[DirectoryId, ...] = ()
    ) -> None:
        heartbeat = BrokerHeartbeat(
            broker_id=NodeId(broker),
            broker_epoch=self.epoch(broker),
            metadata_offset=self.image.offset,
            wants_shut_down=wants_shut_down,
            offline_log_dirs=offline,
        )
        self.take(
            decide_heartbeat(
                self.image, self.policy, heartbeat, lowest_active_offset=self.image.offset
            )
        )

    def start(self, *brokers: int) -> None:
        for broker in brokers:
            self.register(broker)
            self.unfence(broker)

    def fence(self, broker: int) -> None:
        self.take(decide_fencing(self.image, self.policy, NodeId(broker), self.epoch(broker)))

    def epoch(self, broker: int) -> BrokerEpoch:
        return self.image.brokers[NodeId(broker)].epoch

    def assign(self, broker: int, ref: PartitionRef, to: DirectoryId) -> ErrorCode:
        answer = self.take(
            decide_directory_assignments(
                self.image,
                self.policy,
                NodeId(broker),
                self.epoch(broker),
                [DirectoryAssignment(ref, to)],
            )
        )
        return answer.error.code

    # --- topics ------------------------------------------------------------------------

    def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> PartitionRef:
        """A topic with these replicas by partition; the ref of its first one."""
        new = NewTopic(
            name,
            assignments=tuple((i, tuple(map(NodeId, r))) for i, r in enumerate(replicas)),
            configs=tuple((key.replace("_", "."), value) for key, value in configs.items()),
        )
        [created] = self.take(decide_create_topics(self.image, self.policy, [new], self._random))
        assert created.error.code is ErrorCode.NONE, created
        return self.ref(name)

    def delete(self, name: str) -> None:
        [deleted] = self.take(decide_delete_topics(self.image, self.policy, [Deletion(name=name)]))
        assert deleted.error.code is ErrorCode.NONE, deleted

    def configure(self, topic: str, **configs: str) -> None:
        operations = tuple(
            ConfigOperation(key.replace("_", "."), Operation.SET, value)
            for key, value in configs.items()
        )
        change = ResourceChange(ResourceType.TOPIC, topic, operations)
        self.take(decide_incremental_configs(self.image, self.policy, [change]))

    def reassign(self, topic: str, partition: int, *replicas: int) -> None:
        tp = TopicPartition(topic, PartitionIndex(partition))
        request = ReassignmentRequest(tp, tuple(map(NodeId, replicas)))
        self.take(decide_reassignments(self.image, self.policy, [request]))

    def ref(self, name: str, partition: int = 0) -> PartitionRef:
        return PartitionRef(self.image.topics.by_name[name], PartitionIndex(partition))

    def state(self, ref: PartitionRef) -> PartitionState:
        state = self.image.topics.partition(ref)
        assert state is not None
        return state

    # --- what leaders and replicas report ----------------------------------------------

    def alter_partition(
        self, broker: int, epoch: BrokerEpoch, reports: Sequence[PartitionReport]
    ) -> AlterPartitionAnswer:
        return self.take(
            decide_alter_partition(self.image, self.policy, NodeId(broker), epoch, reports)
        )

    def restart_empty(self, broker: int, ref: PartitionRef) -> None:
        """A replica that is absent stops counting, and is to start over."""
        error = self.take(decide_restart_empty(self.image, self.policy, ref, NodeId(broker)))
        assert error.code is ErrorCode.NONE, error

    def restarted_empty(self, broker: int, epoch: BrokerEpoch, ref: PartitionRef) -> ErrorCode:
        decision = decide_restarted_empty(self.image, ref, NodeId(broker), epoch)
        return self.take(decision).code


__all__ = ["CLUSTER_ID", "ScriptedController", "directory"]
