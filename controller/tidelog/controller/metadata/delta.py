"""What changed between two images.

A broker that receives records wants to know which partitions to look at, not to compare two
images of the whole cluster: `advance` applies records and notes what each of them touched, at a
cost per record. After a snapshot there are no records to go by; `delta_between` then compares,
skipping whatever the two images share.

Both give the same answer: only what really differs is listed, in an order that is the same in
every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from immutables import Map

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.image import (
    ConfigKey,
    MetadataImage,
    QuotaKey,
    ScramKey,
    quota_order,
)
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.topics import in_order
from tidelog.kernel.ids import NodeId, Offset, TopicId, Uuid

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The differences between ``before`` and ``after``.

    A topic that was deleted and created again is in both lists, under its two ids. The
    partitions of deleted topics are not listed; those of created topics are.
    """

    before: MetadataImage
    after: MetadataImage
    brokers: tuple[NodeId, ...] = ()
    controllers: tuple[NodeId, ...] = ()
    topics_created: tuple[TopicId, ...] = ()
    topics_deleted: tuple[TopicId, ...] = ()
    partitions: tuple[PartitionRef, ...] = ()
    configs: tuple[ConfigKey, ...] = ()
    features: tuple[str, ...] = ()
    producer_ids: bool = False
    scram: tuple[ScramKey, ...] = ()
    acls: tuple[Uuid, ...] = ()
    quotas: tuple[QuotaKey, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether only the offset moved."""
        return not (
            self.brokers
            or self.controllers
            or self.topics_created
            or self.topics_deleted
            or self.partitions
            or self.configs
            or self.features
            or self.producer_ids
            or self.scram
            or self.acls
            or self.quotas
        )


@dataclass(slots=True)
class _Touched:
    """Keys that may have changed."""

    brokers: set[NodeId] = field(default_factory=set)
    controllers: set[NodeId] = field(default_factory=set)
    topics: set[TopicId] = field(default_factory=set)
    partitions: set[PartitionRef] = field(default_factory=set)
    configs: set[ConfigKey] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    scram: set[ScramKey] = field(default_factory=set)
    acls: set[Uuid] = field(default_factory=set)
    quotas: set[QuotaKey] = field(default_factory=set)

    def note(self, record: r.MetadataRecord, image: MetadataImage) -> None:
        """``image`` is the one before the record."""
        match record:
            case r.Partition() | r.PartitionChange() | r.ReplicaRestartsEmpty():
                self.partitions.add(PartitionRef(record.topic_id, record.partition))
            case r.Topic():
                self.topics.add(record.topic_id)
            case r.RemoveTopic(topic_id):
                self.topics.add(topic_id)
                topic = image.topics.by_id[topic_id]
                self.configs.add((r.ResourceType.TOPIC.value, topic.name))
            case r.ClearElr(name):
                self.partitions.update(_refs_that_may_be_cleared(image, name))
            case r.RegisterBroker() | r.UnregisterBroker() | r.BrokerRegistrationChange():
                self.brokers.add(record.broker_id)
            case r.RegisterController():
                self.controllers.add(record.controller_id)
            case r.Config():
                self.configs.add((record.resource_type, record.resource_name))
            case r.FeatureLevel():
                self.features.add(record.name)
            case r.UserScramCredential() | r.RemoveUserScramCredential():
                self.scram.add((record.name, record.mechanism))
            case r.AccessControlEntry() | r.RemoveAccessControlEntry():
                self.acls.add(record.id)
            case r.ClientQuota():
                self.quotas.add(record.entity)
            case r.ProducerIds() | r.NoOp() | r.EndOfImage():
                pass


def _refs_that_may_be_cleared(image: MetadataImage, name: str) -> Iterator[PartitionRef]:
    if name:
        topic = image.topics.named(name)
        return iter(()) if topic is None else iter(topic.refs())
    return (ref for refs in image.topics.indexes.in_elr.values() for ref in refs)


def advance(
    image: MetadataImage, records: Iterable[tuple[Offset, r.MetadataRecord]]
) -> tuple[MetadataImage, MetadataDelta]:
    """The image after these records, and what they changed."""
    touched, after = _Touched(), image
    for offset, record in records:
        touched.note(record, after)
        after = after.apply(record, offset)
    return after, _delta(image, after, touched)


def delta_between(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The same for two images of which the second is not built on the first."""
    touched = _Touched(
        brokers=_differing(before.brokers, after.brokers),
        controllers=_differing(before.controllers, after.controllers),
        topics=_differing(before.topics.by_id, after.topics.by_id),
        configs=_differing(before.configs, after.configs),
        features=_differing(before.features, after.features),
        scram=_differing(before.scram, after.scram),
        acls=_differing(before.acls, after.acls),
        quotas=_differing(before.quotas, after.quotas),
    )
    for topic_id in touched.topics:
        old, new = before.topics.by_id.get(topic_id), after.topics.by_id.get(topic_id)
        if new is not None:
            indexes = _differing(old.partitions if old else Map(), new.partitions)
            touched.partitions.update(PartitionRef(topic_id, index) for index in indexes)
    return _delta(before, after, touched)


def _delta(before: MetadataImage, after: MetadataImage, touched: _Touched) -> MetadataDelta:
    old, new = before.topics.by_id, after.topics.by_id
    known = [topic_id for topic_id in touched.topics if (topic_id in old) != (topic_id in new)]
    partitions = (
        ref
        for ref in touched.partitions
        if ref.topic_id in new and before.topics.partition(ref) != after.topics.partition(ref)
    )
    return MetadataDelta(
        before=before,
        after=after,
        brokers=_really(touched.brokers, before.brokers, after.brokers),
        controllers=_really(touched.controllers, before.controllers, after.controllers),
        topics_created=_sorted((topic_id for topic_id in known if topic_id in new), _raw),
        topics_deleted=_sorted((topic_id for topic_id in known if topic_id in old), _raw),
        partitions=tuple(in_order(partitions)),
        configs=_really(touched.configs, before.configs, after.configs),
        features=_really(touched.features, before.features, after.features),
        producer_ids=before.next_producer_id != after.next_producer_id,
        scram=_really(touched.scram, before.scram, after.scram),
        acls=_really(touched.acls, before.acls, after.acls, _raw),
        quotas=_really(touched.quotas, before.quotas, after.quotas, quota_order),
    )


def _itself(key: object) -> object:
    return key


def _raw(key: Uuid) -> bytes:
    return key.raw


def _really(
    keys: Iterable[K],
    before: Map[K, object],
    after: Map[K, object],
    order: Callable[[K], object] = _itself,
) -> tuple[K, ...]:
    return _sorted((key for key in keys if before.get(key) != after.get(key)), order)


def _sorted(keys: Iterable[K], order: Callable[[K], object]) -> tuple[K, ...]:
    return tuple(sorted(keys, key=order))  # type: ignore[arg-type]


def _differing(before: Map[K, object], after: Map[K, object]) -> set[K]:
    """Keys whose values differ; identical objects are not looked into."""
    if before is after:
        return set()
    missing = {key for key in before if key not in after}
    return missing | {key for key, value in after.items() if _differ(before.get(key), value)}


def _differ(old: object, new: object) -> bool:
    return old is not new and old != new
