"""Produce and Fetch requests read by hand: what kio wrote comes out, whatever is in it."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_kio import from_kio, to_kio

from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.hot_requests.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
)
from tidelog.wire.protocol.hot_requests.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_request,
)
from tidelog.wire.protocol.kio_codec import kio_bytes, kio_decoder
from tidelog.wire.protocol.primitives import MAX_ELEMENTS, uvarint
from tidelog.wire.protocol.requests import decode_request

i8 = st.integers(-128, 127)
i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
few = st.one_of(st.integers(-1, 3), i32)
text = st.one_of(st.text(max_size=6), st.just("x" * 126), st.just("y" * 200))
maybe_text = st.one_of(st.none(), text)
ids = st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16).map(Uuid))
blobs = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=126, max_size=140))


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=3)


produce_requests = st.builds(
    ProduceRequest,
    maybe_text,
    i16,
    i32,
    lists(st.builds(ProduceTopic, text, ids, lists(st.builds(ProducePartition, i32, blobs)))),
)
fetch_partitions = st.builds(
    FetchPartition,
    i32,
    i64,
    i32,
    i32,
    i32,
    i64,
    ids,
    st.one_of(i64, st.just(2**63 - 1)),
)
fetch_requests = st.builds(
    FetchRequest,
    i32,
    i32,
    i32,
    i8,
    lists(st.builds(FetchTopic, text, ids, lists(fetch_partitions))),
    lists(st.builds(ForgottenTopic, text, ids, st.lists(i32, max_size=3).map(tuple))),
    i32,
    i32,
    text,
    few,
    few,
    maybe_text,
)
examples = settings(derandomize=True, max_examples=60, deadline=None, database=None)


def as_kio_wrote(ours: Any, key: int, version: int) -> tuple[memoryview, Any]:
    """kio's bytes, and what of ours this version can carry."""
    message_type = APIS[key].load_request_type(version)
    body = memoryview(kio_bytes(to_kio(ours, message_type)))
    return body, from_kio(kio_decoder(message_type)(body), type(ours))


@pytest.mark.parametrize("version", range(3, 14))
@examples
@given(ours=produce_requests)
def test_produce(version: int, ours: ProduceRequest) -> None:
    body, expected = as_kio_wrote(ours, ApiKey.PRODUCE, version)
    decoded = decode_produce_request(version, body)
    assert decoded == expected
    for topic in decoded.topics:
        for partition in topic.partitions:
            if partition.records is not None:
                assert partition.records.obj is body.obj, "records were copied"


@pytest.mark.parametrize("version", range(4, 19))
@examples
@given(ours=fetch_requests)
def test_fetch(version: int, ours: FetchRequest) -> None:
    body, expected = as_kio_wrote(ours, ApiKey.FETCH, version)
    assert decode_fetch_request(version, body) == expected


@pytest.mark.parametrize(
    ("key", "version"),
    [(0, version) for version in range(3, 14)] + [(1, version) for version in range(4, 19)],
)
@settings(derandomize=True, max_examples=8, deadline=None, database=None)
@given(data=st.data())
def test_every_cut_is_noticed(key: int, version: int, data: st.DataObject) -> None:
    ours = data.draw(produce_requests if key == ApiKey.PRODUCE else fetch_requests)
    body, _ = as_kio_wrote(ours, key, version)
    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_request(key, version, body[:length])


NO_TXN, ACKS_AND_TIMEOUT = b"\0", struct.pack(">hi", -1, 1000)
START = NO_TXN + ACKS_AND_TIMEOUT
PARTITION = struct.pack(">i", 7) + b"\3ab"


@pytest.mark.parametrize(
    "body",
    [
        START + b"\2\2t\2" + PARTITION + b"\0\0\0",
        START + b"\2\2t\2" + PARTITION + b"\1\x63\2??" + b"\0\0",
        START + b"\2\2t\2" + PARTITION + b"\0" + b"\2\5\0\x06\1?" + b"\0",
        START + b"\2\2t\2" + PARTITION + b"\0\0" + b"\1\x80\1\1?",
        START + b"\2\2t\2" + PARTITION + b"\0\0\0" + b"bytes behind",
    ],
)
def test_unknown_tags_of_a_produce_request_are_skipped(body: bytes) -> None:
    (topic,) = decode_produce_request(9, memoryview(body)).topics
    ((partition, records),) = topic.partitions
    assert (topic.name, partition) == ("t", 7)
    assert records is not None and bytes(records) == b"ab"


def fetch_body(partition_tags: bytes, topic_tags: bytes, tags: bytes) -> memoryview:
    limits = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1)
    partition = struct.pack(">iiqiqi", 3, -1, 17, -1, -1, 4096)
    topics = b"\2" + b"T" * 16 + b"\2" + partition + partition_tags + topic_tags
    return memoryview(limits + topics + b"\1" + b"\1" + tags)


def test_unknown_tags_of_a_fetch_request_are_skipped_and_known_ones_read() -> None:
    directory, high_watermark = b"D" * 16, struct.pack(">q", 5)
    partition_tags = b"\3" + b"\0\x10" + directory + b"\1\x08" + high_watermark + b"\x4d\2??"
    state = struct.pack(">iq", 2, 99) + b"\1\7\1?"
    tags = b"\3" + b"\0\4abc"[:2] + b"\4abc" + b"\1" + bytes([len(state)]) + state + b"\x4d\0"
    request = decode_fetch_request(18, fetch_body(partition_tags, b"\1\7\1?", tags))
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (partition.replica_directory_id, partition.high_watermark) == (Uuid(directory), 5)
    assert (request.cluster_id, request.replica_id, request.replica_epoch) == ("abc", 2, 99)


def test_tags_of_later_versions_are_unknown_to_earlier_ones() -> None:
    partition_tags = b"\2" + b"\0\x01?" + b"\1\1?"
    tags = b"\1" + b"\1\1?"
    body = b"\xff\xff\xff\xff" + bytes(fetch_body(partition_tags, b"\0", tags))
    request = decode_fetch_request(14, memoryview(body))
    assert request.topics[0].partitions[0] == FetchPartition(3, 17, 4096)  # type: ignore[arg-type]
    assert request.replica_id == -1


HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**35 - 1]


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [(0, 9, START + uvarint(huge)) for huge in HUGE]
    + [(0, 9, START + b"\2\2t" + uvarint(huge)) for huge in HUGE]
    + [(0, 9, START + b"\2\2t\2\0\0\0\1" + uvarint(huge)) for huge in HUGE]
    + [(0, 9, uvarint(huge)) for huge in HUGE]
    + [(0, 9, START + b"\0"), (0, 9, START + b"\2\0\1\0\0"), (0, 9, START + b"\2\2t\0")]
    + [(0, 3, struct.pack(">hhii", -1, -1, 0, count)) for count in (-1, -2, 1, 2**31 - 1)]
    + [(0, 3, struct.pack(">hhii", -1, -1, 0, 1) + struct.pack(">hi", -1, 0))]
    + [(0, 3, struct.pack(">hhii", -1, -1, 0, 1) + b"\0\1t" + struct.pack(">i", 2**31 - 1))]
    + [(0, 3, struct.pack(">hhii", -1, -1, 0, 1) + b"\0\1\xff" + struct.pack(">i", 0))]
    + [(1, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, count)) for count in (-1, 2**31 - 1)]
    + [(1, 13, struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + uvarint(huge)) for huge in HUGE]
    + [(1, 13, struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + b"\1" + uvarint(2**31))],
)
def test_counts_and_lengths_that_lie(key: int, version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_request(key, version, memoryview(body))


def test_a_frame_full_of_tiny_entries_is_refused() -> None:
    """It would fit into 100 MiB of bytes, but not into memory."""
    count = MAX_ELEMENTS + 1
    entries = START + b"\2\2t" + uvarint(count + 1) + b"\0\0\0\1\0\0" * count + b"\0\0"
    with pytest.raises(MalformedRequest, match=f"more than {MAX_ELEMENTS}"):
        decode_produce_request(9, memoryview(entries))
    half = b"\2t" + uvarint(count // 2 + 1) + b"\0\0\0\1\0\0" * (count // 2) + b"\0"
    with pytest.raises(MalformedRequest, match=f"more than {MAX_ELEMENTS}"):
        decode_produce_request(9, memoryview(START + b"\3" + half + half + b"\0"))
    tags = START + b"\2\2t\2" + PARTITION + uvarint(count) + b"\x63\0" * count + b"\0\0"
    with pytest.raises(MalformedRequest, match=f"more than {MAX_ELEMENTS}"):
        decode_produce_request(9, memoryview(tags))
