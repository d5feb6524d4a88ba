"""What both consumers have in common: how they are made, and what needs no waiting."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final, Generic

from tidelog.client.checks import checked_number
from tidelog.client.consuming import ConsumerCore
from tidelog.client.records import K, OffsetAndMetadata, TopicPartition, V
from tidelog.client.serializers import Deserializer, bytes_deserializer
from tidelog.client.settings import Value
from tidelog.client.transacting import GroupMetadata

_BYTES: Final[Any] = bytes_deserializer


class ConsumerBase(Generic[K, V]):
    _core: ConsumerCore[K, V]

    def __init__(
        self,
        config: Mapping[str, Value],
        *,
        key_deserializer: Deserializer[K] = _BYTES,
        value_deserializer: Deserializer[V] = _BYTES,
    ) -> None:
        self._core = ConsumerCore(config, key_deserializer, value_deserializer)
        self._prepare()

    def _prepare(self) -> None:
        """Make what the methods that wait need."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions it reads at the moment."""
        return self._core.assignment()

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._core.paused)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What ``commit()`` commits: the record after the last that was handed out."""
        self._core.require_open()
        return self._core.positions()

    def group_metadata(self) -> GroupMetadata:
        """For ``send_offsets`` of a transaction."""
        return self._core.group_metadata()

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._core.max_poll_records
        return checked_number("max_records", max_records, low=1)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.is_closed:
            text = f"a {type(self).__name__} was never closed"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
