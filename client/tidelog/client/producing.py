"""What both producers, the asynchronous and the synchronous one, have in common.

Records are checked and serialized where they are sent, so that a mistake is raised there and not
when somebody looks at a future.
"""

from __future__ import annotations

import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic

from tidelog.client.config import ClientConfig, read_config
from tidelog.client.errors import (
    KEY_SERIALIZATION,
    ClientClosed,
    ClientError,
    ConfigError,
    SerializationFailed,
    WrongType,
)
from tidelog.client.outbox import NewRecord, Outbox, Report
from tidelog.client.records import GivenHeaders, K, V
from tidelog.client.serializers import Serializer, bytes_serializer
from tidelog.client.settings import INT_MAX, LONG_MAX, Role, Value

_ANY_PARTITION: Final = -1
_NOW: Final = 0
_BYTES: Final[Any] = bytes_serializer


def producer_config(config: Mapping[str, Value], *, is_transactional: bool) -> ClientConfig:
    found = read_config(Role.PRODUCER, config)
    if is_transactional and not found.text("transactional.id"):
        raise ConfigError(
            "a TransactionalProducer needs transactional.id: a name that stays the same from one "
            "run of this program to the next",
            "transactional.id",
        )
    if not is_transactional and found.text("transactional.id") is not None:
        raise ConfigError(
            "a Producer takes no transactional.id; use TransactionalProducer", "transactional.id"
        )
    return found


class ProducerBase(ABC, Generic[K, V]):
    """A producer without the methods that wait."""

    _is_transactional: ClassVar = False

    def __init__(
        self,
        config: Mapping[str, Value],
        *,
        key_serializer: Serializer[K] = _BYTES,
        value_serializer: Serializer[V] = _BYTES,
    ) -> None:
        self._is_closed = True  # until it is made
        self._maker: RecordMaker[K, V] = RecordMaker(key_serializer, value_serializer)
        checked = producer_config(config, is_transactional=self._is_transactional)
        self._prepare()
        self._outbox = Outbox(checked, _weakly(self._resolve))
        self._is_closed = False

    @abstractmethod
    def _prepare(self) -> None:
        """Make what ``_resolve`` needs, before any thread can call it."""

    @abstractmethod
    def _resolve(self, batch: list[Report]) -> None:
        """Records were acknowledged, or given up; called by the outbox's thread."""

    def _require_not_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed")

    def _require_may_send(self) -> None:
        self._require_not_closed()

    @property
    def _patience_s(self) -> float:
        """After this long each record is acknowledged or given up."""
        return float(self._outbox.config.librdkafka["message.timeout.ms"]) / 1000 + 1

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            text = f"a {type(self).__name__} was never closed"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
            self._outbox.abandon()


def _weakly(method: Callable[[list[Report]], None]) -> Callable[[list[Report]], None]:
    """Calls a method while its object lives: a thread must not keep a forgotten producer alive."""
    known = weakref.WeakMethod(method)

    def call(batch: list[Report]) -> None:
        if (living := known()) is not None:
            living(batch)

    return call


class RecordMaker(Generic[K, V]):
    """Checks and serializes what ``send`` is given."""

    def __init__(self, key_serializer: Serializer[K], value_serializer: Serializer[V]) -> None:
        self._key = key_serializer
        self._value = value_serializer

    def make(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: GivenHeaders | None,
        partition: int | None,
        timestamp: int | None,
    ) -> NewRecord:
        if not isinstance(topic, str) or not topic:
            raise WrongType(f"topic: the name of a topic is wanted, not {topic!r}")
        return NewRecord(
            topic,
            None if value is None else self._serialize("value", self._value, value),
            None if key is None else self._serialize("key", self._key, key),
            None if headers is None else _headers(headers),
            _ANY_PARTITION if partition is None else _number("partition", partition, INT_MAX),
            _NOW if timestamp is None else _number("timestamp", timestamp, LONG_MAX),
        )

    def _serialize(self, what: str, serializer: Serializer[Any], value: object) -> bytes:
        try:
            data = serializer(value)
        except ClientError as error:
            raise type(error)(f"{what}: {error}") from error
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError) as error:
            failure = SerializationFailed(
                f"{what}: {_name(serializer)} failed with {type(error).__name__}: {error}"
            )
            if what == "key":
                failure.code, failure.name = KEY_SERIALIZATION, "_KEY_SERIALIZATION"
            raise failure from error
        if not isinstance(data, bytes):
            raise WrongType(
                f"{what}: {_name(serializer)} gave {type(data).__name__}; a serializer gives bytes"
            )
        return data


def _name(serializer: object) -> str:
    return str(getattr(serializer, "__name__", repr(serializer)))


def _headers(headers: GivenHeaders) -> list[tuple[str, str | bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: list[tuple[str, str | bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongType(f"headers: pairs of a name and bytes are wanted, not {pair!r}")
        name, value = pair
        if not isinstance(name, str):
            raise WrongType(f"headers: a name is text, not {type(name).__name__}")
        if value is not None and not isinstance(value, bytes):
            raise WrongType(f"header {name!r}: bytes are wanted, not {type(value).__name__}")
        found.append((name, value))
    return found


def _number(what: str, value: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{what}: a whole number is wanted, not {type(value).__name__}")
    if not 0 <= value <= high:
        raise WrongType(f"{what}={value}: a number from 0 to {high} is wanted")
    return value
