"""Random logs: the image equals a plain dictionary, its indexes, deltas and snapshots are right."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.codec import decode_record, encode_record
from tidelog.controller.metadata.delta import advance, delta_between
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.snapshot import image_from_records, image_to_records
from tidelog.controller.metadata.topics import PartitionIndexes, fold_topic_name
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    Uuid,
)

SETTINGS = settings(derandomize=True, max_examples=200, deadline=None)
NODES = st.integers(1, 5).map(NodeId)
NODE_TUPLES = st.lists(NODES, max_size=4, unique=True).map(tuple)
UUIDS = st.integers(1, 6).map(lambda n: Uuid(bytes([n]) * 16))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


class Model:
    """The same facts in dictionaries, written down as the records say them."""

    def __init__(self) -> None:
        self.topics: dict[TopicId, str] = {}
        self.partitions: dict[tuple[TopicId, PartitionIndex], dict[str, Any]] = {}
        self.brokers: dict[NodeId, dict[str, Any]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}
        self.producer_id = 0
        self.scram: dict[tuple[str, int], Any] = {}
        self.acls: dict[Uuid, Any] = {}
        self.quotas: dict[tuple[Any, str], float] = {}

    def apply(self, record: r.MetadataRecord, offset: int) -> None:
        getattr(self, "on_" + type(record).__name__, lambda *_: None)(record, offset)

    def on_Topic(self, record: r.Topic, _: int) -> None:
        self.topics[record.topic_id] = record.name

    def on_RemoveTopic(self, record: r.RemoveTopic, _: int) -> None:
        name = self.topics.pop(record.topic_id)
        self.partitions = {k: v for k, v in self.partitions.items() if k[0] != record.topic_id}
        self.configs = {k: v for k, v in self.configs.items() if k[:2] != (2, name)}

    def on_Partition(self, record: r.Partition, _: int) -> None:
        fields = dataclasses.asdict(record)
        del fields["topic_id"], fields["partition"]
        fields["suspects"] = record.suspects
        fields["directories"] = record.directories
        self.partitions[record.topic_id, record.partition] = fields

    def on_PartitionChange(self, record: r.PartitionChange, _: int) -> None:
        known = self.partitions[record.topic_id, record.partition]
        old = dict(zip(known["replicas"], known["directories"], strict=True))
        for field in dataclasses.fields(record)[2:]:
            value = getattr(record, field.name)
            if value is not None:
                known[field.name] = value
        known["partition_epoch"] += 1
        known["leader_epoch"] += 0 if record.leader is None else 1
        if record.replicas is not None:
            left = [b for b in old if b not in record.replicas]
            known["restarts_empty"] = tuple(sorted({*known["restarts_empty"], *left}))
            if record.directories is None:
                zero = DirectoryId(Uuid(bytes(16)))
                known["directories"] = tuple(old.get(b, zero) for b in record.replicas)

    def on_ReplicaRestartsEmpty(self, record: r.ReplicaRestartsEmpty, _: int) -> None:
        known = self.partitions[record.topic_id, record.partition]
        others = {b for b in known["restarts_empty"] if b != record.broker}
        known["restarts_empty"] = tuple(
            sorted(others if record.emptied else others | {record.broker})
        )

    def on_ClearElr(self, record: r.ClearElr, _: int) -> None:
        for (topic_id, _index), known in self.partitions.items():
            named = record.topic_name in ("", self.topics[topic_id])
            if named and known["elr"] and known["isr"]:
                known["elr"] = known["last_known_elr"] = ()
                known["suspects"] = tuple(s for s in known["suspects"] if s.broker in known["isr"])

    def on_RegisterBroker(self, record: r.RegisterBroker, _: int) -> None:
        self.brokers[record.broker_id] = {
            "epoch": record.broker_epoch,
            "fenced": record.fenced,
            "since": record.controlled_shutdown_at,
            "dirs": record.log_dirs,
        }

    def on_UnregisterBroker(self, record: r.UnregisterBroker, _: int) -> None:
        del self.brokers[record.broker_id]

    def on_BrokerRegistrationChange(self, record: r.BrokerRegistrationChange, at: int) -> None:
        known = self.brokers[record.broker_id]
        if record.fenced is not None:
            known["fenced"] = record.fenced
        if record.in_controlled_shutdown is not None:
            known["since"] = at if record.in_controlled_shutdown else -1
        if record.log_dirs is not None:
            known["dirs"] = record.log_dirs

    def on_Config(self, record: r.Config, _: int) -> None:
        key = (record.resource_type, record.resource_name, record.name)
        self.configs.pop(key, None)
        if record.value is not None:
            self.configs[key] = record.value

    def on_FeatureLevel(self, record: r.FeatureLevel, _: int) -> None:
        self.features.pop(record.name, None)
        if record.level:
            self.features[record.name] = record.level

    def on_ProducerIds(self, record: r.ProducerIds, _: int) -> None:
        self.producer_id = record.next_producer_id

    def on_UserScramCredential(self, record: r.UserScramCredential, _: int) -> None:
        self.scram[record.name, record.mechanism] = record

    def on_RemoveUserScramCredential(self, record: r.RemoveUserScramCredential, _: int) -> None:
        self.scram.pop((record.name, record.mechanism), None)

    def on_AccessControlEntry(self, record: r.AccessControlEntry, _: int) -> None:
        self.acls[record.id] = record

    def on_RemoveAccessControlEntry(self, record: r.RemoveAccessControlEntry, _: int) -> None:
        self.acls.pop(record.id, None)

    def on_ClientQuota(self, record: r.ClientQuota, _: int) -> None:
        self.quotas.pop((record.entity, record.key), None)
        if not record.remove:
            self.quotas[record.entity, record.key] = record.value


def draw_record(draw: st.DataObject, model: Model, offset: int) -> r.MetadataRecord:
    """A record that fits what is there."""
    kinds = ["topic", "broker", "config", "feature", "ids", "scram", "acl", "quota", "noop"]
    if model.topics:
        kinds += ["partition"] * 3 + ["remove topic", "clear"]
    if model.partitions:
        kinds += ["change"] * 6 + ["restarts empty"]
    if model.brokers:
        kinds += ["broker change", "unregister"]
    kind = draw.draw(st.sampled_from(kinds))
    if kind in ("topic", "remove topic", "clear", "partition", "change", "restarts empty"):
        return draw_topic_record(draw, model, kind, offset)
    return draw_other_record(draw, model, kind, offset)


def draw_topic_record(
    draw: st.DataObject, model: Model, kind: str, offset: int
) -> r.MetadataRecord:
    if kind == "topic":
        taken = set(model.topics.values())
        names = [n for n in ("a.b", "a_b", "c", "d", "e") if n not in taken]
        if not names:
            return r.NoOp()
        name = draw.draw(st.sampled_from(names))
        return r.Topic(name, TopicId(Uuid((offset + 1).to_bytes(16, "big"))))
    if kind == "clear":
        return r.ClearElr(draw.draw(st.sampled_from(["", "a.b", "c", "nope"])))
    if kind == "remove topic":
        return r.RemoveTopic(draw.draw(st.sampled_from(list(model.topics))))
    if kind == "partition":
        topic_id = draw.draw(st.sampled_from(list(model.topics)))
        index = PartitionIndex(sum(1 for known in model.partitions if known[0] == topic_id))
        return draw.draw(partitions(topic_id, index))
    topic_id, index = draw.draw(st.sampled_from(list(model.partitions)))
    if kind == "restarts empty":
        return r.ReplicaRestartsEmpty(topic_id, index, draw.draw(NODES), draw.draw(st.booleans()))
    return draw.draw(changes(topic_id, index))


@st.composite
def partitions(draw: st.DrawFn, topic_id: TopicId, index: PartitionIndex) -> r.Partition:
    replicas = draw(st.lists(NODES, min_size=1, max_size=4, unique=True).map(tuple))
    some = st.lists(st.sampled_from(replicas), max_size=4, unique=True).map(tuple)
    return r.Partition(
        topic_id,
        index,
        replicas=replicas,
        isr=draw(some),
        leader=draw(st.sampled_from([*replicas, r.LEADERLESS])),
        directories=tuple(DirectoryId(draw(UUIDS)) for _ in replicas),
        elr=draw(some),
        suspects=tuple(r.SuspectReplica(b, LeaderEpoch(1), Offset(2)) for b in draw(some)),
    )


@st.composite
def changes(draw: st.DrawFn, topic_id: TopicId, index: PartitionIndex) -> r.PartitionChange:
    return r.PartitionChange(
        topic_id,
        index,
        isr=draw(maybe(NODE_TUPLES)),
        leader=draw(maybe(st.integers(-1, 5).filter(bool).map(NodeId))),
        replicas=draw(maybe(NODE_TUPLES.filter(bool))),
        removing=draw(maybe(NODE_TUPLES)),
        adding=draw(maybe(NODE_TUPLES)),
        leader_recovery=draw(maybe(st.integers(0, 1))),
        elr=draw(maybe(NODE_TUPLES)),
        last_known_elr=draw(maybe(NODE_TUPLES)),
    )


def draw_other_record(
    draw: st.DataObject, model: Model, kind: str, offset: int
) -> r.MetadataRecord:
    word, number = draw.draw(st.sampled_from(["", "x", "y"])), draw.draw(st.integers(0, 2))
    match kind:
        case "broker":
            return r.RegisterBroker(
                draw.draw(NODES),
                IncarnationId(draw.draw(UUIDS)),
                BrokerEpoch(offset),
                log_dirs=(DirectoryId(draw.draw(UUIDS)),),
                rack=word or None,
            )
        case "broker change":
            broker = draw.draw(st.sampled_from(list(model.brokers)))
            return r.BrokerRegistrationChange(
                broker,
                model.brokers[broker]["epoch"],
                fenced=draw.draw(maybe(st.booleans())),
                in_controlled_shutdown=draw.draw(maybe(st.booleans())),
                log_dirs=draw.draw(maybe(st.just(()))),
            )
        case "unregister":
            broker = draw.draw(st.sampled_from(list(model.brokers)))
            return r.UnregisterBroker(broker, model.brokers[broker]["epoch"])
        case "config":
            name = draw.draw(st.sampled_from(["a.b", "a_b", "c", ""]))
            return r.Config(2 + 2 * (number % 2), name, "k" + word, draw.draw(maybe(st.just("v"))))
        case "feature":
            return r.FeatureLevel(f"f{word}", number)
        case "ids":
            return r.ProducerIds(NodeId(1), BrokerEpoch(0), ProducerId(1000 * (offset + 1)))
    return draw_security_record(draw, kind, word, number)


def draw_security_record(
    draw: st.DataObject, kind: str, word: str, number: int
) -> r.MetadataRecord:
    removes = draw.draw(st.booleans())
    match kind:
        case "scram" if removes:
            return r.RemoveUserScramCredential(word, number)
        case "scram":
            return r.UserScramCredential(word, number, b"s", b"k", b"v", 4096)
        case "acl" if removes:
            return r.RemoveAccessControlEntry(draw.draw(UUIDS))
        case "acl":
            return r.AccessControlEntry(draw.draw(UUIDS), 2, word, 3, "User:a", "*", number, 3)
        case "quota":
            entity = (r.QuotaEntity("user", word or None),)
            return r.ClientQuota(entity, f"k{number}", 1.5 * number, removes)
    return r.NoOp()


def assert_equal(image: MetadataImage, model: Model) -> None:
    topics = image.topics
    assert {i: t.name for i, t in topics.by_id.items()} == model.topics
    assert dict(topics.by_name) == {name: i for i, name in model.topics.items()}
    folded: dict[str, list[str]] = {}
    for name in sorted(model.topics.values()):
        folded.setdefault(fold_topic_name(name), []).append(name)
    assert {f: list(names) for f, names in topics.by_folded_name.items()} == folded
    found = {
        (topic.topic_id, index): {
            name: getattr(state, name) for name in type(state).__dataclass_fields__
        }
        for topic in topics
        for index, state in topic.partitions.items()
    }
    assert found == model.partitions
    assert {
        b: {
            "epoch": known.epoch,
            "fenced": known.fenced,
            "since": known.controlled_shutdown_at,
            "dirs": known.log_dirs,
        }
        for b, known in image.brokers.items()
    } == model.brokers
    assert {(*k, n): v for k, c in image.configs.items() for n, v in c.items()} == model.configs
    assert dict(image.features) == model.features
    assert image.next_producer_id == model.producer_id
    assert dict(image.scram) == model.scram
    assert dict(image.acls) == model.acls
    assert {(e, k): v for e, c in image.quotas.items() for k, v in c.items()} == model.quotas


def recomputed(image: MetadataImage) -> PartitionIndexes:
    indexes = PartitionIndexes()
    for topic in image.topics:
        for ref in topic.refs():
            indexes = indexes.moved(ref, None, topic.partitions[ref.partition])
    return indexes


def assert_indexes_hold(image: MetadataImage) -> None:
    assert image.topics.indexes == recomputed(image)
    by_hand = {
        PartitionRef(topic.topic_id, index)
        for topic in image.topics
        for index, state in topic.partitions.items()
        if NodeId(1) in (*state.isr, *state.elr)
    }
    assert set(image.topics.counting_on(NodeId(1))) == by_hand


@SETTINGS
@given(st.data())
def test_a_random_log(data: st.DataObject) -> None:
    model, image = Model(), MetadataImage()
    log: list[tuple[Offset, r.MetadataRecord]] = []
    for number in range(data.draw(st.integers(1, 30))):
        offset = Offset(number)
        record = decode_record(encode_record(draw_record(data, model, offset)))
        model.apply(record, offset)
        image = image.apply(record, offset)
        log.append((offset, record))
    assert_equal(image, model)
    assert_indexes_hold(image)

    records = [decode_record(encode_record(record)) for record in image_to_records(image)]
    rebuilt = image_from_records(records, image.offset)
    assert rebuilt == image
    assert list(image_to_records(rebuilt)) == records

    cut = data.draw(st.integers(0, len(log)))
    before, _ = advance(MetadataImage(), log[:cut])
    after, delta = advance(before, log[cut:])
    assert after == image
    assert delta == delta_between(before, image)
    assert delta_between(before, rebuilt).partitions == delta.partitions
    assert delta_between(image, rebuilt).is_empty
