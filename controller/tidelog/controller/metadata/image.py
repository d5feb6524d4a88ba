"""The metadata image: what replaying the metadata log up to an offset gives.

`MetadataImage.apply` is the only way from one image to the next, for the active controller that
has just decided a record, for a standby that replays it, and for a broker that receives it. A
record that does not fit the image (a change of a partition that is not there) means that this
node's image differs from the one the record was decided on; that is `InconsistentMetadata`, and
the node must stop rather than guess.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar, assert_never

from immutables import Map

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.brokers import BrokerRegistration, ControllerRegistration
from tidelog.controller.metadata.partitions import (
    PartitionRef,
    PartitionState,
    changed,
    restarting_empty,
    state_of,
    without_elr,
)
from tidelog.controller.metadata.topics import TopicImage, TopicsImage
from tidelog.kernel.ids import NO_OFFSET, NodeId, Offset, ProducerId, TopicId, Uuid

K = TypeVar("K")
V = TypeVar("V")
ConfigKey: TypeAlias = tuple[int, str]
ScramKey: TypeAlias = tuple[str, int]
QuotaKey: TypeAlias = tuple[r.QuotaEntity, ...]
FIRST_PRODUCER_ID: Final = ProducerId(0)


class InconsistentMetadata(Exception):
    """A committed record does not fit the image; this node must not go on."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the metadata log says up to ``offset``, which is the last record applied."""

    offset: Offset = NO_OFFSET
    brokers: Map[NodeId, BrokerRegistration] = field(default_factory=Map)
    controllers: Map[NodeId, ControllerRegistration] = field(default_factory=Map)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: Map[ConfigKey, Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    scram: Map[ScramKey, r.UserScramCredential] = field(default_factory=Map)
    acls: Map[Uuid, r.AccessControlEntry] = field(default_factory=Map)
    quotas: Map[QuotaKey, Map[str, float]] = field(default_factory=Map)

    def config(self, resource_type: int, name: str) -> Map[str, str]:
        """The configuration given to a resource; empty if none is."""
        return self.configs.get((resource_type, name), Map())

    def apply(self, record: r.MetadataRecord, offset: Offset) -> MetadataImage:
        """The image after this record, which stands at ``offset`` in the log."""
        match record:
            case r.Partition() | r.PartitionChange() | r.ReplicaRestartsEmpty():
                topics = _apply_to_partition(self.topics, record)
                return dataclasses.replace(self, offset=offset, topics=topics)
            case r.Topic() | r.ClearElr():
                topics = _apply_to_topics(self.topics, record)
                return dataclasses.replace(self, offset=offset, topics=topics)
            case r.RemoveTopic(topic_id):
                return self._without_topic(topic_id, offset)
            case r.RegisterBroker() | r.UnregisterBroker() | r.BrokerRegistrationChange():
                brokers = _apply_to_brokers(self.brokers, record, offset)
                return dataclasses.replace(self, offset=offset, brokers=brokers)
            case r.RegisterController():
                controller = ControllerRegistration.of(record)
                controllers = self.controllers.set(record.controller_id, controller)
                return dataclasses.replace(self, offset=offset, controllers=controllers)
            case r.Config():
                configs = _apply_to_configs(self.configs, record)
                return dataclasses.replace(self, offset=offset, configs=configs)
            case r.FeatureLevel(name, level):
                features = _set_or_drop(self.features, name, level or None)
                return dataclasses.replace(self, offset=offset, features=features)
            case r.ProducerIds(next_producer_id=next_id):
                return dataclasses.replace(self, offset=offset, next_producer_id=next_id)
            case r.NoOp() | r.EndOfImage():
                return dataclasses.replace(self, offset=offset)
            case _:
                return self._apply_security(record, offset)

    def _apply_security(self, record: _SecurityRecord, offset: Offset) -> MetadataImage:
        match record:
            case r.UserScramCredential(name, mechanism):
                scram = self.scram.set((name, mechanism), record)
                return dataclasses.replace(self, offset=offset, scram=scram)
            case r.RemoveUserScramCredential(name, mechanism):
                scram = _set_or_drop(self.scram, (name, mechanism), None)
                return dataclasses.replace(self, offset=offset, scram=scram)
            case r.AccessControlEntry(id=entry_id):
                return dataclasses.replace(
                    self, offset=offset, acls=self.acls.set(entry_id, record)
                )
            case r.RemoveAccessControlEntry(entry_id):
                acls = _set_or_drop(self.acls, entry_id, None)
                return dataclasses.replace(self, offset=offset, acls=acls)
            case r.ClientQuota():
                quotas = _apply_to_quotas(self.quotas, record)
                return dataclasses.replace(self, offset=offset, quotas=quotas)
            case _:
                assert_never(record)

    def _without_topic(self, topic_id: TopicId, offset: Offset) -> MetadataImage:
        topic = _existing_topic(self.topics, topic_id, "remove")
        configs = _set_or_drop(self.configs, (r.ResourceType.TOPIC.value, topic.name), None)
        topics = self.topics.without_topic(topic)
        return dataclasses.replace(self, offset=offset, topics=topics, configs=configs)


_SecurityRecord: TypeAlias = (
    r.UserScramCredential
    | r.RemoveUserScramCredential
    | r.AccessControlEntry
    | r.RemoveAccessControlEntry
    | r.ClientQuota
)


def _set_or_drop(values: Map[K, V], key: K, value: V | None) -> Map[K, V]:
    if value is not None:
        return values.set(key, value)
    return values.delete(key) if key in values else values


def _existing_topic(topics: TopicsImage, topic_id: TopicId, what: str) -> TopicImage:
    topic = topics.by_id.get(topic_id)
    if topic is None:
        raise InconsistentMetadata(f"cannot {what} topic {topic_id}: there is no such topic")
    return topic


def _apply_to_partition(
    topics: TopicsImage, record: r.Partition | r.PartitionChange | r.ReplicaRestartsEmpty
) -> TopicsImage:
    ref = PartitionRef(record.topic_id, record.partition)
    _existing_topic(topics, record.topic_id, "change a partition of")
    old = topics.partition(ref)
    if isinstance(record, r.Partition):
        if old is not None:
            raise InconsistentMetadata(f"cannot create partition {ref}: it exists")
        return topics.with_partition(ref, state_of(record))
    if old is None:
        raise InconsistentMetadata(f"cannot change partition {ref}: there is no such partition")
    return topics.with_partition(ref, _state_after(old, record))


def _state_after(
    old: PartitionState, record: r.PartitionChange | r.ReplicaRestartsEmpty
) -> PartitionState:
    match record:
        case r.PartitionChange():
            return changed(old, record)
        case r.ReplicaRestartsEmpty():
            return restarting_empty(old, record)
        case _:
            assert_never(record)


def _apply_to_topics(topics: TopicsImage, record: r.Topic | r.ClearElr) -> TopicsImage:
    if isinstance(record, r.Topic):
        if record.name in topics.by_name or record.topic_id in topics.by_id:
            raise InconsistentMetadata(f"cannot create topic {record.name}: it exists")
        return topics.with_topic(record.name, record.topic_id)
    for ref in _refs_with_elr(topics, record.topic_name):
        state = topics.by_id[ref.topic_id].partitions[ref.partition]
        topics = topics.with_partition(ref, without_elr(state))
    return topics


def _refs_with_elr(topics: TopicsImage, name: str) -> list[PartitionRef]:
    if not name:
        return list({ref for refs in topics.indexes.in_elr.values() for ref in refs})
    topic = topics.named(name)
    if topic is None:
        return []
    return [PartitionRef(topic.topic_id, i) for i, state in topic.partitions.items() if state.elr]


def _apply_to_brokers(
    brokers: Map[NodeId, BrokerRegistration],
    record: r.RegisterBroker | r.UnregisterBroker | r.BrokerRegistrationChange,
    offset: Offset,
) -> Map[NodeId, BrokerRegistration]:
    if isinstance(record, r.RegisterBroker):
        return brokers.set(record.broker_id, BrokerRegistration.of(record))
    known = brokers.get(record.broker_id)
    if known is None or known.epoch != record.broker_epoch:
        raise InconsistentMetadata(
            f"cannot change broker {record.broker_id} of epoch {record.broker_epoch}: known is"
            f" {'none' if known is None else f'epoch {known.epoch}'}"
        )
    if isinstance(record, r.UnregisterBroker):
        return brokers.delete(record.broker_id)
    return brokers.set(record.broker_id, known.changed(record, offset))


def _apply_to_configs(
    configs: Map[ConfigKey, Map[str, str]], record: r.Config
) -> Map[ConfigKey, Map[str, str]]:
    key = (record.resource_type, record.resource_name)
    values: Map[str, str] = _set_or_drop(configs.get(key, Map()), record.name, record.value)
    return _set_or_drop(configs, key, values if values else None)


def _apply_to_quotas(
    quotas: Map[QuotaKey, Map[str, float]], record: r.ClientQuota
) -> Map[QuotaKey, Map[str, float]]:
    value = None if record.remove else record.value
    limits: Map[str, float] = _set_or_drop(quotas.get(record.entity, Map()), record.key, value)
    return _set_or_drop(quotas, record.entity, limits if limits else None)


def quota_order(entity: QuotaKey) -> list[tuple[str, bool, str]]:
    """A sort key for quota entities; no name and an empty name are different."""
    return [(e.entity_type, e.entity_name is not None, e.entity_name or "") for e in entity]
