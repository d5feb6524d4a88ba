"""The settings of clients: Kafka's names and defaults, and what librdkafka calls them.

One row per setting. ``passed_as`` names what it becomes; nothing if the client does it itself.
``fixed`` rows exist in Kafka and not in librdkafka: they are accepted at their default and refused
otherwise, rather than ignored. Names in ``ONLY_HERE`` are librdkafka's, for what Kafka solves in
Java (TLS files, SASL logins); they go through as they are.

Two defaults are not Kafka's: socket buffers are left to the operating system, which sizes them to
the connection, and ``partition.assignment.strategy`` is ``range`` alone, the one that Kafka's
default starts with, because librdkafka does not mix eager and cooperative ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Value: TypeAlias = object
"""Text, a number, true or false, or a list of texts; looked at when a client is made. To a type
checker a dictionary of some of each is one of objects."""


class Role(Enum):
    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


class Kind(Enum):
    BOOL = "true or false"
    INT = "a whole number"
    TEXT = "text"
    LIST = "a list of names"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: str | int | bool | None
    passed_as: tuple[str, ...] = ()
    low: int = 0
    high: int = INT_MAX
    choices: Mapping[str, str] | None = None
    """What may be given, and what librdkafka calls it."""
    fixed: bool = False
    only_if_given: bool = False
    """librdkafka's own default is right, or it refuses the setting in some modes."""


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_ASSIGNORS: Final = {
    **_same("range", "roundrobin", "cooperative-sticky"),
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_PARTITIONERS: Final = _same(
    "murmur2_random", "murmur2", "consistent", "consistent_random", "random", "fnv1a",
    "fnv1a_random",
)  # fmt: skip

_TOP_LEVEL: Final = 12
"""librdkafka's, of any compression."""

_B, _I, _T, _L = Kind.BOOL, Kind.INT, Kind.TEXT, Kind.LIST

_COMMON: Final = (
    Setting("bootstrap.servers", _L, None, ("bootstrap.servers",)),
    Setting("client.id", _T, "", ("client.id",), only_if_given=True),
    Setting("client.dns.lookup", _T, "use_all_dns_ips", ("client.dns.lookup",),
            choices=_same("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    Setting("metadata.max.age.ms", _I, 300_000, ("topic.metadata.refresh.interval.ms",), low=10),
    Setting("metadata.recovery.rebootstrap.trigger.ms", _I, 300_000,
            ("metadata.recovery.rebootstrap.trigger.ms",), only_if_given=True),
    Setting("metadata.recovery.strategy", _T, "rebootstrap", ("metadata.recovery.strategy",),
            choices=_same("none", "rebootstrap"), only_if_given=True),
    Setting("receive.buffer.bytes", _I, -1, ("socket.receive.buffer.bytes",), low=-1,
            high=100_000_000, only_if_given=True),
    Setting("send.buffer.bytes", _I, -1, ("socket.send.buffer.bytes",), low=-1,
            high=100_000_000, only_if_given=True),
    Setting("reconnect.backoff.ms", _I, 50, ("reconnect.backoff.ms",), high=3_600_000),
    Setting("reconnect.backoff.max.ms", _I, 1_000, ("reconnect.backoff.max.ms",), high=3_600_000),
    Setting("retry.backoff.ms", _I, 100, ("retry.backoff.ms",), low=1, high=300_000),
    Setting("retry.backoff.max.ms", _I, 1_000, ("retry.backoff.max.ms",), low=1, high=300_000),
    Setting("security.protocol", _T, "PLAINTEXT", ("security.protocol",),
            choices=_same("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
)  # fmt: skip

_PRODUCER: Final = (
    Setting("enable.metrics.push", _B, True, ("enable.metrics.push",), only_if_given=True),
    Setting("connections.max.idle.ms", _I, 540_000, ("connections.max.idle.ms",)),
    Setting("acks", _T, "all", ("acks",), choices={"all": "all", "-1": "all", "0": "0", "1": "1"}),
    Setting("batch.size", _I, 16_384, ("batch.size",), low=1),
    Setting("buffer.memory", _I, 33_554_432, (), low=1_024, high=2**31 * 1_024 - 1_024),
    Setting("compression.gzip.level", _I, -1, low=-1, high=9),
    Setting("compression.lz4.level", _I, 9, low=1, high=_TOP_LEVEL),
    Setting("compression.zstd.level", _I, 3, low=1, high=_TOP_LEVEL),
    Setting("compression.type", _T, "none", ("compression.type",),
            choices=_same("none", "gzip", "snappy", "lz4", "zstd")),
    Setting("delivery.timeout.ms", _I, 120_000, ("message.timeout.ms",), low=1),
    Setting("enable.idempotence", _B, True, ("enable.idempotence",)),
    Setting("linger.ms", _I, 5, ("linger.ms",), high=900_000),
    Setting("max.block.ms", _I, 60_000, (), high=LONG_MAX),
    Setting("max.in.flight.requests.per.connection", _I, 5,
            ("max.in.flight.requests.per.connection",), low=1, high=1_000_000),
    Setting("max.request.size", _I, 1_048_576, ("message.max.bytes",), low=1_000,
            high=1_000_000_000),
    Setting("metadata.max.idle.ms", _I, 300_000, fixed=True),
    Setting("partitioner", _T, "murmur2_random", ("partitioner",), choices=_PARTITIONERS),
    Setting("partitioner.adaptive.partitioning.enable", _B, True, fixed=True),
    Setting("partitioner.availability.timeout.ms", _I, 0, fixed=True),
    Setting("partitioner.class", _T, "", fixed=True),
    Setting("partitioner.ignore.keys", _B, False),
    Setting("request.timeout.ms", _I, 30_000, ("request.timeout.ms", "socket.timeout.ms"), low=10,
            high=300_000),
    Setting("retries", _I, INT_MAX, ("retries",)),
    Setting("transaction.timeout.ms", _I, 60_000, (), low=1_000),
    Setting("transactional.id", _T, None, ("transactional.id",), only_if_given=True),
)  # fmt: skip

_CONSUMER: Final = (
    Setting("enable.metrics.push", _B, True, ("enable.metrics.push",), only_if_given=True),
    Setting("connections.max.idle.ms", _I, 540_000, ("connections.max.idle.ms",)),
    Setting("allow.auto.create.topics", _B, True, ("allow.auto.create.topics",)),
    Setting("auto.commit.interval.ms", _I, 5_000, ("auto.commit.interval.ms",), high=86_400_000),
    Setting("auto.offset.reset", _T, "latest", ("auto.offset.reset",),
            choices={"earliest": "earliest", "latest": "latest", "none": "error"}),
    Setting("check.crcs", _B, True, ("check.crcs",)),
    Setting("client.rack", _T, "", ("client.rack",), only_if_given=True),
    Setting("default.api.timeout.ms", _I, 60_000),
    Setting("enable.auto.commit", _B, True),
    Setting("exclude.internal.topics", _B, True),
    Setting("fetch.max.bytes", _I, 52_428_800, ("fetch.max.bytes",), high=INT_MAX - 512),
    Setting("fetch.max.wait.ms", _I, 500, ("fetch.wait.max.ms",), high=300_000),
    Setting("fetch.min.bytes", _I, 1, ("fetch.min.bytes",), low=1, high=100_000_000),
    Setting("group.id", _T, None, (), only_if_given=True),
    Setting("group.instance.id", _T, None, ("group.instance.id",), only_if_given=True),
    Setting("group.protocol", _T, "classic", ("group.protocol",),
            choices=_same("classic", "consumer")),
    Setting("group.remote.assignor", _T, None, ("group.remote.assignor",), only_if_given=True),
    Setting("heartbeat.interval.ms", _I, 3_000, ("heartbeat.interval.ms",), low=1,
            high=3_600_000, only_if_given=True),
    Setting("isolation.level", _T, "read_uncommitted", ("isolation.level",),
            choices=_same("read_uncommitted", "read_committed")),
    Setting("max.partition.fetch.bytes", _I, 1_048_576, ("max.partition.fetch.bytes",), low=1,
            high=1_000_000_000),
    Setting("max.poll.interval.ms", _I, 300_000, ("max.poll.interval.ms",), low=1,
            high=86_400_000),
    Setting("max.poll.records", _I, 500, (), low=1, high=1_000_000),
    Setting("partition.assignment.strategy", _L, "range", ("partition.assignment.strategy",),
            choices=_ASSIGNORS, only_if_given=True),
    Setting("request.timeout.ms", _I, 30_000, ("socket.timeout.ms",), low=10, high=300_000),
    Setting("session.timeout.ms", _I, 45_000, ("session.timeout.ms",), low=1, high=3_600_000,
            only_if_given=True),
)  # fmt: skip

_ADMIN: Final = (
    Setting("enable.metrics.push", _B, False, ("enable.metrics.push",), only_if_given=True),
    Setting("connections.max.idle.ms", _I, 300_000, ("connections.max.idle.ms",)),
    Setting("default.api.timeout.ms", _I, 60_000),
    Setting("request.timeout.ms", _I, 30_000, ("socket.timeout.ms",), low=10, high=300_000),
    Setting("retries", _I, INT_MAX, fixed=True),
)

TABLES: Final[Mapping[Role, Mapping[str, Setting]]] = {
    role: {row.name: row for row in sorted((*_COMMON, *rows), key=lambda row: row.name)}
    for role, rows in (
        (Role.PRODUCER, _PRODUCER),
        (Role.CONSUMER, _CONSUMER),
        (Role.ADMIN, _ADMIN),
    )
}

ONLY_HERE: Final = frozenset({
    "broker.address.family", "broker.address.ttl", "debug", "enable.ssl.certificate.verification",
    "log_level", "queued.max.messages.kbytes", "queued.min.messages", "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.principal", "sasl.kerberos.service.name",
    "sasl.mechanism", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config", "sasl.oauthbearer.method", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url", "sasl.password", "sasl.username",
    "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "ssl.ca.location",
    "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites",
    "ssl.crl.location", "ssl.endpoint.identification.algorithm", "ssl.key.location",
    "ssl.key.password", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.password",
    "sticky.partitioning.linger.ms", "topic.metadata.propagation.max.ms",
})  # fmt: skip

INSTEAD: Final[Mapping[str, str]] = {
    "key.serializer": "give key_serializer=… to the producer",
    "value.serializer": "give value_serializer=… to the producer",
    "key.deserializer": "give key_deserializer=… to the consumer",
    "value.deserializer": "give value_deserializer=… to the consumer",
    "sasl.jaas.config": "give sasl.mechanism, sasl.username and sasl.password",
    "ssl.truststore.location": "give ssl.ca.location, a file of PEM certificates",
    "ssl.truststore.certificates": "give ssl.ca.pem",
    "ssl.keystore.certificate.chain": "give ssl.certificate.pem",
    "ssl.keystore.key": "give ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "give sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "give sasl.oauthbearer.client.secret",
    "queue.buffering.max.kbytes": "give buffer.memory, in bytes",
    "queue.buffering.max.messages": "give buffer.memory, in bytes",
    "queue.buffering.max.ms": "give linger.ms",
    "compression.codec": "give compression.type",
    "error_cb": "errors are raised, and logged by the logger tidelog.client",
    "logger": "the logger is tidelog.client",
}
"""Of Java's settings, and of librdkafka's, that have another form here: what to do."""

OF_JAVA: Final = frozenset({
    "bootstrap.controllers", "config.providers", "interceptor.classes", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "sasl.client.callback.handler.class", "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class", "sasl.login.class", "security.providers",
    "socket.connection.setup.timeout.max.ms", "ssl.enabled.protocols", "ssl.engine.factory.class",
    "ssl.keymanager.algorithm", "ssl.keystore.type", "ssl.protocol", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.password",
    "ssl.truststore.type", "transaction.two.phase.commit.enable",
})  # fmt: skip
"""Names that librdkafka has nothing for."""
