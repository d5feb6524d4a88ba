"""Images are equal when ``==`` says so, however often they were compared before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.topics import PartitionIndexes
from tidelog.kernel.ids import NodeId, Offset, PartitionIndex, ProducerId, TopicId, Uuid
from tidelog.simulation.image_equality import ImageEquality

NODES = (NodeId(1), NodeId(2))
FIRST = TopicId(Uuid(bytes(16)))


def grown() -> MetadataImage:
    """An image that shares nothing with that of another call."""
    image = MetadataImage()
    for number in range(3):
        topic_id = TopicId(Uuid(bytes([number]) * 16))
        image = image.apply(r.Topic(f"topic-{number}", topic_id), Offset(number))
        partition = r.Partition(topic_id, PartitionIndex(0), NODES, NODES, NODES[0])
        image = image.apply(partition, Offset(number))
    return image


def test_images_that_grow_side_by_side_stay_equal_until_one_differs() -> None:
    equality, one, other = ImageEquality(), grown(), grown()
    assert equality.holds(one, other)
    shrunk = r.PartitionChange(FIRST, PartitionIndex(0), isr=NODES[:1])
    one, other = one.apply(shrunk, Offset(9)), other.apply(shrunk, Offset(9))
    assert equality.holds(one, other)
    moved = r.PartitionChange(FIRST, PartitionIndex(0), leader=NODES[1])
    assert not equality.holds(one, other.apply(moved, Offset(9)))
    assert not equality.holds(other.apply(moved, Offset(9)), one)
    assert equality.holds(one, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda image: replace(image, offset=Offset(77)),
        lambda image: replace(image, next_producer_id=ProducerId(5)),
        lambda image: replace(image, features=image.features.set("f", 1)),
        lambda image: replace(image, configs=image.configs.set((2, "t"), image.features)),
        lambda image: replace(image, topics=replace(image.topics, indexes=PartitionIndexes())),
        lambda image: image.apply(r.RemoveTopic(FIRST), image.offset),
        lambda image: image.apply(r.Topic("more", TopicId(Uuid(b"m" * 16))), image.offset),
    ],
)
def test_any_part_that_differs_is_seen(change: object) -> None:
    assert callable(change)
    equality, one, other = ImageEquality(), grown(), grown()
    assert equality.holds(one, other)
    different = change(other)
    assert different != one
    assert not equality.holds(one, different)
    assert not equality.holds(different, one)
    assert equality.holds(different, change(grown()))
