"""The settings that replication runs with, read once and replaced as a whole when they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.kernel.settings.refusals import RACK_AWARE_SELECTOR
from tidelog.kernel.settings.values import Settings

ISR_CHECK_INTERVAL_MS: Final = 500
"""How often leaders look for followers that fell behind or silent (DESIGN 2.3)."""

ISR_RETRY_MS: Final = 50
"""The pause before a report to the controller that got no answer is sent again."""

MAX_CHUNK_BYTES: Final = 1 << 20
"""Records in one message of a fetch stream."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    lag_time_max_ms: int = 30_000
    session_timeout_ms: int = 3_000
    fetch_max_bytes: int = 1 << 20
    fetch_response_max_bytes: int = 10 << 20
    fetch_wait_max_ms: int = 500
    fetch_backoff_ms: int = 1_000
    leader_throttled_rate: int = (1 << 63) - 1
    follower_throttled_rate: int = (1 << 63) - 1
    high_watermark_checkpoint_interval_ms: int = 5_000
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    flush_stall_timeout_ms: int = 10_000
    min_free_bytes: int = 64 << 20
    producer_expiration_ms: int = 86_400_000
    is_rack_aware: bool = False

    @classmethod
    def of(cls, settings: Settings) -> ReplicationSettings:
        get = settings.get_int
        return cls(
            lag_time_max_ms=get("replica.lag.time.max.ms"),
            session_timeout_ms=get("broker.session.timeout.ms"),
            fetch_max_bytes=get("replica.fetch.max.bytes"),
            fetch_response_max_bytes=get("replica.fetch.response.max.bytes"),
            fetch_wait_max_ms=get("replica.fetch.wait.max.ms"),
            fetch_backoff_ms=get("replica.fetch.backoff.ms"),
            leader_throttled_rate=get("leader.replication.throttled.rate"),
            follower_throttled_rate=get("follower.replication.throttled.rate"),
            high_watermark_checkpoint_interval_ms=get(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
            recovery_point_checkpoint_interval_ms=get("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_interval_ms=get("log.flush.start.offset.checkpoint.interval.ms"),
            retention_check_interval_ms=get("log.retention.check.interval.ms"),
            flush_stall_timeout_ms=get("log.flush.stall.timeout.ms"),
            min_free_bytes=get("log.dir.min.free.bytes"),
            producer_expiration_ms=get("producer.id.expiration.ms"),
            is_rack_aware=settings.get_optional_str("replica.selector.class")
            == RACK_AWARE_SELECTOR,
        )
