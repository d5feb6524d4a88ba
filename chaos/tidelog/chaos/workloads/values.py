"""A value that says which record it is: its key and its number, padded to a size. Pure."""

from __future__ import annotations

from typing import Final

_FILL: Final = b"."


class ForeignRecord(ValueError):
    """A record that no workload wrote, or whose bytes are not those that were written."""


def encode_value(key: str, sequence: int, size: int = 0) -> bytes:
    return f"{key}:{sequence}:".encode().ljust(size, _FILL)


def decode_value(key: bytes | None, value: bytes | None) -> tuple[str, int | None]:
    """Key and sequence; the sequence of a tombstone is None."""
    if key is None:
        raise ForeignRecord("the record has no key")
    name = key.decode("utf-8", "backslashreplace")
    if value is None:
        return name, None
    written, _, rest = value.partition(b":")
    number, _, fill = rest.partition(b":")
    if written != key or not number.isdigit() or fill.strip(_FILL):
        raise ForeignRecord(f"the value of key {name} is {value[:60]!r}")
    return name, int(number)
