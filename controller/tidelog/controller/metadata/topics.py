"""Topics and their partitions, with the indexes that decisions need.

Invariant: the indexes are a function of the partitions. Every change of a partition goes through
`TopicsImage.with_partition`, which moves the partition in exactly the index entries that differ,
so that a change costs the same in a small and in a large cluster.

Maps are HAMTs and iterate in the order of hashes, which differs from process to process: whoever
turns one into records or answers sorts first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from immutables import Map

from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.ids import NodeId, PartitionIndex, TopicId

RefSet: TypeAlias = "Map[PartitionRef, None]"
RefsByBroker: TypeAlias = "Map[NodeId, RefSet]"


def fold_topic_name(name: str) -> str:
    """What two names must not share: metrics write '.' as '_' and could not tell them apart."""
    return name.replace(".", "_")


def in_order(refs: Iterable[PartitionRef]) -> list[PartitionRef]:
    """Refs in an order that is the same in every process."""
    return sorted(refs, key=lambda ref: (ref.topic_id.raw, ref.partition))


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: TopicId
    partitions: Map[PartitionIndex, PartitionState] = field(default_factory=Map)

    def refs(self) -> list[PartitionRef]:
        return [PartitionRef(self.topic_id, index) for index in sorted(self.partitions)]


@dataclass(frozen=True, slots=True)
class PartitionIndexes:
    """Which partitions a broker leads, keeps in sync, could lead or holds; and the odd ones.

    ``leading`` has the partitions without a leader under LEADERLESS (−1).
    """

    leading: RefsByBroker = field(default_factory=Map)
    in_isr: RefsByBroker = field(default_factory=Map)
    in_elr: RefsByBroker = field(default_factory=Map)
    holding: RefsByBroker = field(default_factory=Map)
    reassigning: RefSet = field(default_factory=Map)
    unbalanced: RefSet = field(default_factory=Map)
    """Partitions that are not led by their preferred replica."""

    def moved(
        self, ref: PartitionRef, old: PartitionState | None, new: PartitionState | None
    ) -> PartitionIndexes:
        return PartitionIndexes(
            leading=_shift(self.leading, ref, _leader(old), _leader(new)),
            in_isr=_shift(self.in_isr, ref, old.isr if old else (), new.isr if new else ()),
            in_elr=_shift(self.in_elr, ref, old.elr if old else (), new.elr if new else ()),
            holding=_shift(
                self.holding, ref, old.replicas if old else (), new.replicas if new else ()
            ),
            reassigning=_flag(self.reassigning, ref, new is not None and new.is_reassigning),
            unbalanced=_flag(self.unbalanced, ref, _is_unbalanced(new)),
        )


def _leader(state: PartitionState | None) -> tuple[NodeId, ...]:
    return () if state is None else (state.leader,)


def _is_unbalanced(state: PartitionState | None) -> bool:
    return state is not None and not state.has_preferred_leader


def _shift(
    index: RefsByBroker, ref: PartitionRef, old: tuple[NodeId, ...], new: tuple[NodeId, ...]
) -> RefsByBroker:
    if old == new:
        return index
    for broker in old:
        if broker not in new:
            index = _put_or_drop(index, broker, index[broker].delete(ref))
    for broker in new:
        if broker not in old:
            refs: RefSet = index.get(broker, Map())
            index = index.set(broker, refs.set(ref, None))
    return index


def _put_or_drop(index: RefsByBroker, broker: NodeId, refs: RefSet) -> RefsByBroker:
    return index.set(broker, refs) if refs else index.delete(broker)


def _flag(flags: RefSet, ref: PartitionRef, wanted: bool) -> RefSet:
    if wanted == (ref in flags):
        return flags
    return flags.set(ref, None) if wanted else flags.delete(ref)


@dataclass(frozen=True, slots=True)
class TopicsImage:
    by_id: Map[TopicId, TopicImage] = field(default_factory=Map)
    by_name: Map[str, TopicId] = field(default_factory=Map)
    by_folded_name: Map[str, tuple[str, ...]] = field(default_factory=Map)
    indexes: PartitionIndexes = field(default_factory=PartitionIndexes)

    def named(self, name: str) -> TopicImage | None:
        topic_id = self.by_name.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, ref: PartitionRef) -> PartitionState | None:
        topic = self.by_id.get(ref.topic_id)
        return None if topic is None else topic.partitions.get(ref.partition)

    def __iter__(self) -> Iterator[TopicImage]:
        """The topics by name."""
        return (self.by_id[self.by_name[name]] for name in sorted(self.by_name))

    def led_by(self, broker: NodeId) -> list[PartitionRef]:
        return in_order(self.indexes.leading.get(broker, ()))

    def leads_any(self, broker: NodeId) -> bool:
        return broker in self.indexes.leading

    def in_sync_on(self, broker: NodeId) -> list[PartitionRef]:
        return in_order(self.indexes.in_isr.get(broker, ()))

    def counting_on(self, broker: NodeId) -> list[PartitionRef]:
        """The partitions that have this broker in ISR or ELR."""
        in_isr = self.indexes.in_isr.get(broker, Map())
        return in_order({*in_isr, *self.indexes.in_elr.get(broker, ())})

    def held_by(self, broker: NodeId) -> list[PartitionRef]:
        return in_order(self.indexes.holding.get(broker, ()))

    def with_topic(self, name: str, topic_id: TopicId) -> TopicsImage:
        folded = fold_topic_name(name)
        names = (*self.by_folded_name.get(folded, ()), name)
        return dataclasses.replace(
            self,
            by_id=self.by_id.set(topic_id, TopicImage(name, topic_id)),
            by_name=self.by_name.set(name, topic_id),
            by_folded_name=self.by_folded_name.set(folded, tuple(sorted(names))),
        )

    def without_topic(self, topic: TopicImage) -> TopicsImage:
        indexes = self.indexes
        for index, state in topic.partitions.items():
            indexes = indexes.moved(PartitionRef(topic.topic_id, index), state, None)
        folded = fold_topic_name(topic.name)
        others = tuple(name for name in self.by_folded_name[folded] if name != topic.name)
        return TopicsImage(
            by_id=self.by_id.delete(topic.topic_id),
            by_name=self.by_name.delete(topic.name),
            by_folded_name=_set_or_drop(self.by_folded_name, folded, others),
            indexes=indexes,
        )

    def with_partition(self, ref: PartitionRef, state: PartitionState) -> TopicsImage:
        """The partition as it now is; its topic must exist."""
        topic = self.by_id[ref.topic_id]
        old = topic.partitions.get(ref.partition)
        changed = TopicImage(topic.name, topic.topic_id, topic.partitions.set(ref.partition, state))
        return TopicsImage(
            by_id=self.by_id.set(ref.topic_id, changed),
            by_name=self.by_name,
            by_folded_name=self.by_folded_name,
            indexes=self.indexes.moved(ref, old, state),
        )


def _set_or_drop(
    names: Map[str, tuple[str, ...]], folded: str, left: tuple[str, ...]
) -> Map[str, tuple[str, ...]]:
    return names.set(folded, left) if left else names.delete(folded)
