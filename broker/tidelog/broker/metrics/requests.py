"""What is counted of clients' requests: how many of each API, how long they took, what failed.

Owner: the client server, which gives every session the same meters. The names of APIs bound the
label sets; nothing that a client chooses is ever a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.meters import Spread
from tidelog.wire.protocol.apis import Api, ApiKey

_LABELS: Final[Mapping[int, str]] = {ApiKey.FETCH: "FetchConsumer"}
"""Kafka tells consumers' fetches from replicas'; ours do not fetch by this protocol."""


class ApiMeter:
    __slots__ = ("durations_ms", "label", "request_bytes")

    def __init__(self, label: str) -> None:
        self.label = label
        self.durations_ms = Spread()
        """From the last byte of the request to the last byte of the answer."""
        self.request_bytes = 0

    def answered(self, duration_ms: float, size: int) -> None:
        self.durations_ms.observe(duration_ms)
        self.request_bytes += size


class RequestMeters:
    def __init__(self) -> None:
        self._by_key: dict[int, ApiMeter] = {}
        self.errors: Counter[tuple[str, str]] = Counter()
        """By API and error; of one request as many as partitions failed."""

    def of(self, api: Api) -> ApiMeter:
        meter = self._by_key.get(api.key)
        if meter is None:
            label = _LABELS.get(api.key, api.name)
            meter = self._by_key[api.key] = ApiMeter(label)
        return meter

    def failed(self, api: Api, code: ErrorCode) -> None:
        self.errors[self.of(api).label, code.name] += 1

    def __iter__(self) -> Iterator[ApiMeter]:
        return iter(self._by_key.values())
