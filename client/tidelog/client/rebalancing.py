"""Partitions come and go: what librdkafka reports, what a listener is told, what is then done.

A listener runs before the change takes effect: of new partitions it may say where to begin
(``seek``) or that they wait (``pause``), of those about to go it may commit. It runs inside of a
poll, and no other poll runs meanwhile.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import TopicPartition as RdTopicPartition

from tidelog.client.checks import checked_name
from tidelog.client.consuming import ConsumerCore
from tidelog.client.errors import ConfigError, WrongType
from tidelog.client.patterns import posix_pattern
from tidelog.client.records import TopicPartition

_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Told(Protocol):
    """Somebody to tell, who returns when he has done what he wanted."""

    def on_assigned(self, partitions: list[TopicPartition]) -> None: ...

    def on_revoked(self, partitions: list[TopicPartition]) -> None: ...

    def on_lost(self, partitions: list[TopicPartition]) -> None: ...


class Rebalancing:
    def __init__(self, core: ConsumerCore[Any, Any], told: Told) -> None:
        self._core = core
        self._told = told
        config = core.config
        self._is_incremental = config.text(
            "group.protocol"
        ) == "consumer" or "cooperative" in core.config.librdkafka.get(
            "partition.assignment.strategy", ""
        )

    def subscribe(self, topics: list[str]) -> None:
        try:
            self._core.rd.subscribe(
                topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
        except KafkaException as error:
            raise self._core.failed(error, f"{topics} could not be subscribed to") from None

    def _assigned(self, rd: RdConsumer, given: list[RdTopicPartition]) -> None:
        core = self._core
        arriving = {one: OFFSET_INVALID for one in _names(given)}
        core.arriving = arriving
        try:
            self._tell(self._told.on_assigned, list(arriving))
        finally:
            core.arriving = None
            wanted = [RdTopicPartition(*one, offset) for one, offset in arriving.items()]
            if self._is_incremental:
                rd.incremental_assign(wanted)
            else:
                rd.assign(wanted)
            core.begin_at(arriving)
            if held := [RdTopicPartition(*one) for one in arriving if one in core.paused]:
                rd.pause(held)

    def _revoked(self, rd: RdConsumer, given: list[RdTopicPartition]) -> None:
        self._core.store_done()
        self._leave(rd, self._told.on_revoked, _names(given))

    def _lost(self, rd: RdConsumer, given: list[RdTopicPartition]) -> None:
        self._leave(rd, self._told.on_lost, _names(given))

    def _leave(
        self,
        rd: RdConsumer,
        tell: Callable[[list[TopicPartition]], None],
        partitions: list[TopicPartition],
    ) -> None:
        try:
            self._tell(tell, partitions)
        finally:
            self._core.forget(partitions)
            if self._is_incremental:
                rd.incremental_unassign([RdTopicPartition(*one) for one in partitions])
            else:
                rd.unassign()

    def _tell(
        self, tell: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]
    ) -> None:
        with self._listening():
            tell(partitions)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        self._core.listening_thread = threading.get_ident()
        try:
            yield
        finally:
            self._core.listening_thread = None


def _names(given: list[RdTopicPartition]) -> list[TopicPartition]:
    return sorted(TopicPartition(one.topic, one.partition) for one in given)


def topic_names(
    core: ConsumerCore[Any, Any], topics: str | Sequence[str] | re.Pattern[str]
) -> list[str]:
    """What to subscribe to, as librdkafka wants it; a pattern must match whole names."""
    core.require_group("subscribe: give group.id, or assign partitions")
    if isinstance(topics, re.Pattern):
        return [posix_pattern(topics)]
    if not isinstance(topics, Iterable):
        raise WrongType(f"topics: a name, names or a pattern are wanted, not {topics!r}")
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise WrongType("topics: at least one name is wanted; unsubscribe() ends a subscription")
    for name in names:
        checked_name("topics", name)
        if name in _INTERNAL and core.config.flag("exclude.internal.topics"):
            raise ConfigError(
                f"{name} is internal; set exclude.internal.topics=false to read it",
                "exclude.internal.topics",
            )
        if name.startswith("^"):
            raise WrongType(f"topics: {name!r} is no name; give re.compile(…) for a pattern")
    return names
