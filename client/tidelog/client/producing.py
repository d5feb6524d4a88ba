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

from tidelog.client.checks import (
    checked_function,
    checked_headers,
    checked_name,
    checked_number,
    checked_seconds,
)
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
from tidelog.client.settings import INT_MAX, Role, Value

_ANY_PARTITION: Final = -1
_NOW: Final = 0
"""To librdkafka, so that no record can be given the first millisecond of 1970."""
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

    def _shut(self, timeout_s: float) -> None:
        """Blocks for so long at most, and a second to give up the rest."""
        self._outbox.close(timeout_s)

    def _patience(self, timeout_s: float | None) -> float:
        """How long to wait; if nobody says, until each record is acknowledged or given up."""
        if timeout_s is not None:
            return checked_seconds("timeout_s", timeout_s)
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
        self._key: Serializer[K] = checked_function("key_serializer", key_serializer)
        self._value: Serializer[V] = checked_function("value_serializer", value_serializer)

    def make(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: GivenHeaders | None,
        partition: int | None,
        timestamp: int | None,
    ) -> NewRecord:
        return NewRecord(
            checked_name("topic", topic),
            None if value is None else self._serialize("value", self._value, value),
            None if key is None else self._serialize("key", self._key, key),
            None if headers is None else checked_headers(headers),
            _ANY_PARTITION
            if partition is None
            else checked_number("partition", partition, high=INT_MAX),
            _NOW if timestamp is None else checked_number("timestamp", timestamp, low=_NOW + 1),
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
