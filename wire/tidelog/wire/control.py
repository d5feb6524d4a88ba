"""Control records: what brokers write into a log for each other, never shown to applications.

A control record's key is ``version, type`` (two int16); the value depends on the type. The
markers that end a transaction (KIP-98 §5.3) carry the epoch of the coordinator that wrote
them, so that a deposed coordinator can be told apart. The other types live in metadata logs.
Types not known here are skipped by readers, as newer brokers may write them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidelog.kernel.ids import CoordinatorEpoch
from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import InvalidRecord
from tidelog.wire.records import Record, build_batch, decode_records, known_header

_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a producer's transaction on one partition."""

    type: ControlType
    coordinator_epoch: CoordinatorEpoch

    @property
    def is_commit(self) -> bool:
        return self.type is ControlType.COMMIT


def control_key(control_type: ControlType) -> bytes:
    return _KEY.pack(_VERSION, control_type)


def read_control_type(key: bytes | None) -> ControlType | None:
    """The type a control record's key names; None for one that is not known here."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"control record key {key!r} is shorter than {_KEY.size} bytes")
    version, number = _KEY.unpack_from(key)
    if version < _VERSION:
        raise InvalidRecord(f"control record key has version {version}, the least is {_VERSION}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def build_marker_batch(
    control_type: ControlType,
    *,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that commits or aborts a producer's transaction."""
    if control_type not in _MARKERS:
        raise ValueError(f"{control_type.name} does not end a transaction")
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=control_key(control_type),
        value=_MARKER_VALUE.pack(_VERSION, coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_marker(batch: ByteView, header: BatchHeader | None = None) -> EndTxnMarker | None:
    """The marker in a control batch; None if it has none (another type, or compacted away)."""
    header = known_header(batch, header)
    if not header.is_control or header.records_count == 0:
        return None
    record = decode_records(batch, header)[0]
    control_type = read_control_type(record.key)
    if control_type not in _MARKERS:
        return None
    return read_marker_value(control_type, record.value)


def read_marker_value(control_type: ControlType, value: bytes | None) -> EndTxnMarker:
    if value is None or len(value) < _MARKER_VALUE.size:
        raise InvalidRecord(
            f"{control_type.name} marker value {value!r} is shorter than {_MARKER_VALUE.size} bytes"
        )
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < _VERSION:
        raise InvalidRecord(f"{control_type.name} marker has version {version}, the least is 0")
    return EndTxnMarker(control_type, CoordinatorEpoch(coordinator_epoch))
