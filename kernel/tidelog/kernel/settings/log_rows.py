"""The broker's settings about logs: defaults of topic settings, checkpoints, flushes, cleaner."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelog.kernel.settings.topic_table import (
    AT_LEAST_0,
    AT_LEAST_1,
    DAY_MS,
    MINUTE_MS,
    TOPIC_SETTINGS,
)
from tidelog.kernel.settings.types import (
    DOUBLE_MAX,
    LONG_MAX,
    Kind,
    Range,
    Room,
    Setting,
    Synonym,
    Update,
    Value,
)

_S: Final = Room.STORAGE
_C: Final = Update.CLUSTER_WIDE


def _default_of(topic_name: str) -> Setting:
    """The broker setting that a topic falls back to first; same type, default and bounds."""
    topic = TOPIC_SETTINGS[topic_name]
    doc = f"Default of the topic setting {topic_name}. {topic.doc}"
    return replace(topic, name=topic.synonyms[0].name, doc=doc, synonyms=())


def _millis_of(topic_name: str) -> Setting:
    """The same for times that also have settings in coarser units: null until given."""
    coarser = TOPIC_SETTINGS[topic_name].synonyms[1:]
    return replace(_default_of(topic_name), default=None, allowed=None, synonyms=coarser)


def _coarser(
    name: str, default: Value, finer: str, unit: str, allowed: Range | None = None
) -> Setting:
    return Setting(name, Kind.INT, default, _S, f"{finer} in {unit}.", allowed=allowed)


_WITH_DEFAULTS_ONLY: Final = (
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.policy",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "segment.bytes",
    "segment.index.bytes",
    "unclean.leader.election.enable",
)

# fmt: off
_TIMES: Final = (
    _millis_of("flush.ms"),
    Setting("log.flush.scheduler.interval.ms", Kind.LONG, LONG_MAX, _S,
            "How often logs are looked at for flush.ms; also its default."),
    _millis_of("retention.ms"),
    _coarser("log.retention.minutes", None, "log.retention.ms", "minutes"),
    _coarser("log.retention.hours", 168, "log.retention.ms", "hours"),
    _millis_of("segment.ms"),
    _coarser("log.roll.hours", 168, "log.roll.ms", "hours", AT_LEAST_1),
    _millis_of("segment.jitter.ms"),
    _coarser("log.roll.jitter.hours", 0, "log.roll.jitter.ms", "hours", AT_LEAST_0),
)

_DIRECTORIES: Final = (
    Setting("log.dir", Kind.LIST, ("/tmp/kafka-logs",), _S,
            "The directory for data, where log.dirs gives none."),
    Setting("log.dirs", Kind.LIST, None, _S, "The directories for data, separated by commas.",
            synonyms=(Synonym("log.dir"),)),
    Setting("log.dir.min.free.bytes", Kind.LONG, 64 << 20, _S,
            "Below this much free space a directory takes no more records from producers.",
            _C, AT_LEAST_0, ours=True),
    Setting("num.recovery.threads.per.data.dir", Kind.INT, 2, _S,
            "How many logs of one directory are recovered, and closed, at a time.",
            _C, AT_LEAST_1),
)

_BACKGROUND: Final = (
    Setting("log.retention.check.interval.ms", Kind.LONG, 5 * MINUTE_MS, _S,
            "How often logs are looked at for segments to delete.", allowed=AT_LEAST_1),
    Setting("log.flush.offset.checkpoint.interval.ms", Kind.INT, MINUTE_MS, _S,
            "How often recovery points are written.", allowed=AT_LEAST_0),
    Setting("log.flush.start.offset.checkpoint.interval.ms", Kind.INT, MINUTE_MS, _S,
            "How often log start offsets are written.", allowed=AT_LEAST_0),
    Setting("log.flush.stall.timeout.ms", Kind.LONG, 10_000, _S,
            "A flush that syncs no file for so long makes the node give up leadership there.",
            _C, AT_LEAST_1, ours=True),
    Setting("producer.id.expiration.ms", Kind.INT, DAY_MS, _S,
            "How long a partition remembers an idle producer.", _C, AT_LEAST_1),
)

_CLEANER: Final = (
    Setting("log.cleaner.enable", Kind.BOOLEAN, True, _S, "Whether logs are compacted at all."),
    Setting("log.cleaner.threads", Kind.INT, 1, _S, "How many logs are compacted at a time.",
            _C, AT_LEAST_0),
    Setting("log.cleaner.backoff.ms", Kind.LONG, 15_000, _S,
            "How long the cleaner rests when nothing is due.", _C, AT_LEAST_0),
    Setting("log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, _S,
            "Memory for the keys of a pass, over all threads.", _C),
    Setting("log.cleaner.io.buffer.size", Kind.INT, 512 << 10, _S,
            "Memory for reading and writing, over all threads.", _C, AT_LEAST_0),
    Setting("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, _S,
            "How full the table of keys may become.", _C),
    Setting("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, DOUBLE_MAX, _S,
            "The most the cleaner reads and writes per second.", _C),
    Setting("compaction.absent.replica.max.ms", Kind.LONG, 7 * DAY_MS, _S,
            "A replica absent for longer no longer holds tombstones back; it restarts empty.",
            _C, AT_LEAST_1, ours=True),
)

_R: Final = Room.REPLICATION
_REPLICATION: Final = (
    Setting("replica.lag.time.max.ms", Kind.LONG, 30_000, _R,
            "A follower behind for longer than this leaves the in-sync replicas."),
    Setting("replica.fetch.max.bytes", Kind.INT, 1 << 20, _R,
            "How much a follower asks for per partition and fetch.", allowed=AT_LEAST_0),
    Setting("replica.fetch.response.max.bytes", Kind.INT, 10 << 20, _R,
            "How much a follower asks for per fetch.", allowed=AT_LEAST_0),
    Setting("replica.fetch.wait.max.ms", Kind.INT, 500, _R,
            "How long a leader collects before it answers a follower."),
    Setting("replica.fetch.backoff.ms", Kind.INT, 1000, _R,
            "How long a follower leaves a partition alone after an error.", allowed=AT_LEAST_0),
    Setting("replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5000, _R,
            "How often high watermarks are written."),
    Setting("replica.selector.class", Kind.STRING, None, _R,
            "Which replica consumers read from; RackAwareReplicaSelector prefers their rack."),
    Setting("leader.replication.throttled.rate", Kind.LONG, LONG_MAX, _R,
            "Bytes per second sent to throttled followers.", Update.PER_BROKER, AT_LEAST_0),
    Setting("follower.replication.throttled.rate", Kind.LONG, LONG_MAX, _R,
            "Bytes per second fetched for throttled replicas.", Update.PER_BROKER, AT_LEAST_0),
)
# fmt: on

LOG_ROWS: Final = (
    *(_default_of(name) for name in _WITH_DEFAULTS_ONLY),
    *_TIMES,
    *_DIRECTORIES,
    *_BACKGROUND,
    *_CLEANER,
    *_REPLICATION,
)
