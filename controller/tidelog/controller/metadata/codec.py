"""Metadata records as bytes: msgpack ``[type id, version, {field: value}]``.

How a record evolves. A field with a default may be added without a new version: older nodes pass
over names they do not know, newer ones take the default for names that are missing. A change that
an older node must not overlook gets a new version, and a node that meets a version or a type it
does not know refuses it: to skip a record would be to hold another truth than the rest of the
cluster (hazard 15).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]

from tidelog.controller.metadata.records import MetadataRecord
from tidelog.kernel.ids import Uuid


class UnreadableRecord(ValueError):
    """Bytes in the metadata log that this node cannot take for a record."""


class UnknownRecord(UnreadableRecord):
    """A record of a type or version that only a newer node knows."""


class MalformedRecord(UnreadableRecord):
    """A record whose bytes or values are damaged."""


_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    to_wire: _Convert
    from_wire: _Convert
    default: Any


@dataclass(frozen=True, slots=True)
class _Layout:
    make: Callable[..., Any]
    fields: tuple[_Field, ...]

    def pack(self, value: Any) -> dict[str, Any]:
        packed = {}
        for field in self.fields:
            content = getattr(value, field.name)
            if content != field.default:
                packed[field.name] = field.to_wire(content)
        return packed

    def unpack(self, packed: Any) -> Any:
        if not isinstance(packed, dict):
            raise MalformedRecord(f"expected the fields of a record, found {packed!r:.80}")
        known = {
            field.name: field.from_wire(packed[field.name])
            for field in self.fields
            if field.name in packed
        }
        try:
            return self.make(**known)
        except TypeError as error:
            raise MalformedRecord(f"a required field is missing: {error}") from error


def _layout(cls: type[Any]) -> _Layout:
    hints = get_type_hints(cls)
    fields = []
    for field in dataclasses.fields(cls):
        to_wire, from_wire = _converters(hints[field.name])
        fields.append(_Field(field.name, to_wire, from_wire, field.default))
    return _Layout(cls, tuple(fields))


def _converters(hint: Any) -> tuple[_Convert, _Convert]:
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    if get_origin(hint) in (types.UnionType, typing.Union):
        [inner] = [option for option in get_args(hint) if option is not type(None)]
        to_wire, from_wire = _converters(inner)
        return _unless_none(to_wire), _unless_none(from_wire)
    if get_origin(hint) is tuple:
        return _tuple_converters(get_args(hint)[0])
    if hint is Uuid:
        return _raw, _uuid
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        layout = _layout(hint)
        return layout.pack, layout.unpack
    return _same, _checked(hint)


def _tuple_converters(inner: Any) -> tuple[_Convert, _Convert]:
    to_wire, from_wire = _converters(inner)

    def unpack(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise MalformedRecord(f"expected a list, found {value!r:.80}")
        return tuple([from_wire(item) for item in value])

    return (lambda value: [to_wire(item) for item in value]), unpack


def _unless_none(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _raw(value: Uuid) -> bytes:
    return value.raw


def _uuid(value: Any) -> Uuid:
    if not isinstance(value, bytes) or len(value) != 16:
        raise MalformedRecord(f"expected a uuid of 16 bytes, found {value!r:.80}")
    return Uuid(value)


def _checked(kind: type) -> _Convert:
    def check(value: Any) -> Any:
        # Exactly this type: bool is a subclass of int, and a float field never holds an int.
        if type(value) is not kind:
            raise MalformedRecord(f"expected {kind.__name__}, found {value!r:.80}")
        return value

    return check


_LAYOUTS: Final[dict[tuple[int, int], _Layout]] = {
    (cls.type_id, cls.version): _layout(cls) for cls in get_args(MetadataRecord)
}
_KNOWN_TYPES: Final = frozenset(type_id for type_id, _ in _LAYOUTS)


def encode_record(record: MetadataRecord) -> bytes:
    """The value bytes of a record; fields that have their default are left out."""
    layout = _LAYOUTS[record.type_id, record.version]
    packed: bytes = msgpack.packb([record.type_id, record.version, layout.pack(record)])
    return packed


def decode_record(value: bytes) -> MetadataRecord:
    """The record in these bytes; raises UnknownRecord or MalformedRecord."""
    try:
        content = msgpack.unpackb(value, raw=False, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedRecord(f"not a metadata record: {error}") from error
    match content:
        case [int(type_id), int(version), fields]:
            layout = _LAYOUTS.get((type_id, version))
        case _:
            raise MalformedRecord("a metadata record is [type, version, fields]")
    if layout is None:
        what = f"version {version} of record type" if type_id in _KNOWN_TYPES else "record type"
        raise UnknownRecord(
            f"{what} {type_id} is not known to this node; it was written by a newer one, so"
            " upgrade this node before it joins the cluster again"
        )
    record: MetadataRecord = layout.unpack(fields)
    return record
