"""Control records: transaction markers there and back, and what is not one."""

from __future__ import annotations

import pytest

from tidelog.wire.batch import check_batch
from tidelog.wire.control import (
    ControlType,
    EndTxnMarker,
    build_marker_batch,
    control_key,
    read_control_type,
    read_marker,
)
from tidelog.wire.errors import InvalidRecord
from tidelog.wire.records import Record, build_batch, decode_records, emptied_batch


def marker_batch(control_type: ControlType) -> bytes:
    return build_marker_batch(
        control_type,
        coordinator_epoch=5,
        producer_id=4000,
        producer_epoch=2,
        timestamp=1_700_000_000_000,
        base_offset=17,
        leader_epoch=1,
    )


@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_there_and_back(control_type: ControlType) -> None:
    batch = marker_batch(control_type)
    header = check_batch(batch)
    marker = read_marker(batch, header)
    assert marker == EndTxnMarker(control_type, 5)  # type: ignore[arg-type]
    assert marker.is_commit is (control_type is ControlType.COMMIT)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, -1)
    assert (header.base_offset, header.leader_epoch, header.records_count) == (17, 1, 1)
    (record,) = decode_records(batch)
    assert record.key == bytes([0, 0, 0, control_type])
    assert record.value == bytes([0, 0, 0, 0, 0, 5])


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch([Record(0, 1, key, value)], is_control=True)


def test_what_is_not_a_marker_reads_as_none() -> None:
    value = bytes(6)
    assert read_marker(build_batch([Record(0, 1, control_key(ControlType.COMMIT), value)])) is None
    assert read_marker(control_batch(control_key(ControlType.LEADER_CHANGE), value)) is None
    assert read_marker(control_batch(bytes([0, 0, 0, 99]), value)) is None
    assert read_marker(emptied_batch(check_batch(marker_batch(ControlType.ABORT)))) is None


def test_newer_versions_may_be_longer() -> None:
    batch = control_batch(bytes([0, 1, 0, 1, 7]), bytes([0, 1, 0, 0, 0, 9, 8]))
    assert read_marker(batch) == EndTxnMarker(ControlType.COMMIT, 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, bytes(6), "shorter than 4"),
        (b"\0\0\0", bytes(6), "shorter than 4"),
        (b"\xff\xff\0\1", bytes(6), "version -1"),
        (b"\0\0\0\1", None, "shorter than 6"),
        (b"\0\0\0\0", bytes(5), "shorter than 6"),
        (b"\0\0\0\0", b"\xff\xff\0\0\0\0", "version -1"),
    ],
)
def test_a_malformed_marker_is_refused(
    key: bytes | None, value: bytes | None, message: str
) -> None:
    with pytest.raises(InvalidRecord, match=message):
        read_marker(control_batch(key, value))


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="KRAFT_VOTERS"):
        marker_batch(ControlType.KRAFT_VOTERS)


def test_all_types_are_known_by_their_numbers() -> None:
    assert [read_control_type(bytes([0, 0, 0, n])) for n in range(8)] == [*ControlType, None]
