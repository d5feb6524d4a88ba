"""The numbers of the measuring commands, in the columns of Kafka's perf tools. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

MEBIBYTE: Final = 1024 * 1024
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
CONSUMED_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
DETAILED_HEADER: Final = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@dataclass(slots=True)
class Latencies:
    """Counts per tenth of a millisecond: as much memory as there are different latencies."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    _tenths: Counter[int] = field(default_factory=Counter)

    def add(self, latency_ms: float) -> None:
        self.count += 1
        self.total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)
        self._tenths[round(latency_ms * 10)] += 1

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0

    def percentile_ms(self, percent: float) -> float:
        """The smallest latency that so many percent do not exceed."""
        wanted = self.count * percent / 100
        seen = 0
        for tenths in sorted(self._tenths):
            seen += self._tenths[tenths]
            if seen >= wanted:
                return tenths / 10
        return 0.0


@dataclass(slots=True)
class Sent:
    """Acknowledged records since a moment."""

    since_s: float
    record_bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, size: int, latency_ms: float) -> None:
        self.record_bytes += size
        self.latencies.add(latency_ms)

    def rates(self, now_s: float) -> tuple[float, float]:
        """Records and mebibytes per second."""
        elapsed_s = max(now_s - self.since_s, 1e-9)
        return self.latencies.count / elapsed_s, self.record_bytes / MEBIBYTE / elapsed_s

    def line(self, now_s: float) -> str:
        records_s, mebibytes_s = self.rates(now_s)
        one = self.latencies
        return (
            f"{one.count} records sent, {records_s:.1f} records/sec ({mebibytes_s:.2f} MB/sec), "
            f"{one.mean_ms:.1f} ms avg latency, {one.max_ms:.1f} ms max latency."
        )

    def final_line(self, now_s: float) -> str:
        shown = ", ".join(
            f"{self.latencies.percentile_ms(percent):g} ms {percent:g}th" for percent in PERCENTILES
        )
        return f"{self.line(now_s).removesuffix('.')}, {shown}."

    def as_object(self, now_s: float) -> dict[str, Any]:
        records_s, mebibytes_s = self.rates(now_s)
        one = self.latencies
        return {
            "records": one.count,
            "bytes": self.record_bytes,
            "seconds": round(now_s - self.since_s, 3),
            "records_per_second": round(records_s, 1),
            "mib_per_second": round(mebibytes_s, 3),
            "latency_ms": {
                "avg": round(one.mean_ms, 2),
                "max": round(one.max_ms, 2),
                **{f"p{percent:g}": one.percentile_ms(percent) for percent in PERCENTILES},
            },
        }


def wait_s(sent: int, records_per_second: float, elapsed_s: float) -> float:
    """How long to wait before the next record, so that the rate is not exceeded."""
    if records_per_second <= 0:
        return 0.0
    return max(0.0, sent / records_per_second - elapsed_s)


@dataclass(slots=True)
class Consumed:
    """What was read between two moments, and how long the group took to come together."""

    started_ms: int
    records: int = 0
    record_bytes: int = 0
    rebalance_ms: int = 0

    def line(self, now_ms: int, *, since: Consumed | None = None) -> str:
        """With ``since`` a line of the detailed statistics: rates are those since then."""
        begun = since or self
        elapsed_s = max(now_ms - begun.started_ms, 1) / 1000
        records = self.records - (since.records if since else 0)
        size = self.record_bytes - (since.record_bytes if since else 0)
        rebalance_ms = self.rebalance_ms - (since.rebalance_ms if since else 0)
        fetch_ms = max(now_ms - begun.started_ms - rebalance_ms, 1)
        mebibytes = size / MEBIBYTE
        when = f"{moment(now_ms)}, 0" if since else f"{moment(self.started_ms)}, {moment(now_ms)}"
        return (
            f"{when}, {self.record_bytes / MEBIBYTE:.4f}, {mebibytes / elapsed_s:.4f}, "
            f"{self.records}, {records / elapsed_s:.4f}, {rebalance_ms}, {fetch_ms}, "
            f"{mebibytes / fetch_ms * 1000:.4f}, {records / fetch_ms * 1000:.4f}"
        )

    def as_object(self, now_ms: int) -> dict[str, Any]:
        elapsed_s = max(now_ms - self.started_ms, 1) / 1000
        return {
            "start_ms": self.started_ms,
            "end_ms": now_ms,
            "records": self.records,
            "bytes": self.record_bytes,
            "records_per_second": round(self.records / elapsed_s, 1),
            "mib_per_second": round(self.record_bytes / MEBIBYTE / elapsed_s, 3),
            "rebalance_ms": self.rebalance_ms,
            "fetch_ms": max(now_ms - self.started_ms - self.rebalance_ms, 0),
        }


def moment(timestamp_ms: int) -> str:
    """``2026-01-31 12:00:00:000``, as Kafka's tools write it."""
    seconds, rest_ms = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}:{rest_ms:03d}"
