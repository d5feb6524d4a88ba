"""Errors of the transaction coordinator in the words of old versions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

_FIRST_WITH_FENCED: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 2,
        ApiKey.ADD_OFFSETS_TO_TXN: 2,
        ApiKey.END_TXN: 2,
    }
)
"""From these versions on clients know PRODUCER_FENCED."""


def for_version(code: ErrorCode, api: ApiKey, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
