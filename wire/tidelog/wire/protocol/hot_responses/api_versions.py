"""ApiVersions responses, versions 0 to 4: which APIs, which versions, which features.

The header is always version 0 (``frames``). Features are tagged fields from version 3 on. Before
version 4 a client takes a feature whose minimum is 0 for an error (KIP-1022): the caller leaves
those out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import APIS, ApiKey, ApiVersionRange
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.primitives import I64, compact_string, tag_buffer, uvarint

NO_FEATURES_EPOCH: Final = -1
_API: Final = APIS[ApiKey.API_VERSIONS]
_ERROR_COUNT: Final = struct.Struct(">hi")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_RANGE: Final = struct.Struct(">hhh")
_RANGE_TAGS: Final = struct.Struct(">hhhB")
_LEVELS_TAGS: Final = struct.Struct(">hhB")


class SupportedFeature(NamedTuple):
    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(NamedTuple):
    apis: Sequence[ApiVersionRange]
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0
    supported_features: Sequence[SupportedFeature] = ()
    finalized_features_epoch: int = NO_FEATURES_EPOCH
    finalized_features: Sequence[FinalizedFeature] = ()
    zk_migration_ready: bool = False


def encode_api_versions(
    version: int, correlation_id: int, response: ApiVersionsResponse
) -> ResponseFrame:
    body = _flexible_body(response) if version >= 3 else _legacy_body(version, response)
    return frame_response(_API, version, correlation_id, body)


def encode_unsupported_api_versions(correlation_id: int) -> ResponseFrame:
    """The answer to a version we do not know: the next attempt will be in our range (KIP-511)."""
    response = ApiVersionsResponse((_API.range,), ErrorCode.UNSUPPORTED_VERSION)
    return encode_api_versions(0, correlation_id, response)


def _legacy_body(version: int, response: ApiVersionsResponse) -> bytes:
    pieces = [_ERROR_COUNT.pack(response.error_code, len(response.apis))]
    pieces += [_RANGE.pack(*api) for api in response.apis]
    if version >= 1:
        pieces.append(_I32.pack(response.throttle_time_ms))
    return b"".join(pieces)


def _flexible_body(response: ApiVersionsResponse) -> bytes:
    pieces = [_I16.pack(response.error_code), uvarint(len(response.apis) + 1)]
    pieces += [_RANGE_TAGS.pack(*api, 0) for api in response.apis]
    pieces.append(_I32.pack(response.throttle_time_ms))
    pieces.append(_feature_tags(response))
    return b"".join(pieces)


def _feature_tags(response: ApiVersionsResponse) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if response.supported_features:
        tags.append((0, _features(response.supported_features)))
    if response.finalized_features_epoch != NO_FEATURES_EPOCH:
        tags.append((1, I64.pack(response.finalized_features_epoch)))
    if response.finalized_features:
        tags.append((2, _features(response.finalized_features)))
    if response.zk_migration_ready:
        tags.append((3, b"\1"))
    return tag_buffer(tags)


def _features(features: Sequence[SupportedFeature] | Sequence[FinalizedFeature]) -> bytes:
    pieces = [uvarint(len(features) + 1)]
    for name, first, second in features:
        pieces += (compact_string(name), _LEVELS_TAGS.pack(first, second, 0))
    return b"".join(pieces)
