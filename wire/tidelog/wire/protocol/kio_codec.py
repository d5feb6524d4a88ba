"""kio's messages to bytes and back, made safe for bytes from outside. Loads kio when first used."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.shapes import tidy

if TYPE_CHECKING:
    from kio.static.protocol import Payload

Decoder: TypeAlias = Callable[[memoryview], object]


def kio_decoder(message_type: type[Payload]) -> Decoder:
    """A decoder that raises ``MalformedRequest`` and nothing else; ``shapes`` says why it walks."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    read = entity_reader(message_type)

    def decode(body: memoryview) -> object:
        try:
            message, _ = read(tidy(body, message_type), 0)
        except (SerialError, ValueError) as error:
            # ValueError: a byte that is no bool, a code that is no error, a year beyond 9999.
            raise MalformedRequest(f"{message_type.__name__}: {error}") from error
        return message

    return decode


def kio_bytes(message: Payload) -> bytes:
    """The body of a message."""
    from kio.serial import entity_writer

    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()
