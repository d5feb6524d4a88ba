"""Answers of leaders are, byte for byte, messages of the contract; nonsense is refused."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.ports import ByteView
from tidelog.replication.fetch_answer import AnsweredPartition, FetchAnswer
from tidelog.v1.common_pb2 import EpochEnd
from tidelog.v1.replication_pb2 import FetchedPartition, FetchResponse

_OFFSETS = st.integers(0, 2**63 - 1)


@st.composite
def _partitions(draw: st.DrawFn) -> FetchedPartition:
    one = FetchedPartition(
        topic_id=draw(st.binary(min_size=16, max_size=16)),
        partition=draw(st.integers(0, 2**31 - 1)),
        error_code=draw(st.integers(-1, 130)),
        high_watermark=draw(_OFFSETS),
        records=draw(st.binary(max_size=300)),
        records_remaining=draw(st.integers(0, 2**40)),
    )
    if draw(st.booleans()):
        one.diverging_epoch.CopyFrom(EpochEnd(epoch=draw(st.integers(0, 9)), end_offset=7))
    if draw(st.booleans()):
        one.min_clean_point = draw(_OFFSETS)
    return one


_RESPONSES = st.builds(
    FetchResponse,
    correlation_id=st.integers(0, 2**64 - 1),
    error_code=st.integers(-1, 130),
    partitions=st.lists(_partitions(), max_size=4),
    has_more=st.booleans(),
)


def _answer_of(response: FetchResponse) -> FetchAnswer:
    """Built by hand, as a leader does."""
    partitions = []
    for one in response.partitions:
        head, records = FetchedPartition(), one.records
        head.CopyFrom(one)
        head.ClearField("records")
        view: ByteView = memoryview(records) if len(records) % 2 else records
        partitions.append(AnsweredPartition(head, view))
    return FetchAnswer(
        response.correlation_id, response.error_code, partitions, has_more=response.has_more
    )


@settings(derandomize=True, max_examples=300)
@given(_RESPONSES)
def test_the_generated_class_reads_what_is_written_here(response: FetchResponse) -> None:
    assert FetchResponse.FromString(_answer_of(response).SerializeToString()) == response


@settings(derandomize=True, max_examples=300)
@given(_RESPONSES)
def test_what_the_generated_class_writes_is_read_here(response: FetchResponse) -> None:
    read = FetchAnswer.FromString(response.SerializeToString())
    assert read == _answer_of(response)
    assert all(not one.head.records for one in read.partitions)


def test_records_are_not_copied_when_an_answer_is_read() -> None:
    data = FetchResponse(partitions=[FetchedPartition(records=b"records")]).SerializeToString()
    [one] = FetchAnswer.FromString(data).partitions
    assert isinstance(one.records, memoryview)
    assert one.records.obj is data


def test_fields_that_a_later_version_may_have_are_skipped() -> None:
    newer = FetchResponse(correlation_id=5).SerializeToString()
    newer += b"\xa0\x06\x07" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x02hi"
    assert FetchAnswer.FromString(newer) == FetchAnswer(correlation_id=5)


@settings(derandomize=True, max_examples=500)
@given(st.one_of(st.binary(max_size=60), _RESPONSES.map(lambda one: one.SerializeToString()[:-1])))
def test_what_protobuf_refuses_is_refused_here(data: bytes) -> None:
    try:
        FetchAnswer.FromString(data)
    except DecodeError:
        return
    FetchResponse.FromString(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x1a\x05\x0a",  # a partition longer than the message
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a length that does not end
        b"\x00\x00",  # no field has the number 0
        b"\x0b",  # a kind of field that the contracts do not use
        b"\x1a\x02\x52\x09",  # records longer than their partition
    ],
)
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(DecodeError):
        FetchAnswer.FromString(data)
