"""Bodies of forwarded requests and responses. Loads kio when first used, not when imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from tidelog.controller.decisions.outcome import ApiError
from tidelog.kernel.ports import Steps
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32, kio_error
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.protocol.responses import ResponseStructs, response_structs

VERSIONS: Final[dict[int, range]] = {
    key: range(APIS[key].min_served, APIS[key].max_version + 1)
    for key in (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    )
}
"""The versions taken, by API key."""


def load_codec() -> Steps[None]:
    """Import kio ahead of its first use: that takes longer than the event loop should wait."""
    import_module("kio.serial")
    yield
    import_module("kio.index")
    yield
    for key, versions in VERSIONS.items():
        response_structs(key, versions[-1])
        yield


def decode_body(api_key: int, version: int, body: bytes) -> Any:
    """The request as kio has it; ``MalformedRequest`` if it is none."""
    view = memoryview(body).toreadonly()
    return decode_request(api_key, version, view)


class Reply:
    """Builds the body of one response from the fields of all versions."""

    __slots__ = ("_structs", "version")

    def __init__(self, api_key: int, version: int) -> None:
        self.version = version
        self._structs: ResponseStructs = response_structs(api_key, version)

    def item(self, name: str, /, error: ApiError | None = None, **values: Any) -> Any:
        """A struct below the top; an error fills its two fields."""
        return self._structs.struct(name, **_error_fields(error), **values)

    def body(self, error: ApiError | None = None, **values: Any) -> bytes:
        response = self._structs.response(
            throttle_time=duration_i32(0), **_error_fields(error), **values
        )
        return kio_bytes(response)


def _error_fields(error: ApiError | None) -> dict[str, Any]:
    if error is None:
        return {}
    return {"error_code": kio_error(error.code), "error_message": error.message}
