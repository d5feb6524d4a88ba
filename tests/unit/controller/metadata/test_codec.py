"""Records as bytes: every one comes back, what is newer is refused or passed over as promised."""

from __future__ import annotations

from typing import get_args

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.codec import (
    MalformedRecord,
    UnknownRecord,
    UnreadableRecord,
    decode_record,
    encode_record,
)
from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    TopicId,
    Uuid,
)

ID = Uuid(bytes(range(16)))
ONE, TWO = NodeId(1), NodeId(2)
ENDPOINT = r.Endpoint("PLAINTEXT", "host", 9092, 1)

FULL: list[r.MetadataRecord] = [
    r.RegisterBroker(
        ONE,
        IncarnationId(ID),
        BrokerEpoch(2**40),
        endpoints=(ENDPOINT,),
        features=(r.FeatureRange("metadata.version", 7, 30),),
        rack="r1",
        fenced=False,
        in_controlled_shutdown=True,
        controlled_shutdown_at=Offset(7),
        log_dirs=(DirectoryId(ID),),
        peer_endpoint=ENDPOINT,
    ),
    r.UnregisterBroker(ONE, BrokerEpoch(5)),
    r.Topic("t", TopicId(ID)),
    r.Partition(
        TopicId(ID),
        PartitionIndex(3),
        replicas=(ONE, TWO),
        isr=(TWO,),
        leader=TWO,
        leader_epoch=LeaderEpoch(4),
        partition_epoch=PartitionEpoch(9),
        directories=(DirectoryId(ID), DirectoryId(ID)),
        removing=(ONE,),
        adding=(TWO,),
        elr=(ONE,),
        last_known_elr=(TWO,),
        leader_recovery=1,
        suspects=(r.SuspectReplica(ONE, LeaderEpoch(3), Offset(77)),),
        restarts_empty=(NodeId(9),),
    ),
    r.Config(2, "t", "retention.ms", "1"),
    r.Config(2, "t", "retention.ms", None),
    r.PartitionChange(
        TopicId(ID),
        PartitionIndex(3),
        isr=(),
        leader=r.LEADERLESS,
        replicas=(ONE,),
        removing=(),
        adding=(),
        leader_recovery=0,
        elr=(ONE,),
        last_known_elr=(ONE,),
        directories=(DirectoryId(ID),),
        suspects=(),
    ),
    r.PartitionChange(TopicId(ID), PartitionIndex(3)),
    r.RemoveTopic(TopicId(ID)),
    r.UserScramCredential("u", 1, b"salt", b"stored", b"server", 4096),
    r.FeatureLevel("metadata.version", 30),
    r.ClientQuota((r.QuotaEntity("user"), r.QuotaEntity("client-id", "c")), "k", 1.5, remove=True),
    r.ProducerIds(ONE, BrokerEpoch(5), ProducerId(1000)),
    r.BrokerRegistrationChange(ONE, BrokerEpoch(5), True, False, (DirectoryId(ID),)),
    r.AccessControlEntry(ID, 2, "t", 3, "User:u", "*", 3, 3),
    r.RemoveAccessControlEntry(ID),
    r.NoOp(),
    r.RemoveUserScramCredential("u", 1),
    r.RegisterController(ONE, IncarnationId(ID), (ENDPOINT,), (r.FeatureRange("f", 0, 1),)),
    r.ClearElr("t"),
    r.ReplicaRestartsEmpty(TopicId(ID), PartitionIndex(1), ONE, emptied=True),
    r.EndOfImage(1, 2, 3, 4),
]


@pytest.mark.parametrize("record", FULL, ids=lambda record: type(record).__name__)
def test_a_record_comes_back(record: r.MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_every_record_is_covered_and_has_its_own_type() -> None:
    classes = get_args(r.MetadataRecord)
    assert {type(record) for record in FULL} == set(classes)
    assert len({cls.type_id for cls in classes}) == len(classes)


def test_defaults_take_no_room() -> None:
    assert msgpack.unpackb(encode_record(r.PartitionChange(TopicId(ID), PartitionIndex(0)))) == [
        5,
        0,
        {"topic_id": ID.raw, "partition": 0},
    ]


def test_an_optional_field_of_a_newer_node_is_passed_over() -> None:
    newer = msgpack.packb([2, 0, {"name": "t", "topic_id": ID.raw, "colour": "blue"}])
    assert decode_record(newer) == r.Topic("t", TopicId(ID))


@pytest.mark.parametrize(("type_id", "version"), [(2, 1), (6, 0), (127, 0), (-1, 0)])
def test_an_unknown_type_or_version_is_refused(type_id: int, version: int) -> None:
    with pytest.raises(UnknownRecord, match="newer"):
        decode_record(msgpack.packb([type_id, version, {"name": "t", "topic_id": ID.raw}]))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        msgpack.packb([2, 0]),
        msgpack.packb([2, 0, []]),
        msgpack.packb([2, 0, {"name": "t"}]),
        msgpack.packb([2, 0, {"name": 5, "topic_id": ID.raw}]),
        msgpack.packb([2, 0, {"name": "t", "topic_id": b"short"}]),
        msgpack.packb([2, 0, {"name": "t", "topic_id": "text"}]),
        msgpack.packb([9, 0, {"topic_id": ID.raw}]) + b"x",
        msgpack.packb([12, 0, {"name": "f", "level": True}]),
        msgpack.packb([3, 0, {"topic_id": ID.raw, "partition": 0, "replicas": 7}]),
        msgpack.packb({"type": 2}),
    ],
)
def test_damage_is_named(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(value)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_is_never_anything_but_unreadable(value: bytes) -> None:
    try:
        record = decode_record(value)
    except UnreadableRecord:
        return
    assert decode_record(encode_record(record)) == record
