"""The broker's settings about groups and transactions."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.settings.topic_table import AT_LEAST_1, DAY_MS, HOUR_MS
from tidelog.kernel.settings.types import (
    INT_MAX,
    Kind,
    OneOf,
    Range,
    Room,
    Setting,
    Update,
)

_G: Final = Room.COORDINATOR
_MIGRATIONS: Final = ("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")

# fmt: off
_CLASSIC_GROUPS: Final = (
    Setting("group.min.session.timeout.ms", Kind.INT, 6000, _G,
            "The shortest session timeout a classic member may ask for."),
    Setting("group.max.session.timeout.ms", Kind.INT, 1_800_000, _G,
            "The longest session timeout a classic member may ask for."),
    Setting("group.initial.rebalance.delay.ms", Kind.INT, 3000, _G,
            "How long a new classic group waits for more members before its first assignment."),
    Setting("group.max.size", Kind.INT, INT_MAX, _G,
            "The most members of a classic group.", allowed=AT_LEAST_1),
    Setting("group.coordinator.rebalance.protocols", Kind.LIST, ("classic", "consumer"), _G,
            "The group protocols on offer.", allowed=OneOf(("consumer", "classic"))),
)

_CONSUMER_GROUPS: Final = (
    Setting("group.consumer.session.timeout.ms", Kind.INT, 45_000, _G,
            "A consumer-protocol member silent for longer is removed.", allowed=AT_LEAST_1),
    Setting("group.consumer.min.session.timeout.ms", Kind.INT, 45_000, _G,
            "The smallest consumer.session.timeout.ms of a group.", allowed=AT_LEAST_1),
    Setting("group.consumer.max.session.timeout.ms", Kind.INT, 60_000, _G,
            "The largest consumer.session.timeout.ms of a group.", allowed=AT_LEAST_1),
    Setting("group.consumer.heartbeat.interval.ms", Kind.INT, 5000, _G,
            "How often consumer-protocol members are told to heartbeat.", allowed=AT_LEAST_1),
    Setting("group.consumer.min.heartbeat.interval.ms", Kind.INT, 5000, _G,
            "The smallest consumer.heartbeat.interval.ms of a group.", allowed=AT_LEAST_1),
    Setting("group.consumer.max.heartbeat.interval.ms", Kind.INT, 15_000, _G,
            "The largest consumer.heartbeat.interval.ms of a group.", allowed=AT_LEAST_1),
    Setting("group.consumer.max.size", Kind.INT, INT_MAX, _G,
            "The most members of a consumer-protocol group.", allowed=AT_LEAST_1),
    Setting("group.consumer.assignors", Kind.LIST, ("uniform", "range"), _G,
            "The assignors on offer; the first is the default.",
            allowed=OneOf(("uniform", "range"))),
    Setting("group.consumer.migration.policy", Kind.STRING, "bidirectional", _G,
            "Which way a group may change between the classic and the consumer protocol.",
            allowed=OneOf(_MIGRATIONS, any_case=True)),
    Setting("group.consumer.regex.refresh.interval.ms", Kind.INT, 600_000, _G,
            "How often subscriptions by pattern are resolved again.", allowed=Range(10_000)),
)

_OFFSETS: Final = (
    Setting("offsets.topic.num.partitions", Kind.INT, 50, _G,
            "Partitions of __consumer_offsets.", allowed=AT_LEAST_1),
    Setting("offsets.topic.replication.factor", Kind.SHORT, 3, _G,
            "Replicas of __consumer_offsets; it is created once there are as many brokers.",
            allowed=AT_LEAST_1),
    Setting("offsets.topic.segment.bytes", Kind.INT, 100 << 20, _G,
            "segment.bytes of __consumer_offsets.", allowed=AT_LEAST_1),
    Setting("offsets.retention.minutes", Kind.INT, 10_080, _G,
            "How long the offsets of an empty group are kept.", allowed=AT_LEAST_1),
    Setting("offsets.retention.check.interval.ms", Kind.LONG, 600_000, _G,
            "How often expired offsets are looked for.", allowed=AT_LEAST_1),
    Setting("offset.metadata.max.bytes", Kind.INT, 4096, _G,
            "The longest metadata string of an offset commit."),
    Setting("offsets.commit.timeout.ms", Kind.INT, 5000, _G,
            "How long a commit may wait for the replicas.", allowed=AT_LEAST_1),
    Setting("offsets.load.buffer.size", Kind.INT, 5 << 20, _G,
            "How much is read at a time when a group coordinator loads.", allowed=AT_LEAST_1),
)

_TRANSACTIONS: Final = (
    Setting("transaction.state.log.num.partitions", Kind.INT, 50, _G,
            "Partitions of __transaction_state.", allowed=AT_LEAST_1),
    Setting("transaction.state.log.replication.factor", Kind.SHORT, 3, _G,
            "Replicas of __transaction_state; it is created once there are as many brokers.",
            allowed=AT_LEAST_1),
    Setting("transaction.state.log.min.isr", Kind.INT, 2, _G,
            "min.insync.replicas of __transaction_state.", allowed=AT_LEAST_1),
    Setting("transaction.state.log.segment.bytes", Kind.INT, 100 << 20, _G,
            "segment.bytes of __transaction_state.", allowed=AT_LEAST_1),
    Setting("transaction.state.log.load.buffer.size", Kind.INT, 5 << 20, _G,
            "How much is read at a time when a transaction coordinator loads.",
            allowed=AT_LEAST_1),
    Setting("transaction.max.timeout.ms", Kind.INT, 900_000, _G,
            "The longest transaction timeout a producer may ask for.", allowed=AT_LEAST_1),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10_000, _G,
            "How often transactions past their timeout are looked for.", allowed=AT_LEAST_1),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT, HOUR_MS, _G,
            "How often expired transactional ids are looked for.", allowed=AT_LEAST_1),
    Setting("transactional.id.expiration.ms", Kind.INT, 7 * DAY_MS, _G,
            "How long an unused transactional id is remembered.", allowed=AT_LEAST_1),
    Setting("transaction.partition.verification.enable", Kind.BOOLEAN, True, _G,
            "Ask the coordinator before the first write of a transaction to a partition"
            " (KIP-890).", Update.CLUSTER_WIDE),
)
# fmt: on

COORDINATOR_ROWS: Final = (*_CLASSIC_GROUPS, *_CONSUMER_GROUPS, *_OFFSETS, *_TRANSACTIONS)
