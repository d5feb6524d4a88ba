"""The values of the control records in the metadata log and its snapshots, in Kafka's layout.

They are Kafka's so that its tools read our logs: LeaderChangeMessage, VotersRecord (KIP-853),
KRaftVersionRecord, SnapshotHeaderRecord and SnapshotFooterRecord, all version 0. What Raft here
does not use (endpoints of voters, who granted a vote) is written empty and passed over on reading.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.controller.raft.model import ReplicaKey, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Uuid
from tidelog.wire.errors import InvalidRecord

_VERSION: Final = struct.pack(">h", 0)
_NO_TAGS: Final = b"\x00"
_EMPTY_ARRAY: Final = b"\x01"
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_KRAFT_VERSION_WITH_VOTERS: Final = 1
_FEATURE_RANGE: Final = struct.pack(">hh", 0, _KRAFT_VERSION_WITH_VOTERS)


class _Reader:
    """Takes fields off the front; running out of bytes is ``InvalidRecord``."""

    def __init__(self, value: bytes | None, what: str) -> None:
        self._value = value or b""
        self._at = 0
        self._what = what
        if self.int16() < 0:
            raise InvalidRecord(f"{what} has a negative version")

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._value):
            raise InvalidRecord(f"{self._what} of {len(self._value)} bytes ends too early")
        taken, self._at = self._value[self._at : end], end
        return taken

    def int16(self) -> int:
        number: int = _INT16.unpack(self.take(2))[0]
        return number

    def int32(self) -> int:
        number: int = _INT32.unpack(self.take(4))[0]
        return number

    def unsigned_varint(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise InvalidRecord(f"{self._what} has a length that is too long")

    def count(self) -> int:
        """Of a compact array or string, which store one more than they hold."""
        return max(0, self.unsigned_varint() - 1)

    def skip_tags(self) -> None:
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self.take(self.unsigned_varint())


def _unsigned_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def leader_change_value(leader_id: NodeId) -> bytes:
    return _VERSION + _INT32.pack(leader_id) + _EMPTY_ARRAY + _EMPTY_ARRAY + _NO_TAGS


def read_leader_change(value: bytes | None) -> NodeId:
    return NodeId(_Reader(value, "leader change").int32())


def voters_value(voters: Voters) -> bytes:
    parts = [_VERSION, _unsigned_varint(len(voters) + 1)]
    for key in voters:
        parts += [_INT32.pack(key.node_id), key.directory_id.raw, _EMPTY_ARRAY]
        parts += [_FEATURE_RANGE, _NO_TAGS, _NO_TAGS]
    return b"".join([*parts, _NO_TAGS])


def read_voters(value: bytes | None) -> Voters:
    reader = _Reader(value, "list of voters")
    keys = []
    for _ in range(reader.count()):
        node_id, directory_id = NodeId(reader.int32()), DirectoryId(Uuid(reader.take(16)))
        for _ in range(reader.count()):
            _skip_endpoint(reader)
        reader.take(len(_FEATURE_RANGE))
        reader.skip_tags()
        reader.skip_tags()
        keys.append(ReplicaKey(node_id, directory_id))
    try:
        return Voters.of(keys)
    except ValueError as error:
        raise InvalidRecord(str(error)) from None


def _skip_endpoint(reader: _Reader) -> None:
    reader.take(reader.count())  # name
    reader.take(reader.count())  # host
    reader.int16()
    reader.skip_tags()


def kraft_version_value() -> bytes:
    return _VERSION + _INT16.pack(_KRAFT_VERSION_WITH_VOTERS) + _NO_TAGS


def snapshot_header_value(last_contained_log_timestamp_ms: int) -> bytes:
    return _VERSION + _INT64.pack(last_contained_log_timestamp_ms) + _NO_TAGS


def snapshot_footer_value() -> bytes:
    return _VERSION + _NO_TAGS
