"""Cold messages through kio: values that kio turns into Python's, and structs of any version."""

from __future__ import annotations

import datetime
import struct
import uuid
from typing import Any

import pytest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from protocol_kio import joined

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_TIMESTAMP, ZERO_UUID, TimestampMs, Uuid
from tidelog.wire.protocol import kio_values
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import parse_response_header
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.protocol.responses import decode_response, encode_response, response_structs


@pytest.mark.parametrize("duration_ms", [0, 1, 999, 1000, 30_000, 2**31 - 1, -1])
def test_durations(duration_ms: int) -> None:
    assert kio_values.milliseconds(kio_values.duration_i32(duration_ms)) == duration_ms
    assert kio_values.milliseconds(kio_values.duration_i64(duration_ms)) == duration_ms


@pytest.mark.parametrize("timestamp", [-1, 0, 1, 999, 1_700_000_000_123, 2**41 + 7])
def test_timestamps(timestamp: int) -> None:
    moment = kio_values.moment(TimestampMs(timestamp))
    assert (moment is None) == (timestamp == NO_TIMESTAMP)
    assert kio_values.timestamp_ms(moment) == timestamp


def test_a_moment_is_in_utc() -> None:
    assert kio_values.moment(TimestampMs(1500)) == datetime.datetime(
        1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC
    )


@pytest.mark.parametrize("started_at", [-1, 0, 1_700_000_000_123])
def test_a_moment_in_a_field_that_cannot_be_null(started_at: int) -> None:
    structs = response_structs(ApiKey.DESCRIBE_TRANSACTIONS, 0)
    state = structs.struct(
        "TransactionState",
        error_code=kio_values.kio_error(ErrorCode.NONE),
        transactional_id="t",
        transaction_state="Empty",
        transaction_timeout=kio_values.duration_i32(1),
        transaction_start_time=kio_values.exact_moment(TimestampMs(started_at)),
        producer_id=1,
        producer_epoch=0,
        topics=(),
    )
    answer = structs.response(throttle_time=kio_values.duration_i32(0), transaction_states=(state,))
    data = joined(encode_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, 1, answer).segments)
    assert struct.pack(">iq", 1, started_at) in data


def test_uuids() -> None:
    assert kio_values.to_kio_uuid(ZERO_UUID) is None
    assert kio_values.from_kio_uuid(None) == ZERO_UUID
    ours = Uuid(bytes(range(16)))
    theirs = kio_values.to_kio_uuid(ours)
    assert theirs == uuid.UUID(bytes=bytes(range(16)))
    assert kio_values.from_kio_uuid(theirs) == ours


def test_a_field_that_a_version_lacks() -> None:
    old = decode_request(ApiKey.METADATA, 1, memoryview(b"\xff\xff\xff\xff"))
    assert kio_values.field_of(old, "allow_auto_topic_creation", True) is True
    new = decode_request(ApiKey.METADATA, 4, memoryview(b"\xff\xff\xff\xff\0"))
    assert kio_values.field_of(new, "allow_auto_topic_creation", True) is False


def test_our_error_codes_are_encoded_by_kio() -> None:
    answer = DeleteGroupsResponse(
        throttle_time=kio_values.duration_i32(250),
        results=(
            DeletableGroupResult(
                group_id="g",  # type: ignore[arg-type]
                error_code=kio_values.kio_error(ErrorCode.NON_EMPTY_GROUP),
            ),
        ),
    )
    frame = encode_response(ApiKey.DELETE_GROUPS, 2, 7, answer)
    data = joined(frame.segments)
    assert data == bytes.fromhex("00000010 00000007 00 000000fa 02 0267 0044 00 00")
    assert frame.size == len(data)
    correlation_id, body = parse_response_header(APIS[ApiKey.DELETE_GROUPS], 2, data[4:])
    again = decode_response(ApiKey.DELETE_GROUPS, 2, body)
    assert correlation_id == 7
    assert encode_response(ApiKey.DELETE_GROUPS, 2, 7, again).segments == frame.segments


@pytest.mark.parametrize(("key", "version"), [(ApiKey.DELETE_GROUPS, 1), (ApiKey.METADATA, 2)])
def test_an_answer_to_another_question_is_our_mistake(key: ApiKey, version: int) -> None:
    answer = DeleteGroupsResponse(throttle_time=kio_values.duration_i32(0), results=())
    with pytest.raises(ValueError, match="does not answer"):
        encode_response(key, version, 7, answer)


@pytest.mark.parametrize("version", range(0, 7))
def test_structs_leave_out_what_a_version_lacks(version: int) -> None:
    """FindCoordinator changed its whole answer in version 4 and got a message in 1."""
    structs = response_structs(ApiKey.FIND_COORDINATOR, version)
    place = {
        "error_code": kio_values.kio_error(ErrorCode.NONE),
        "error_message": None,
        "node_id": 1,
        "host": "h",
        "port": 9092,
    }
    coordinators = (structs.struct("Coordinator", key="g", **place),) if version >= 4 else ()
    answer = structs.response(
        throttle_time=kio_values.duration_i32(0), coordinators=coordinators, **place
    )
    frame = encode_response(ApiKey.FIND_COORDINATOR, version, 1, answer)
    api = APIS[ApiKey.FIND_COORDINATOR]
    _, body = parse_response_header(api, version, joined(frame.segments)[4:])
    read: Any = decode_response(ApiKey.FIND_COORDINATOR, version, body)
    found = read.coordinators[0] if version >= 4 else read
    assert (found.node_id, found.host, found.port) == (1, "h", 9092)
    assert hasattr(read, "throttle_time") == (version >= 1)
