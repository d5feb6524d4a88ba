"""How a topic's settings follow from its own, the broker's and the defaults."""

from __future__ import annotations

import pytest

from tidelog.kernel.settings import InvalidSettings, Link, Origin, Settings, TopicConfig
from tidelog.kernel.settings import topic_chain as chain
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS


def test_defaults() -> None:
    config = TopicConfig.defaults()
    assert config.retention_ms == 7 * 24 * 3_600_000
    assert config.flush_policy == "fsync"
    assert config.is_deleted and not config.is_compacted
    assert config.effective_segment_bytes == 1 << 30
    assert TopicConfig.resolve({}, Settings()) == config


def test_the_topic_wins_over_the_broker() -> None:
    broker = Settings.of({"log.retention.ms": "1000", "log.cleanup.policy": "compact"})
    assert TopicConfig.resolve({}, broker).retention_ms == 1000
    config = TopicConfig.resolve({"retention.ms": "-1", "cleanup.policy": "compact,delete"}, broker)
    assert config.retention_ms == -1
    assert config.is_compacted and config.is_deleted
    assert not TopicConfig.resolve({"cleanup.policy": ""}, broker).is_compacted


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_wins(given: dict[str, str], retention_ms: int) -> None:
    broker = Settings.of(given)
    assert TopicConfig.resolve({}, broker).retention_ms == retention_ms
    assert broker.get_long("log.retention.ms") == retention_ms


def test_other_units() -> None:
    broker = Settings.of(
        {
            "log.roll.hours": "2",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "7",
        }
    )
    config = TopicConfig.resolve({}, broker)
    assert (config.segment_ms, config.segment_jitter_ms) == (7_200_000, 3_600_000)
    assert config.flush_ms == 7


def test_dynamic_settings_win_over_static_ones() -> None:
    static = Settings.of({"log.retention.ms": "1", "min.insync.replicas": "1"})
    cluster = static.with_dynamic(cluster={"log.retention.ms": "2", "min.insync.replicas": "2"})
    both = cluster.with_dynamic(
        cluster={"log.retention.ms": "2", "min.insync.replicas": "2"},
        broker={"log.retention.ms": "3"},
    )
    assert TopicConfig.resolve({}, cluster).retention_ms == 2
    assert TopicConfig.resolve({}, both).retention_ms == 3
    assert TopicConfig.resolve({}, both).min_insync_replicas == 2
    assert TopicConfig.resolve({"retention.ms": "4"}, both).retention_ms == 4
    assert both.origin("log.retention.ms") is Origin.DYNAMIC_BROKER
    back = both.with_dynamic(cluster={})
    assert TopicConfig.resolve({}, back).retention_ms == 1


@pytest.mark.parametrize(
    ("cluster", "broker"),
    [
        ({"num.partitions": "3"}, {}),
        ({}, {"num.partitions": "3"}),
        ({"leader.replication.throttled.rate": "1"}, {}),
        ({"log.cleaner.threads": "x"}, {}),
    ],
)
def test_what_cannot_be_dynamic(cluster: dict[str, str], broker: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings):
        Settings().with_dynamic(cluster=cluster, broker=broker)


def test_dynamic_names_without_effect_are_passed_over() -> None:
    settings = Settings().with_dynamic(
        cluster={"num.io.threads": "4"}, broker={"leader.replication.throttled.rate": "9"}
    )
    assert settings.get_long("leader.replication.throttled.rate") == 9


def test_the_internal_segment_size_wins_and_may_be_tiny() -> None:
    config = TopicConfig.resolve({"internal.segment.bytes": "100"}, Settings())
    assert config.effective_segment_bytes == 100
    assert config.segment_bytes == 1 << 30


def test_every_objection_is_reported() -> None:
    with pytest.raises(InvalidSettings) as refused:
        TopicConfig.resolve(
            {
                "segment.bytes": "1",
                "no.such": "1",
                "remote.storage.enable": "true",
                "local.retention.ms": "5",
                "remote.log.copy.disable": "true",
            },
            Settings(),
        )
    assert len(refused.value.errors) == 3


def test_remote_storage_may_be_off() -> None:
    TopicConfig.resolve({"remote.storage.enable": "false"}, Settings())


def test_lags_must_not_cross_also_not_with_the_brokers() -> None:
    with pytest.raises(InvalidSettings) as refused:
        TopicConfig.resolve(
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, Settings()
        )
    assert refused.value.errors == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    )
    broker = Settings.of({"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidSettings):
        TopicConfig.resolve({"min.compaction.lag.ms": "10"}, broker)


def test_chains_list_what_decides() -> None:
    broker = Settings.of({"log.retention.hours": "1"}).with_dynamic(
        cluster={"log.retention.ms": "2"}
    )
    assert chain(TOPIC_SETTINGS["retention.ms"], {"retention.ms": "3"}, broker) == (
        Link("retention.ms", "3", Origin.TOPIC),
        Link("log.retention.ms", "2", Origin.DYNAMIC_DEFAULT),
        Link("log.retention.hours", "1", Origin.OVERRIDE),
        Link("log.retention.hours", "168", Origin.DEFAULT),
    )
    assert chain(TOPIC_SETTINGS["leader.replication.throttled.replicas"], {}, broker) == (
        Link("leader.replication.throttled.replicas", "", Origin.DEFAULT),
    )
    assert chain(TOPIC_SETTINGS["internal.segment.bytes"], {}, broker) == ()
    assert [origin.config_source for origin in Origin] == [5, 4, 4, 4, 3, 2, 6, 8, 1]
