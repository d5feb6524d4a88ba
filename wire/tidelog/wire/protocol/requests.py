"""Request bodies: from bytes to objects.

Produce and Fetch, which make up nearly all traffic, are read by hand into our own tuples, and the
records of a Produce request stay views into the frame. Everything else goes through kio, into the
class of that API and version; ``kio_values`` says what kio makes of durations, times and uuids,
and ``shapes`` why kio never sees a message that was not walked first.

A body raises ``MalformedRequest`` or is decoded; bytes behind it are ignored, as Kafka does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request
from tidelog.wire.protocol.hot_requests.fetch import FetchRequest, decode_fetch_request
from tidelog.wire.protocol.hot_requests.produce import ProduceRequest, decode_produce_request
from tidelog.wire.protocol.kio_codec import Decoder, kio_bytes, kio_decoder

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

DecodedRequest: TypeAlias = "RequestPayload | ProduceRequest | FetchRequest"


def decode_request(api_key: int, version: int, body: memoryview) -> DecodedRequest:
    """The body of a request as ``parse_request`` left it: a read-only view."""
    if api_key == ApiKey.PRODUCE:
        return decode_produce_request(version, body)
    if api_key == ApiKey.FETCH:
        return decode_fetch_request(version, body)
    return cast("RequestPayload", _decoder(api_key, version)(body))


@cache
def _decoder(api_key: int, version: int) -> Decoder:
    return kio_decoder(APIS[api_key].load_request_type(version))


def encode_request(correlation_id: int, client_id: str | None, request: RequestPayload) -> bytes:
    """A whole frame, size included, from one of kio's requests: for whoever plays the client."""
    api = APIS[request.__api_key__]
    version = request.__version__
    return frame_request(api, version, correlation_id, client_id, kio_bytes(request))
