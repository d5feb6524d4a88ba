"""What callers may give as arguments; anything else is a ``WrongType`` that says what is wanted.

Checked here and not by librdkafka's binding: that raises whatever its conversions happen to raise,
and crashes the process over some texts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tidelog.client.errors import WrongType
from tidelog.client.records import GivenHeaders, GivenOffsets, OffsetAndMetadata, TopicPartition
from tidelog.client.settings import INT_MAX, LONG_MAX

T = TypeVar("T")


def checked_name(what: str, value: object) -> str:
    """Text that has a form on the wire."""
    if not isinstance(value, str) or not value:
        raise WrongType(f"{what}: a name is wanted, not {value!r}")
    if not _is_plain(value):
        raise WrongType(f"{what}: {value!r} has no form in UTF-8, or holds a NUL")
    return value


def _is_plain(text: str) -> bool:
    if text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def checked_number(what: str, value: object, low: int = 0, high: int = LONG_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{what}: a whole number is wanted, not {type(value).__name__}")
    if not low <= value <= high:
        raise WrongType(f"{what}={value}: a number from {low} to {high} is wanted")
    return value


def checked_seconds(what: str, value: object) -> float:
    """A time to wait; what lies in the past is no time at all."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise WrongType(f"{what}: seconds are wanted, not {value!r}")
    return max(0.0, value)


def checked_partition(value: object) -> TopicPartition:
    if isinstance(value, tuple) and len(value) == 2:
        topic = checked_name("topic", value[0])
        return TopicPartition(topic, checked_number("partition", value[1], high=INT_MAX))
    raise WrongType(f"TopicPartition(topic, number) is wanted, not {value!r}")


def checked_partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    if isinstance(values, str | TopicPartition) or not isinstance(values, Iterable):
        raise WrongType(f"several of TopicPartition(topic, number) are wanted, not {values!r}")
    return [checked_partition(one) for one in values]


def checked_offsets(offsets: GivenOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, given in checked_mapping("offsets", offsets).items():
        partition = checked_partition(key)
        one = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        offset = one.offset
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= LONG_MAX:
            raise WrongType(f"{partition}: {offset!r} is no offset: 0 or more is wanted")
        if not isinstance(one.metadata, str) or not _is_plain(one.metadata):
            raise WrongType(f"{partition}: metadata is text, not {one.metadata!r}")
        if one.leader_epoch is not None:
            checked_number("leader_epoch", one.leader_epoch, high=INT_MAX)
        found[partition] = one
    return found


def checked_mapping(what: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise WrongType(f"{what}: a dictionary is wanted, not {value!r}")
    return value


def checked_headers(headers: GivenHeaders) -> list[tuple[str, str | bytes | None]]:
    if isinstance(headers, Mapping):
        pairs: Iterable[Any] = headers.items()
    elif isinstance(headers, Iterable):
        pairs = headers
    else:
        raise WrongType(f"headers: pairs of a name and bytes are wanted, not {headers!r}")
    found: list[tuple[str, str | bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongType(f"headers: pairs of a name and bytes are wanted, not {pair!r}")
        name, value = pair
        if not isinstance(name, str):
            raise WrongType(f"headers: a name is text, not {type(name).__name__}")
        if not _is_plain(name):
            raise WrongType(f"headers: {name!r} has no form in UTF-8, or holds a NUL")
        if value is not None and not isinstance(value, bytes):
            raise WrongType(f"header {name!r}: bytes are wanted, not {type(value).__name__}")
        found.append((name, value))
    return found


def checked_listener(listener: T, *, may_wait: bool) -> T:
    """Whatever has the three methods; without an event loop they are plain functions."""
    for name in ("on_assigned", "on_revoked", "on_lost"):
        method = getattr(listener, name, None)
        if not callable(method):
            raise WrongType(f"listener: a RebalanceListener is wanted, not {listener!r}")
        if not may_wait and inspect.iscoroutinefunction(method):
            raise WrongType(f"listener: {name} is async, which needs tidelog.client.Consumer")
    return listener


def checked_function(what: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise WrongType(f"{what}: a function is wanted, not {value!r}")
    found: Callable[..., Any] = value
    return found
