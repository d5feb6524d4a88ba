"""The request log: a line for every request that was answered, while somebody wants it.

It is switched on by giving the logger ``tidelog.request`` the level DEBUG, at start or while the
node runs. Until then it costs one look at that level. What failed is read from the answer itself,
which is why a busy node should not be left like that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Final

from tidelog.broker.calls import Answer, Client
from tidelog.wire.protocol.apis import Api
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import SIZE_BYTES, ResponseFrame
from tidelog.wire.protocol.responses import decode_response

log = logging.getLogger("tidelog.request")

_CORRELATION_ID_BYTES: Final = 4
_MAX_LOOKED_AT: Final = 10_000
_NO_ERROR: Final = 0


def is_wanted() -> bool:
    return log.isEnabledFor(logging.DEBUG)


def tell(
    client: Client,
    client_id: str | None,
    api: Api,
    version: int,
    size: int,
    latency_ms: float,
    answer: Answer,
) -> None:
    errors = [] if answer is None else errors_in(api, version, answer)
    response_bytes = 0 if answer is None else answer.size
    failed = f" {','.join(errors)}" if errors else ""
    log.debug(
        "%s v%d from %s (%s): %d bytes, answered with %d after %.3f ms%s",
        api.name, version, client.address, client_id, size, response_bytes, latency_ms, failed,
        extra={
            "api": api.name,
            "version": version,
            "client": str(client.address),
            "client_id": client_id,
            "listener": client.listener_name,
            "size": size,
            "response_size": response_bytes,
            "latency_ms": round(latency_ms, 3),
            "errors": errors,
        },
    )  # fmt: skip


def errors_in(api: Api, version: int, frame: ResponseFrame) -> list[str]:
    """The names of all errors in an answer, each once, in their order."""
    body = b"".join(
        bytes(segment.length) if hasattr(segment, "length") else bytes(segment)
        for segment in frame.segments
    )
    start = SIZE_BYTES + _CORRELATION_ID_BYTES + api.response_header_version(version)
    try:
        response = decode_response(api.key, version, memoryview(body)[start:])
    except MalformedRequest:
        return ["unreadable"]
    return list(dict.fromkeys(_errors(response)))


def _errors(response: object) -> Iterator[str]:
    waiting = [response]
    for _ in range(_MAX_LOOKED_AT):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, tuple | list):
            waiting.extend(reversed(one))
        elif is_dataclass(one):
            values = {field.name: getattr(one, field.name) for field in fields(one)}
            code = values.pop("error_code", None)
            if code is not None and code.value != _NO_ERROR:
                yield str(code.name).upper()
            waiting.extend(v for v in values.values() if isinstance(v, tuple) or is_dataclass(v))
