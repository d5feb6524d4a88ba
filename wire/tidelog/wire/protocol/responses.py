"""Responses of the cold APIs: kio's objects to frames, and back for whoever plays the client.

The four responses that make up nearly all traffic are written by hand in ``hot_responses``.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.kio_codec import Decoder, kio_bytes, kio_decoder

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


def encode_response(
    api_key: int, version: int, correlation_id: int, message: ResponsePayload
) -> ResponseFrame:
    """A whole frame, size and header included, from kio's response of that very version."""
    if (message.__api_key__, message.__version__) != (api_key, version):
        raise ValueError(
            f"{type(message).__name__} v{message.__version__} of API {message.__api_key__} "
            f"does not answer a request of API {api_key} v{version}"
        )
    return frame_response(APIS[api_key], version, correlation_id, kio_bytes(message))


def decode_response(api_key: int, version: int, body: memoryview) -> ResponsePayload:
    """A response body (after its header); ``MalformedRequest`` if it is not one."""
    return cast("ResponsePayload", _decoder(api_key, version)(body))


@cache
def _decoder(api_key: int, version: int) -> Decoder:
    return kio_decoder(APIS[api_key].load_response_type(version))


class ResponseStructs:
    """Builds kio's structs of one response version from the fields of all versions.

    A handler states every field it knows; those which this version does not have are left out.
    So a handler reads the same for all versions, and only the exceptions show.
    """

    __slots__ = ("_fields", "_module", "_name")

    def __init__(self, api_key: int, version: int) -> None:
        response_type = APIS[api_key].load_response_type(version)
        self._module = import_module(response_type.__module__)
        self._name = response_type.__name__
        self._fields: dict[str, frozenset[str]] = {}

    def response(self, **values: Any) -> ResponsePayload:
        return cast("ResponsePayload", self.struct(self._name, **values))

    def struct(self, name: str, /, **values: Any) -> Any:
        """The struct by kio's class name, such as ``DescribeConfigsResult``."""
        struct_type = getattr(self._module, name)
        known = self._fields.get(name)
        if known is None:
            known = self._fields[name] = frozenset(field.name for field in fields(struct_type))
        return struct_type(**{key: value for key, value in values.items() if key in known})


@cache
def response_structs(api_key: int, version: int) -> ResponseStructs:
    return ResponseStructs(api_key, version)
