"""The four hand-written responses are kio's bytes, in every version and for any content."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_kio import FilledSlice, joined, to_kio

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, NodeId, TopicId, Uuid
from tidelog.wire.protocol.apis import APIS, ApiKey, ApiVersionRange
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.hot_responses.api_versions import (
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
    encode_api_versions,
)
from tidelog.wire.protocol.hot_responses.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    SnapshotId,
    encode_fetch,
)
from tidelog.wire.protocol.hot_responses.leaders import CurrentLeader, NodeEndpoint
from tidelog.wire.protocol.hot_responses.metadata import (
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    encode_metadata,
)
from tidelog.wire.protocol.hot_responses.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
    RecordError,
    encode_produce,
)
from tidelog.wire.protocol.kio_codec import kio_bytes

i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
few = st.one_of(st.integers(-1, 3), i32)  # −1 often: it is the default that tags leave out
few_64 = st.one_of(st.integers(-1, 3), i64)
text = st.one_of(st.text(max_size=6), st.just("x" * 126), st.just("y" * 200))
maybe_text = st.one_of(st.none(), text)
codes = st.sampled_from(ErrorCode)
ids = st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16).map(Uuid))
timestamps = st.one_of(st.just(-1), st.integers(0, 2**41))


def lists(of: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=most)


leaders = st.builds(CurrentLeader, few, few)
endpoints = lists(st.builds(NodeEndpoint, i32, text, i32, maybe_text))

api_versions_responses = st.builds(
    ApiVersionsResponse,
    lists(st.builds(ApiVersionRange, i16, i16, i16)),
    codes,
    i32,
    lists(st.builds(SupportedFeature, text, i16, i16)),
    few_64,
    lists(st.builds(FinalizedFeature, text, i16, i16)),
    st.booleans(),
)
produce_partitions = st.one_of(
    st.tuples(i32, codes, i64, timestamps, i64).map(lambda some: ProducePartitionResponse(*some)),  # type: ignore[arg-type]
    st.builds(
        ProducePartitionResponse,
        i32,
        codes,
        i64,
        timestamps,
        i64,
        lists(st.builds(RecordError, i32, maybe_text)),
        maybe_text,
        leaders,
    ),
)
produce_responses = st.builds(
    ProduceResponse,
    lists(st.builds(ProduceTopicResponse, text, ids, lists(produce_partitions))),
    i32,
    endpoints,
)
records = st.one_of(
    st.none(),
    st.just(b""),
    st.binary(max_size=20),
    st.binary(min_size=120, max_size=130).map(lambda data: memoryview(data)),
    st.binary(max_size=20).map(FilledSlice),
)
fetch_partitions = st.builds(
    FetchPartitionResponse,
    i32,
    codes,
    i64,
    i64,
    i64,
    st.one_of(st.none(), lists(st.builds(AbortedTransaction, i64, i64))),
    i32,
    records,
    st.builds(DivergingEpoch, few, few_64),
    leaders,
    st.builds(SnapshotId, few_64, few),
)
fetch_responses = st.builds(
    FetchResponse,
    lists(st.builds(FetchTopicResponse, text, ids, lists(fetch_partitions))),
    codes,
    i32,
    i32,
    endpoints,
)
nodes = st.one_of(lists(i32), st.just([7] * 127))
metadata_partitions = st.builds(MetadataPartition, codes, i32, i32, i32, nodes, nodes, nodes)


def metadata_responses(version: int) -> st.SearchStrategy[Any]:
    names = maybe_text if version >= 12 else text
    topics = st.builds(
        MetadataTopic, codes, names, ids, lists(metadata_partitions), st.booleans(), i32
    )
    return st.builds(MetadataResponse, endpoints, maybe_text, i32, lists(topics), i32, i32, codes)


def filled(message: Any) -> Any:
    """kio takes bytes only, so the slices of a fetch response become their content."""
    if not isinstance(message, FetchResponse):
        return message
    return message._replace(
        topics=[
            topic._replace(partitions=[_with_bytes(one) for one in topic.partitions])
            for topic in message.topics
        ]
    )


def _with_bytes(partition: FetchPartitionResponse) -> FetchPartitionResponse:
    if isinstance(partition.records, FilledSlice):
        return partition._replace(records=partition.records.content)
    return partition


def check(
    key: int, version: int, message: Any, encode: Callable[[int, int, Any], ResponseFrame]
) -> None:
    api = APIS[key]
    theirs = kio_bytes(to_kio(filled(message), api.load_response_type(version)))
    frame = encode(version, 42, message)
    data = joined(frame.segments)
    assert data == joined(frame_response(api, version, 42, theirs).segments)
    assert frame.size == len(data)
    assert struct.unpack_from(">i", data) == (len(data) - 4,)


few_examples = settings(derandomize=True, max_examples=40, deadline=None, database=None)


@pytest.mark.parametrize("version", range(0, 5))
@few_examples
@given(message=api_versions_responses)
def test_api_versions(version: int, message: ApiVersionsResponse) -> None:
    check(ApiKey.API_VERSIONS, version, message, encode_api_versions)


@pytest.mark.parametrize("version", range(3, 14))
@few_examples
@given(message=produce_responses)
def test_produce(version: int, message: ProduceResponse) -> None:
    check(ApiKey.PRODUCE, version, message, encode_produce)


@pytest.mark.parametrize("version", range(4, 19))
@few_examples
@given(message=fetch_responses)
def test_fetch(version: int, message: FetchResponse) -> None:
    check(ApiKey.FETCH, version, message, encode_fetch)


@pytest.mark.parametrize("version", range(0, 14))
@few_examples
@given(data=st.data())
def test_metadata(version: int, data: st.DataObject) -> None:
    message = data.draw(metadata_responses(version))
    check(ApiKey.METADATA, version, message, encode_metadata)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_are_placed_and_not_copied(version: int) -> None:
    stored, slice_ = memoryview(b"r" * 300), FilledSlice(b"s" * 70_000)
    partitions = [
        FetchPartitionResponse(0, ErrorCode.NONE, records=stored),  # type: ignore[arg-type]
        FetchPartitionResponse(1, ErrorCode.NONE, records=slice_),  # type: ignore[arg-type]
    ]
    topic = FetchTopicResponse("t", TopicId(ZERO_UUID), partitions)
    frame = encode_fetch(version, 1, FetchResponse([topic]))
    assert [one for one in frame.segments if one is stored or one is slice_] == [stored, slice_]
    assert frame.size == len(joined(frame.segments))
    others = [len(one) for one in frame.segments if one is not stored and one is not slice_]  # type: ignore[arg-type]
    assert sum(others) < 200


def test_an_answer_without_records_is_two_segments() -> None:
    partition = FetchPartitionResponse(0, ErrorCode.NONE)  # type: ignore[arg-type]
    topic = FetchTopicResponse("t", TopicId(ZERO_UUID), [partition] * 50)
    assert len(encode_fetch(12, 1, FetchResponse([topic])).segments) == 2


@pytest.mark.parametrize("version", [0, 8, 11])
def test_a_topic_without_a_name_needs_a_newer_version(version: int) -> None:
    topic = MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, TopicId(Uuid(b"i" * 16)))
    message = MetadataResponse((), None, NodeId(1), [topic])
    with pytest.raises(ValueError, match=f"v{version} cannot say that topic aWlp"):
        encode_metadata(version, 1, message)


def test_a_string_too_long_for_old_versions_is_our_mistake() -> None:
    partition = ProducePartitionResponse(0, ErrorCode.NONE, error_message="m" * 32768)  # type: ignore[arg-type]
    topic = ProduceTopicResponse("t", TopicId(ZERO_UUID), [partition])
    with pytest.raises(ValueError, match="32767 is the most"):
        encode_produce(8, 1, ProduceResponse([topic]))
    assert encode_produce(9, 1, ProduceResponse([topic])).size > 32768
