"""kio's values and ours.

kio gives some fields Python types: time-outs and throttle times are ``timedelta``, timestamps are
``datetime`` in UTC, uuids are ``uuid.UUID`` with None for the zero uuid, error codes are kio's own
enum. Everywhere else in Tidelog these are milliseconds, ``Uuid`` and ``kernel.errors.ErrorCode``.
The conversions stand here, each way, without importing kio: its ranged types are plain Python
objects at run time, and its encoder asks an error code only for its number.
"""

from __future__ import annotations

import datetime
import uuid
from typing import TYPE_CHECKING, Final, TypeVar, cast

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_TIMESTAMP, ZERO_UUID, TimestampMs, Uuid

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode as KioErrorCode
    from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta

T = TypeVar("T")

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def milliseconds(duration: datetime.timedelta) -> int:
    return duration // _MILLISECOND


def duration_i32(duration_ms: int) -> i32Timedelta:
    """For a field of 32 bits, such as ``throttle_time``."""
    return cast("i32Timedelta", duration_ms * _MILLISECOND)


def duration_i64(duration_ms: int) -> i64Timedelta:
    return cast("i64Timedelta", duration_ms * _MILLISECOND)


def timestamp_ms(moment: datetime.datetime | None) -> TimestampMs:
    """None, kio's word for −1, is ``NO_TIMESTAMP``."""
    return NO_TIMESTAMP if moment is None else TimestampMs((moment - _EPOCH) // _MILLISECOND)


def moment(timestamp: TimestampMs) -> TZAware | None:
    return None if timestamp == NO_TIMESTAMP else exact_moment(timestamp)


def exact_moment(timestamp: TimestampMs) -> TZAware:
    """For a field that cannot be null: −1 goes out as −1 (DescribeTransactions before a start)."""
    return cast("TZAware", _EPOCH + timestamp * _MILLISECOND)


def from_kio_uuid(value: uuid.UUID | None) -> Uuid:
    return ZERO_UUID if value is None else Uuid(value.bytes)


def to_kio_uuid(value: Uuid) -> uuid.UUID | None:
    return None if value == ZERO_UUID else uuid.UUID(bytes=value.raw)


def kio_error(code: ErrorCode) -> KioErrorCode:
    """Our code where kio's types want theirs; it is encoded by its number."""
    return cast("KioErrorCode", code)


def field_of(message: object, name: str, default: T) -> T:
    """A field that the message's version may not have."""
    value: T = getattr(message, name, default)
    return value
