"""The settings of a topic. All of them can change while the topic is in use.

A topic setting that the topic does not give comes from the broker: `synonyms` lists the broker
settings to look at, the first one given wins (`log.retention.ms` before `.minutes` before
`.hours`).
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.settings.types import (
    LONG_MAX,
    Allowed,
    Kind,
    OneOf,
    Range,
    Room,
    Setting,
    Synonym,
    Table,
    ThrottledReplicas,
    Update,
    Value,
    table,
)

COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

AT_LEAST_0: Final = Range(0)
AT_LEAST_1: Final = Range(1)


def _row(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    *synonyms: str | Synonym,
    allowed: Allowed | None = None,
    room: Room = Room.STORAGE,
    ours: bool = False,
    hidden: bool = False,
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        room=room,
        doc=doc,
        update=Update.CLUSTER_WIDE,
        allowed=allowed,
        synonyms=tuple(Synonym(other) if isinstance(other, str) else other for other in synonyms),
        ours=ours,
        hidden=hidden,
    )


# fmt: off
TOPIC_SETTINGS: Final[Table] = table(
    _row("cleanup.policy", Kind.LIST, ("delete",),
         "What makes old data go: its age and size (delete), a newer record of the same key"
         " (compact), both, or, when empty, nothing.",
         "log.cleanup.policy", allowed=OneOf(("compact", "delete"))),
    _row("compression.gzip.level", Kind.INT, -1,
         "The effort of gzip when the broker compresses; -1 is the library's own choice.",
         "compression.gzip.level", allowed=Range(1, 9, extra=-1)),
    _row("compression.lz4.level", Kind.INT, 9,
         "The effort of lz4 when the broker compresses.",
         "compression.lz4.level", allowed=Range(1, 17)),
    _row("compression.type", Kind.STRING, "producer",
         "How batches are stored; producer keeps them as they came.",
         "compression.type", allowed=OneOf(COMPRESSIONS)),
    _row("compression.zstd.level", Kind.INT, 3,
         "The effort of zstd when the broker compresses.",
         "compression.zstd.level", allowed=Range(-131072, 22)),
    _row("delete.retention.ms", Kind.LONG, DAY_MS,
         "How long a compacted topic keeps tombstones and transaction markers.",
         "log.cleaner.delete.retention.ms", allowed=AT_LEAST_0),
    _row("file.delete.delay.ms", Kind.LONG, MINUTE_MS,
         "How long a removed file stays on disk, renamed, for readers that still use it.",
         "log.segment.delete.delay.ms", allowed=AT_LEAST_0),
    _row("flush.messages", Kind.LONG, LONG_MAX,
         "With flush.policy=page-cache: sync to disk after this many records.",
         "log.flush.interval.messages", allowed=AT_LEAST_1),
    _row("flush.ms", Kind.LONG, LONG_MAX,
         "With flush.policy=page-cache: sync to disk after this long.",
         "log.flush.interval.ms", "log.flush.scheduler.interval.ms", allowed=AT_LEAST_0),
    _row("flush.policy", Kind.STRING, "fsync",
         "What an acknowledgement under acks=all means: synced to disk on every in-sync replica"
         " (fsync), or received by them (page-cache).",
         "log.flush.policy", allowed=OneOf(("fsync", "page-cache")), ours=True),
    _row("follower.replication.throttled.replicas", Kind.LIST, (),
         "Replicas whose fetching is held to follower.replication.throttled.rate.",
         allowed=ThrottledReplicas(), room=Room.REPLICATION),
    _row("index.interval.bytes", Kind.INT, 4096,
         "How many bytes of log lie between two index entries.",
         "log.index.interval.bytes", allowed=AT_LEAST_0),
    _row("internal.segment.bytes", Kind.INT, None,
         "Wins over segment.bytes and may be smaller than 1 MiB; for tests.",
         hidden=True),
    _row("leader.replication.throttled.replicas", Kind.LIST, (),
         "Replicas whose fetches the leader holds to leader.replication.throttled.rate.",
         allowed=ThrottledReplicas(), room=Room.REPLICATION),
    _row("max.compaction.lag.ms", Kind.LONG, LONG_MAX,
         "A record older than this makes the log due for compaction.",
         "log.cleaner.max.compaction.lag.ms", allowed=AT_LEAST_1),
    _row("max.message.bytes", Kind.INT, 1_048_588,
         "The largest batch taken, as it is stored.",
         "message.max.bytes", allowed=AT_LEAST_0),
    _row("message.timestamp.after.max.ms", Kind.LONG, HOUR_MS,
         "How far a record's timestamp may lie ahead of the broker's clock.",
         "log.message.timestamp.after.max.ms", allowed=AT_LEAST_0),
    _row("message.timestamp.before.max.ms", Kind.LONG, LONG_MAX,
         "How far a record's timestamp may lie behind the broker's clock.",
         "log.message.timestamp.before.max.ms", allowed=AT_LEAST_0),
    _row("message.timestamp.type", Kind.STRING, "CreateTime",
         "Whose time a record carries: the producer's or that of the append.",
         "log.message.timestamp.type", allowed=OneOf(("CreateTime", "LogAppendTime"))),
    _row("min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5,
         "The share of a log that must be uncompacted before it is compacted.",
         "log.cleaner.min.cleanable.ratio", allowed=Range(0, 1)),
    _row("min.compaction.lag.ms", Kind.LONG, 0,
         "How long a record stays as written before compaction may touch it.",
         "log.cleaner.min.compaction.lag.ms", allowed=AT_LEAST_0),
    _row("min.insync.replicas", Kind.INT, 1,
         "How many replicas must be in sync for acks=all to be accepted.",
         "min.insync.replicas", allowed=AT_LEAST_1, room=Room.REPLICATION),
    _row("preallocate", Kind.BOOLEAN, False,
         "Reserve a new segment's full size on disk.",
         "log.preallocate"),
    _row("retention.bytes", Kind.LONG, -1,
         "The size above which a partition loses its oldest segments; -1 is no limit.",
         "log.retention.bytes"),
    _row("retention.ms", Kind.LONG, 7 * DAY_MS,
         "The age at which segments are deleted; -1 is never.",
         "log.retention.ms", Synonym("log.retention.minutes", MINUTE_MS),
         Synonym("log.retention.hours", HOUR_MS), allowed=Range(-1)),
    _row("segment.bytes", Kind.INT, 1 << 30,
         "The size at which a new segment is begun.",
         "log.segment.bytes", allowed=Range(1 << 20)),
    _row("segment.index.bytes", Kind.INT, 10 << 20,
         "The largest size of an index file; a full index begins a new segment.",
         "log.index.size.max.bytes", allowed=Range(4)),
    _row("segment.jitter.ms", Kind.LONG, 0,
         "Up to this much is taken off segment.ms at random, so that logs do not roll at once.",
         "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS), allowed=AT_LEAST_0),
    _row("segment.ms", Kind.LONG, 7 * DAY_MS,
         "The age at which a new segment is begun even if the old one is small.",
         "log.roll.ms", Synonym("log.roll.hours", HOUR_MS), allowed=AT_LEAST_1),
    _row("unclean.leader.election.enable", Kind.BOOLEAN, False,
         "Let a replica lead that may miss acknowledged records, rather than have no leader.",
         "unclean.leader.election.enable", room=Room.CONTROLLER),
)
# fmt: on
