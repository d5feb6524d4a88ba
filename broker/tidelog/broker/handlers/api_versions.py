"""ApiVersions: which APIs this node serves in which versions, and the features of the cluster.

The first thing a client sends, so it must be answered whatever the state of the cluster. An
unknown *version* of it is answered by the session, before anything is decoded (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey, advertised
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.hot_responses.api_versions import (
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
    encode_api_versions,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
_FIRST_WITH_MINIMUM_0: Final = 4


class ApiVersions:
    api_key = ApiKey.API_VERSIONS
    is_pipelined = False

    def __init__(
        self,
        context: BrokerContext,
        registered: Collection[int],
        supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
    ) -> None:
        """``registered`` are the keys of all handlers, this one included."""
        self._context = context
        self._apis = advertised(registered)
        self._supported = tuple(
            SupportedFeature(name, low, high) for name, (low, high) in sorted(supported.items())
        )

    def begin(self, call: Call) -> ResponseFrame:
        if call.version >= _FIRST_WITH_SOFTWARE and not _names_software(call.request):
            refused = ApiVersionsResponse((), ErrorCode.INVALID_REQUEST)
            return encode_api_versions(call.version, call.correlation_id, refused)
        return encode_api_versions(call.version, call.correlation_id, self._answer(call.version))

    def _answer(self, version: int) -> ApiVersionsResponse:
        image = self._context.image
        return ApiVersionsResponse(
            self._apis,
            supported_features=[
                feature
                for feature in self._supported
                if feature.min_version > 0 or version >= _FIRST_WITH_MINIMUM_0
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                FinalizedFeature(name, image.features[name], image.features[name])
                for name in sorted(image.features)
            ],
        )


def _names_software(request: Any) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)
