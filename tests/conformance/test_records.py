"""What stock clients write, and what stock clients read: each codec, each kind of record."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from client_kits import CODECS, KITS, Kcat, Kit, Refused, Sent
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

T0 = 1_790_000_000_000
HEADERS = (("trace", b"\x00\xff"), ("empty", b""), ("trace", b"again"))
PLAIN_HEADERS = (("a", b"1"), ("b", b"2"))
"""kcat takes and prints headers as text."""
MAX_MESSAGE_BYTES = 1_048_588
"""The default; a batch of one record is a little larger than its value."""


def records(kit: Kit) -> list[Sent]:
    """Text for kcat, which reads lines; anything for the others."""
    if kit.name == "kcat":
        return [
            Sent(f"k{i}".encode(), None if i % 5 == 4 else b"v" * i * 10 or None, PLAIN_HEADERS)
            for i in range(1, 30)
        ]
    now = int(time.time() * 1000)
    return [
        Sent(b"key", b"value", HEADERS, now),
        Sent(None, b"no key", (), now + 1),
        Sent(b"", b"empty key", (), now - 5000),
        Sent(b"tombstone", None, (), now),
        Sent(b"empty value", b"", (), now),
        Sent(b"\x00\xff\n\t", bytes(range(256)), HEADERS, T0),
        *(Sent(f"k{i}".encode(), b"x" * i * 97, (), now + i) for i in range(40)),
    ]


def kits(cluster: LocalCluster, require: Callable[[str], None] | None = None) -> list[Kit]:
    made: list[Kit] = [kit(cluster.bootstrap) for kit in KITS.values()]
    if require is not None:
        require("kcat")
        made.append(Kcat(cluster.bootstrap))
    return made


def make_topic(cluster: LocalCluster, name: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, 3, config=named)])[name].result(30)
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    for partition in range(partitions):
        place = TopicPartition(name, partition)
        until(partial(is_led, asking, place), f"the leader of {place} knows that it is")
    asking.close()


def is_led(asking: Consumer, place: TopicPartition) -> bool:
    """Whom the others call leader need not know it yet, and then drops what acks=0 sends."""
    try:
        return asking.get_watermark_offsets(place, timeout=30) == (0, 0)
    except KafkaException:
        return False


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_every_client_wrote(cluster: LocalCluster, codec: str) -> None:
    topic = f"records-{codec}"
    writers = kits(cluster)
    make_topic(cluster, topic, len(writers))
    sent = {}
    for partition, kit in enumerate(writers):
        sent[partition] = records(kit)
        offsets = kit.produce(topic, sent[partition], partition=partition, codec=codec)
        assert offsets == list(range(len(sent[partition]))), kit.name
    for kit in kits(cluster):
        got = kit.consume(topic, {p: len(wanted) for p, wanted in sent.items()})
        for partition, wanted in sent.items():
            found = got[partition]
            assert [one.offset for one in found] == list(range(len(wanted)))
            for one, other in zip(found, wanted, strict=True):
                assert one.is_of(other), (kit.name, writers[partition].name, one, other)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_and_writes(
    cluster: LocalCluster, require: Callable[[str], None], codec: str
) -> None:
    require("kcat")
    topic, kit = f"kcat-{codec}", Kcat(cluster.bootstrap)
    make_topic(cluster, topic)
    sent = records(kit)
    kit.produce(topic, sent, codec=codec)
    for reader in kits(cluster, require):
        found = reader.consume(topic, {0: len(sent)})[0]
        assert len(found) == len(sent), reader.name
        assert all(one.is_of(other) for one, other in zip(found, sent, strict=True)), reader.name


@pytest.mark.parametrize("name", KITS)
@pytest.mark.parametrize("acks", ["0", "1", "all", "idempotent"])
def test_each_kind_of_acknowledgement(cluster: LocalCluster, name: str, acks: str) -> None:
    topic, kit = f"acks-{name}-{acks}", KITS[name](cluster.bootstrap)
    make_topic(cluster, topic)
    sent = [Sent(None, str(i).encode()) for i in range(200)]
    is_idempotent = acks == "idempotent"
    offsets = kit.produce(
        topic, sent, acks="all" if is_idempotent else acks, idempotent=is_idempotent
    )
    assert offsets == ([] if acks == "0" else list(range(200)))
    found = KITS["confluent"](cluster.bootstrap).consume(topic, {0: 200})[0]
    assert [one.value for one in found] == [one.value for one in sent]


@pytest.mark.parametrize("name", KITS)
def test_large_records_up_to_the_limit_and_none_above(cluster: LocalCluster, name: str) -> None:
    topic, kit = f"large-{name}", KITS[name](cluster.bootstrap)
    make_topic(cluster, topic)
    largest = Sent(None, b"x" * (MAX_MESSAGE_BYTES - 100))
    assert kit.produce(topic, [largest, largest]) == [0, 1]
    with pytest.raises(Refused):
        kit.produce(topic, [Sent(None, b"x" * (MAX_MESSAGE_BYTES + 1))])
    found = kit.consume(topic, {0: 2})[0]
    assert [one.value for one in found] == [largest.value] * 2


@pytest.mark.parametrize("name", KITS)
def test_a_topic_appears_when_it_is_written_to(cluster: LocalCluster, name: str) -> None:
    topic, kit = f"appears-{name}", KITS[name](cluster.bootstrap)
    assert kit.produce(topic, [Sent(None, b"first")]) == [0]
    assert kit.consume(topic, {0: 1})[0][0].value == b"first"


def test_a_topic_may_stamp_the_time_of_append(cluster: LocalCluster) -> None:
    make_topic(cluster, "append-time", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    kit = KITS["confluent"](cluster.bootstrap)
    kit.produce("append-time", [Sent(None, b"x", (), T0)])
    [found] = kit.consume("append-time", {0: 1})[0]
    assert before <= found.timestamp_ms <= int(time.time() * 1000)


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_may_recompress(cluster: LocalCluster, codec: str) -> None:
    topic = f"recompress-{codec}"
    kind = "uncompressed" if codec == "none" else codec
    make_topic(cluster, topic, compression_type=kind)
    kit = KITS["confluent"](cluster.bootstrap)
    sent = [Sent(b"k", b"v" * 500, HEADERS, T0 + i) for i in range(100)]
    kit.produce(topic, sent, codec="lz4" if codec != "lz4" else "gzip")
    found = kit.consume(topic, {0: 100})[0]
    assert len(found) == 100
    assert all(one.is_of(other) for one, other in zip(found, sent, strict=True))
