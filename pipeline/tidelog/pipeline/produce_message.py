"""Produce in version 8, the last one before flexible fields: every broker serves it.

It is also older than the versions whose senders leave it to the broker to add partitions to a
transaction (KIP-890), so here a transaction's producer epoch stays the same from its first record
to its end, whoever ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.positions import Place
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.primitives import I32, string
from tidelog.wire.protocol.responses import decode_response

VERSION: Final = 8
_ALL_REPLICAS: Final = -1
_FRONT: Final = struct.Struct(">hi")
_PARTITION: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Produced:
    """What became of one batch."""

    error: ErrorCode
    message: str | None


def produce_body(
    transactional_id: str | None, timeout_ms: int, batches: Sequence[tuple[Place, bytes]]
) -> bytes:
    """One batch for each place."""
    by_topic: dict[str, list[tuple[int, bytes]]] = {}
    for (topic, partition), batch in batches:
        by_topic.setdefault(topic, []).append((partition, batch))
    parts = [string(transactional_id), _FRONT.pack(_ALL_REPLICAS, timeout_ms)]
    parts.append(I32.pack(len(by_topic)))
    for topic, partitions in by_topic.items():
        parts += (string(topic), I32.pack(len(partitions)))
        for partition, batch in partitions:
            parts += (_PARTITION.pack(partition, len(batch)), batch)
    return b"".join(parts)


def read_produced(body: memoryview) -> dict[Place, Produced]:
    """The answer to ``produce_body``; ``MalformedRequest`` if it is none."""
    answer: Any = decode_response(ApiKey.PRODUCE, VERSION, body)
    found: dict[Place, Produced] = {}
    for topic in answer.responses:
        for one in topic.partition_responses:
            try:
                code = ErrorCode(int(one.error_code))
            except ValueError as error:
                raise MalformedRequest(f"ProduceResponse v{VERSION}: {error}") from error
            found[str(topic.name), int(one.index)] = Produced(code, one.error_message)
    return found
