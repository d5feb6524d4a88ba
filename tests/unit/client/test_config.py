"""Kafka's names and rules in, librdkafka's settings out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.client import sync
from tidelog.client.config import ClientConfig, read_config
from tidelog.client.errors import ConfigError
from tidelog.client.settings import INSTEAD, OF_JAVA, ONLY_HERE, TABLES, Role

AT = {"bootstrap.servers": "one:9092,two:9092"}


def producer(**given: Any) -> ClientConfig:
    return read_config(Role.PRODUCER, {**AT, **_dotted(given)})


def consumer(**given: Any) -> ClientConfig:
    return read_config(Role.CONSUMER, {**AT, **_dotted(given)})


def _dotted(given: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in given.items()}


GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "tables"
NOT_KAFKAS = {
    "bootstrap.servers",  # none, and an empty list, is the same
    "partition.assignment.strategy",  # librdkafka does not mix eager and cooperative ones
    "partitioner.class",  # none, and no text, is the same
    "receive.buffer.bytes",  # left to the operating system
    "send.buffer.bytes",
}


def kafkas_settings(role: Role) -> dict[str, Any]:
    rows = json.loads((GOLDEN / f"{role.value}.json").read_text(encoding="utf-8"))
    return {row["name"]: row["default"] for row in rows}


@pytest.mark.parametrize("role", list(Role))
def test_names_and_defaults_are_kafkas(role: Role) -> None:
    """As Apache Kafka 4.3.1 has them."""
    theirs = kafkas_settings(role)
    config = read_config(role, AT)
    assert TABLES[role].keys() - theirs.keys() <= {"partitioner"}
    for name in TABLES[role].keys() & theirs.keys() - NOT_KAFKAS:
        default = TABLES[role][name].default
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert text == str(theirs[name]), name
        assert config.values[name] == default, name


@pytest.mark.parametrize("role", list(Role))
def test_of_each_setting_of_kafkas_something_is_known(role: Role) -> None:
    """It is there, or the error says why it is not; OAuth's many are told by their like."""
    known = TABLES[role].keys() | ONLY_HERE | INSTEAD.keys() | OF_JAVA
    others = {name for name in kafkas_settings(role) if name not in known}
    prefixes = ("sasl.oauthbearer.", "sasl.login.", "share.", "internal.")
    assert {name for name in others if not name.startswith(prefixes)} == set()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (producer(), ("partitioner", "murmur2_random")),
        (producer(acks=1), ("acks", "1")),
        (producer(acks="-1"), ("acks", "all")),
        (producer(max_request_size=5000), ("message.max.bytes", 5000)),
        (producer(delivery_timeout_ms="40000"), ("message.timeout.ms", 40_000)),
        (producer(buffer_memory=1 << 20), ("queue.buffering.max.kbytes", 1024)),
        (producer(metadata_max_age_ms=9000), ("topic.metadata.refresh.interval.ms", 9000)),
        (producer(partitioner_ignore_keys=True), ("partitioner", "random")),
        (producer(linger_ms=0, request_timeout_ms=100), ("socket.timeout.ms", 100)),
        (producer(send_buffer_bytes=-1), ("socket.send.buffer.bytes", 0)),
        (producer(transactional_id="t"), ("message.timeout.ms", 60_000)),
        (
            producer(compression_type="zstd", compression_zstd_level=7, compression_gzip_level=1),
            ("compression.level", 7),
        ),
        (producer(metadata_recovery_strategy="none"), ("metadata.recovery.strategy", "none")),
        (consumer(fetch_max_wait_ms=7), ("fetch.wait.max.ms", 7)),
        (consumer(auto_offset_reset="none"), ("auto.offset.reset", "error")),
        (consumer(), ("isolation.level", "read_uncommitted")),
        (consumer(group_id="g"), ("enable.auto.commit", True)),
        (consumer(), ("enable.auto.commit", False)),  # without a group there is nothing to commit
        (consumer(), ("enable.auto.offset.store", False)),
        (
            consumer(
                partition_assignment_strategy=[
                    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
                ]
            ),
            ("partition.assignment.strategy", "cooperative-sticky"),
        ),
        (consumer(**{"sasl.username": "me"}), ("sasl.username", "me")),
    ],
)
def test_what_librdkafka_is_given(config: ClientConfig, expected: tuple[str, object]) -> None:
    name, value = expected
    assert config.librdkafka[name] == value


def test_what_was_not_given_and_differs_between_modes_is_left_out() -> None:
    config = consumer(group_id="g", group_protocol="consumer")
    assert not {"session.timeout.ms", "heartbeat.interval.ms"} & config.librdkafka.keys()
    assert "partition.assignment.strategy" not in config.librdkafka


@pytest.mark.parametrize(
    ("role", "given", "setting", "words"),
    [
        (Role.PRODUCER, {"linger": 5}, "linger", "did you mean linger.ms"),
        (Role.PRODUCER, {"compression": "lz4"}, "compression", "compression.type"),
        (Role.PRODUCER, {"max_block_ms": 1}, "max_block_ms", "did you mean max.block.ms"),
        (Role.CONSUMER, {"grup.id": "g"}, "grup.id", "did you mean group.id"),
        (Role.PRODUCER, {"group.id": "g"}, "group.id", "a setting of a consumer"),
        (Role.PRODUCER, {"zzz": 1}, "zzz", "has no setting 'zzz'"),
        (Role.PRODUCER, {"ACKS": 1}, "ACKS", "did you mean acks"),
        (
            Role.PRODUCER,
            {"auto.offset.rest": "latest"},
            "auto.offset.rest",
            "did you mean auto.offset.reset, a setting of a consumer",
        ),
        (Role.PRODUCER, {"message.timeout.ms": 1}, "message.timeout.ms", "delivery.timeout.ms"),
        (Role.CONSUMER, {"fetch.wait.max.ms": 1}, "fetch.wait.max.ms", "fetch.max.wait.ms"),
        (Role.PRODUCER, {"queue.buffering.max.ms": 1}, "queue.buffering.max.ms", "linger.ms"),
        (Role.PRODUCER, {"interceptor.classes": ""}, "interceptor.classes", "Java's clients"),
        (Role.ADMIN, {"bootstrap.servers": "localhost"}, "bootstrap.servers", "with a port"),
        (Role.ADMIN, {"bootstrap.servers": "a:1;b:2"}, "bootstrap.servers", "'a:1;b:2' is no host"),
        (Role.ADMIN, {"bootstrap.servers": "a:1,b:no"}, "bootstrap.servers", "'b:no' is no host"),
        (Role.ADMIN, {"bootstrap.servers": "http://a:1"}, "bootstrap.servers", "is no host"),
        (Role.ADMIN, {"bootstrap.servers": "a:99999"}, "bootstrap.servers", "is no host"),
        (Role.PRODUCER, {"compression.zstd.level": 22}, "compression.zstd.level", "1 to 12"),
        (
            Role.CONSUMER,
            {"partition.assignment.strategy": "sticky"},
            "partition.assignment.strategy",
            "one of range, roundrobin, cooperative-sticky is wanted",
        ),
        (
            Role.CONSUMER,
            {"partition.assignment.strategy": []},
            "partition.assignment.strategy",
            "range, roundrobin or cooperative-sticky",
        ),
        (Role.PRODUCER, {"value.serializer": "x"}, "value.serializer", "value_serializer="),
        (Role.PRODUCER, {"acks": "most"}, "acks", "one of all, -1, 0, 1"),
        (Role.PRODUCER, {"linger.ms": -1}, "linger.ms", "from 0 to 900000"),
        (Role.PRODUCER, {"linger.ms": "soon"}, "linger.ms", "a whole number"),
        (Role.PRODUCER, {"linger.ms": True}, "linger.ms", "a whole number"),
        (Role.PRODUCER, {"linger.ms": 1.5}, "linger.ms", "a whole number"),
        (Role.PRODUCER, {"enable.idempotence": "maybe"}, "enable.idempotence", "true or false"),
        (Role.PRODUCER, {"transactional.id": 7.5}, "transactional.id", "text is wanted"),
        (Role.PRODUCER, {"bootstrap.servers": [1]}, "bootstrap.servers", "a list of texts"),
        (Role.PRODUCER, {"metadata.max.idle.ms": 1}, "metadata.max.idle.ms", "has only 300000"),
        (Role.PRODUCER, {"acks": 1, "enable.idempotence": True}, "acks", "needs acks=all"),
        (Role.PRODUCER, {"retries": 0, "transactional.id": "t"}, "retries", "retries above 0"),
        (
            Role.PRODUCER,
            {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
            "max.in.flight.requests.per.connection",
            "at most 5",
        ),
        (
            Role.PRODUCER,
            {"enable.idempotence": False, "transactional.id": "t"},
            "enable.idempotence",
            "needs enable.idempotence=true",
        ),
        (Role.PRODUCER, {"delivery.timeout.ms": 100}, "delivery.timeout.ms", "less than linger.ms"),
        (
            Role.CONSUMER,
            {"session.timeout.ms": 3000, "heartbeat.interval.ms": 3000},
            "heartbeat.interval.ms",
            "must be less than",
        ),
        (Role.CONSUMER, {"max.poll.interval.ms": 9}, "max.poll.interval.ms", "must not be less"),
        (
            Role.CONSUMER,
            {"partition.assignment.strategy": "range,cooperative-sticky"},
            "partition.assignment.strategy",
            "does not mix",
        ),
        (
            Role.CONSUMER,
            {"group.protocol": "consumer", "session.timeout.ms": 10_000},
            "session.timeout.ms",
            "the broker decides",
        ),
    ],
)
def test_a_wrong_setting_is_named(
    role: Role, given: dict[str, Any], setting: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(role, {**AT, **given})
    assert caught.value.setting == setting
    assert words in str(caught.value)
    assert (caught.value.code, caught.value.retriable) == (-186, False)


@pytest.mark.parametrize("given", ["localhost:9092", None, [("bootstrap.servers", "a:1")]])
def test_settings_are_a_dictionary(given: Any) -> None:
    with pytest.raises(ConfigError, match="the settings are a dictionary"):
        read_config(Role.PRODUCER, given)


@pytest.mark.parametrize(
    "server", ["localhost:9092", "10.0.0.1:1", "[::1]:9092", "SSL://kafka-1.example.com:65535"]
)
def test_what_a_server_may_be_called(server: str) -> None:
    config = read_config(Role.ADMIN, {"bootstrap.servers": server})
    assert config.librdkafka["bootstrap.servers"] == server


def test_what_only_librdkafka_can_refuse_is_a_wrong_setting_too() -> None:
    with pytest.raises(ConfigError, match='Invalid value "brker"') as caught:
        sync.Admin({**AT, "debug": "brker"})
    assert caught.value.setting == "debug"


def test_somebody_must_say_where_the_cluster_is() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        read_config(Role.ADMIN, {})


@pytest.mark.parametrize("given", [{"acks": 1}, {"retries": 0}])
def test_idempotence_nobody_asked_for_gives_way(given: dict[str, Any]) -> None:
    assert producer(**given).librdkafka["enable.idempotence"] is False


def test_a_short_delivery_nobody_asked_for_grows() -> None:
    config = producer(request_timeout_ms=200_000)
    assert config.librdkafka["message.timeout.ms"] == 200_005


@pytest.mark.parametrize("role", list(Role))
def test_librdkafka_takes_all_defaults(role: Role) -> None:
    """Names in the table are librdkafka's, and its ranges hold ours."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

    make = {Role.PRODUCER: Producer, Role.CONSUMER: Consumer, Role.ADMIN: AdminClient}[role]
    given = {
        name: row.default
        for name, row in TABLES[role].items()
        if row.default is not None and name != "group.protocol"
    }
    config = read_config(role, {"bootstrap.servers": "127.0.0.1:1", **given})
    client: Any = make({**config.librdkafka, "log_level": 0})
    if role is not Role.ADMIN:
        client.close()
