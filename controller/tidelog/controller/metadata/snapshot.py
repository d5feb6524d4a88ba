"""An image as a list of records, and back.

Replaying the records of a snapshot into an empty image gives an equal image. The last record
counts the others: a snapshot that lost records must never be taken for a cluster that lost
topics, because brokers delete the data of topics that are gone (hazard 15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.image import MetadataImage, quota_order
from tidelog.controller.metadata.partitions import record_of
from tidelog.kernel.ids import NO_NODE, BrokerEpoch, Offset

_NO_BROKER_EPOCH = BrokerEpoch(-1)


class DamagedSnapshot(Exception):
    """A snapshot does not hold what it says it holds; it must not be used."""


def image_to_records(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    """The image as records, ending with EndOfImage; always in the same order."""
    count = 0
    for record in _contents(image):
        count += 1
        yield record
    yield r.EndOfImage(
        records=count,
        topics=len(image.topics.by_id),
        partitions=_partition_count(image),
        brokers=len(image.brokers),
    )


def image_from_records(records: Iterable[r.MetadataRecord], offset: Offset) -> MetadataImage:
    """The image of a snapshot that ends before ``offset + 1``; raises DamagedSnapshot."""
    image, count = MetadataImage(), 0
    end: r.EndOfImage | None = None
    for record in records:
        if end is not None:
            raise DamagedSnapshot("the snapshot goes on after its end")
        if isinstance(record, r.EndOfImage):
            end = record
            continue
        image = image.apply(record, offset)
        count += 1
    found = r.EndOfImage(
        count, len(image.topics.by_id), _partition_count(image), len(image.brokers)
    )
    if end != found:
        raise DamagedSnapshot(f"the snapshot says {end or 'nothing of its end'}, found is {found}")
    return image.apply(end, offset)


def _partition_count(image: MetadataImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.by_id.values())


def _contents(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    for name, level in sorted(image.features.items()):
        yield r.FeatureLevel(name, level)
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id].record()
    for broker_id in sorted(image.brokers):
        yield image.brokers[broker_id].record()
    for topic in image.topics:
        yield r.Topic(topic.name, topic.topic_id)
        for ref in topic.refs():
            yield record_of(ref, topic.partitions[ref.partition])
    for resource_type, resource_name in sorted(image.configs):
        values = image.configs[resource_type, resource_name]
        for name in sorted(values):
            yield r.Config(resource_type, resource_name, name, values[name])
    if image.next_producer_id:
        yield r.ProducerIds(NO_NODE, _NO_BROKER_EPOCH, image.next_producer_id)
    yield from _security(image)


def _security(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    for scram_key in sorted(image.scram):
        yield image.scram[scram_key]
    for entry_id in sorted(image.acls):
        yield image.acls[entry_id]
    for entity in sorted(image.quotas, key=quota_order):
        limits = image.quotas[entity]
        for key in sorted(limits):
            yield r.ClientQuota(entity, key, limits[key])
