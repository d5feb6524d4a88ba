"""The broker's settings about the node: who it is, where it listens, the quorum, topics."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.settings.topic_table import AT_LEAST_0, AT_LEAST_1, DAY_MS, HOUR_MS
from tidelog.kernel.settings.types import (
    INT_MAX,
    Kind,
    OneOf,
    Range,
    Room,
    Setting,
    Synonym,
    Update,
)

_B: Final = Room.BROKER
_Q: Final = Room.CONTROLLER
_C: Final = Update.CLUSTER_WIDE

# fmt: off
_IDENTITY: Final = (
    Setting("process.roles", Kind.LIST, ("broker", "controller"), _B,
            "What this node does: serve clients (broker), vote on metadata (controller), or both.",
            allowed=OneOf(("broker", "controller"))),
    Setting("node.id", Kind.INT, None, _B, "This node's number, unique in the cluster.",
            allowed=AT_LEAST_0, synonyms=(Synonym("broker.id"),), required=True),
    Setting("broker.id", Kind.INT, -1, _B, "An older name of node.id."),
    Setting("broker.rack", Kind.STRING, None, _Q,
            "The rack or zone of this node; replicas are spread over racks."),
)

_LISTENERS: Final = (
    Setting("listeners", Kind.LIST, ("PLAINTEXT://:9092",), _B,
            "The addresses to listen on, NAME://host:port; an empty host is every interface."),
    Setting("advertised.listeners", Kind.LIST, None, _B,
            "The addresses clients are told, where they differ from listeners."),
    Setting("listener.security.protocol.map", Kind.STRING,
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", _B,
            "The protocol of each listener, NAME:PROTOCOL; those in use must be PLAINTEXT."),
    Setting("controller.listener.names", Kind.LIST, ("CONTROLLER",), _Q,
            "The listeners on which nodes talk to each other; the first is used."),
    Setting("socket.listen.backlog.size", Kind.INT, 4096, _B,
            "How many connections may wait to be accepted.", allowed=AT_LEAST_1),
    Setting("socket.receive.buffer.bytes", Kind.INT, -1, _B,
            "The size of sockets' receive buffers; -1 leaves it to the system.",
            allowed=Range(-1)),
    Setting("socket.send.buffer.bytes", Kind.INT, 102_400, _B,
            "The size of sockets' send buffers; -1 leaves it to the system.", allowed=Range(-1)),
    Setting("socket.request.max.bytes", Kind.INT, 100 << 20, _B,
            "The largest request taken; and how much of one connection's is read before earlier"
            " requests of it are answered.", allowed=AT_LEAST_1),
    Setting("queued.max.request.bytes", Kind.LONG, -1, _B,
            "How much of all connections' requests is read before earlier ones are answered;"
            " -1 for any amount."),
    Setting("connections.max.idle.ms", Kind.LONG, 600_000, _B,
            "A connection silent for longer is closed."),
    Setting("max.connections", Kind.INT, INT_MAX, _B,
            "The most connections at a time.", _C, AT_LEAST_0),
    Setting("max.connections.per.ip", Kind.INT, INT_MAX, _B,
            "The most connections at a time from one address.", _C, AT_LEAST_0),
    Setting("max.connections.per.ip.overrides", Kind.STRING, "", _B,
            "Other limits for some addresses, host:count,host:count.", _C),
    Setting("http.listener", Kind.STRING, "127.0.0.1:9644", _B,
            "Where metrics, health and /v1 are served over HTTP, host:port; an empty host is every"
            " interface, no value at all is off.", ours=True),
    Setting("peer.dial.overrides", Kind.LIST, (), _Q,
            "Where to dial a node instead of its own address, id@host:port; for proxies and"
            " tests.", ours=True),
)

_REQUESTS: Final = (
    Setting("fetch.max.bytes", Kind.INT, 55 << 20, _B,
            "The most bytes of records in one answer to a consumer.", allowed=Range(1024)),
    Setting("max.incremental.fetch.session.cache.slots", Kind.INT, 1000, _B,
            "How many incremental fetch sessions are kept.", allowed=AT_LEAST_0),
    Setting("max.request.partition.size.limit", Kind.INT, 2000, _B,
            "How many partitions one DescribeTopicPartitions answers.", allowed=AT_LEAST_1),
    Setting("request.timeout.ms", Kind.INT, 30_000, _B,
            "How long a broker waits for the controller to answer a forwarded request."),
)

_LOGGING: Final = (
    Setting("logging.format", Kind.STRING, "human", _B,
            "How the node's own log is written: for people, or a JSON object a line.",
            allowed=OneOf(("human", "json")), ours=True),
    Setting("logging.level", Kind.STRING, "INFO", _B,
            "What is written there, unless a logger was given a level of its own while the node"
            " runs.", allowed=OneOf(("DEBUG", "INFO", "WARNING", "ERROR")), ours=True),
)

_LIVENESS: Final = (
    Setting("broker.heartbeat.interval.ms", Kind.INT, 500, _Q,
            "How often a broker tells the controllers that it lives."),
    Setting("broker.session.timeout.ms", Kind.INT, 3000, _Q,
            "A broker silent for longer is taken for lost."),
    Setting("broker.stream.grace.ms", Kind.INT, 300, _Q,
            "A broker whose stream broke and is not back by then is taken for lost.",
            allowed=AT_LEAST_0, ours=True),
    Setting("initial.broker.registration.timeout.ms", Kind.INT, 60_000, _Q,
            "How long a starting broker tries to register before it gives up."),
    Setting("eligible.leader.replicas.enable", Kind.BOOLEAN, True, _Q,
            "Keep replicas that left below min.insync.replicas eligible to lead (KIP-966).",
            ours=True),
)

_QUORUM: Final = (
    Setting("controller.quorum.voters", Kind.LIST, (), _Q,
            "The controllers that vote, id@host:port, the same on every node."),
    Setting("controller.quorum.bootstrap.servers", Kind.LIST, (), _Q,
            "Instead of the voters, on a controller that is the only one: its own host:port."),
    Setting("controller.quorum.election.timeout.ms", Kind.INT, 1000, _Q,
            "How long a candidate waits for votes, before a random addition of up to as much.",
            allowed=AT_LEAST_0),
    Setting("metadata.log.dir", Kind.STRING, None, _Q,
            "The directory of the metadata log; the first of log.dirs unless given."),
    Setting("metadata.log.segment.bytes", Kind.INT, 1 << 30, _Q,
            "segment.bytes of the metadata log.", allowed=Range(8 << 20)),
    Setting("metadata.log.segment.ms", Kind.LONG, 7 * DAY_MS, _Q,
            "segment.ms of the metadata log."),
    Setting("metadata.log.max.record.bytes.between.snapshots", Kind.LONG, 20 << 20, _Q,
            "A snapshot is taken after this many bytes of new records.", allowed=AT_LEAST_1),
    Setting("metadata.log.max.snapshot.interval.ms", Kind.LONG, HOUR_MS, _Q,
            "A snapshot is taken after this long, if anything is new; 0 is never.",
            allowed=AT_LEAST_0),
    Setting("metadata.max.retention.bytes", Kind.LONG, 100 << 20, _Q,
            "The size above which the metadata log and old snapshots are deleted."),
    Setting("metadata.max.retention.ms", Kind.LONG, 7 * DAY_MS, _Q,
            "The age above which they are deleted."),
    Setting("metadata.max.idle.interval.ms", Kind.INT, 5000, _Q,
            "How often an idle active controller writes a record that does nothing; 0 is never.",
            allowed=AT_LEAST_0),
)

_TOPICS: Final = (
    Setting("auto.create.topics.enable", Kind.BOOLEAN, True, _B,
            "Create a topic when a client asks for one that does not exist."),
    Setting("delete.topic.enable", Kind.BOOLEAN, True, _Q, "Allow topics to be deleted."),
    Setting("num.partitions", Kind.INT, 1, _Q,
            "Partitions of a topic created without a number.", allowed=AT_LEAST_1),
    Setting("default.replication.factor", Kind.INT, 1, _Q,
            "Replicas of a topic created without a number."),
    Setting("auto.leader.rebalance.enable", Kind.BOOLEAN, True, _Q,
            "Give leadership back to preferred replicas from time to time."),
    Setting("leader.imbalance.check.interval.seconds", Kind.LONG, 300, _Q,
            "How often that is done.", allowed=AT_LEAST_1),
    Setting("unclean.leader.election.interval.ms", Kind.LONG, 300_000, _Q,
            "How often leaderless partitions that allow it are given an unclean leader.",
            allowed=AT_LEAST_1),
)
# fmt: on

NODE_ROWS: Final = (
    *_IDENTITY,
    *_LISTENERS,
    *_REQUESTS,
    *_LOGGING,
    *_LIVENESS,
    *_QUORUM,
    *_TOPICS,
)
