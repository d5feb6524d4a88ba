"""The walk before kio: hostile counts never reach it, unknown tags are taken out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from protocol_golden import request_frames

from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import RequestFrame, parse_request
from tidelog.wire.protocol.kio_codec import kio_bytes, kio_decoder
from tidelog.wire.protocol.primitives import MAX_ELEMENTS, uvarint
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.protocol.shapes import tidy

DELETE_GROUPS, METADATA, DESCRIBE_LOG_DIRS = 42, 3, 35


def decode(key: int, version: int, body: bytes) -> Any:
    return decode_request(key, version, memoryview(body))


HOSTILE = [2**31 - 1, 2**31, 2**32 - 1, 2**35 - 1, 2**32, 10**8]


@pytest.mark.parametrize("count", HOSTILE)
def test_a_hostile_count_does_not_reach_kio(count: int) -> None:
    """kio would take memory for that many entries, and the process would end."""
    with pytest.raises(MalformedRequest, match="cannot fit"):
        decode(DELETE_GROUPS, 2, uvarint(count) + b"\2a\0")


@pytest.mark.parametrize("count", [2**31 - 1, 10**8, 5])
def test_a_hostile_count_of_an_old_version(count: int) -> None:
    with pytest.raises(MalformedRequest, match="cannot fit"):
        decode(DELETE_GROUPS, 0, struct.pack(">i", count) + b"\0\1a")


def test_a_hostile_count_of_numbers() -> None:
    """DescribeLogDirs has arrays of plain numbers, for which the walk does not loop."""
    with pytest.raises(MalformedRequest, match="cannot fit"):
        decode(DESCRIBE_LOG_DIRS, 4, b"\2\2t" + uvarint(2**30) + b"\0\0\0\1\0\0")


def test_many_tiny_entries_are_refused() -> None:
    fits = uvarint(MAX_ELEMENTS + 1) + b"\1" * MAX_ELEMENTS + b"\0"
    assert len(decode(DELETE_GROUPS, 2, fits).groups_names) == MAX_ELEMENTS
    with pytest.raises(MalformedRequest, match=f"more than {MAX_ELEMENTS}"):
        decode(DELETE_GROUPS, 2, uvarint(MAX_ELEMENTS + 2) + b"\1" * (MAX_ELEMENTS + 1) + b"\0")


def test_the_entries_of_all_arrays_count_together() -> None:
    half = MAX_ELEMENTS // 2
    topic = b"\2t" + uvarint(half + 1) + bytes(4 * half) + b"\0"
    with pytest.raises(MalformedRequest, match=f"more than {MAX_ELEMENTS}"):
        decode(DESCRIBE_LOG_DIRS, 4, b"\3" + topic + topic + b"\0")
    assert len(decode(DESCRIBE_LOG_DIRS, 4, b"\2" + topic + b"\0").topics[0].partitions) == half


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (2, b"\0\0"),
        (2, b"\2\0\0"),
        (0, struct.pack(">i", -1)),
        (0, struct.pack(">i", -2)),
        (0, struct.pack(">ih", 1, -1)),
    ],
)
def test_null_where_a_value_must_be(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="null"):
        decode(DELETE_GROUPS, version, body)


def test_any_negative_length_is_null() -> None:
    """As Kafka reads it (its answer is in golden/errors, framing/array-count-minus-2)."""
    for count in (-1, -2, -(2**31)):
        assert decode(METADATA, 1, struct.pack(">i", count)).topics is None
    init = struct.pack(">hi", -7, 1000)
    assert decode(22, 0, init).transactional_id is None


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (2, b""),
        (2, b"\2\2a"),
        (2, b"\2\x05a\0"),
        (2, b"\2\2\xff\0"),
        (2, b"\xff\xff\xff\xff\xff\xff\1"),
        (2, b"\2\2a\1"),
        (2, b"\2\2a\1\x63\5abc"),
        (2, b"\2\2a\xff\xff\xff\xff\x0f"),
        (0, b"\0\0"),
        (0, struct.pack(">ih", 1, 5) + b"abc"),
    ],
)
def test_cut_and_senseless_bodies(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode(DELETE_GROUPS, version, body)


def test_a_byte_that_is_no_bool_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="boolean"):
        decode(METADATA, 4, struct.pack(">iB", -1, 5))


def test_a_body_without_oddities_is_not_copied() -> None:
    view = memoryview(b"\2\2a\0behind")
    assert tidy(view, load_request_schema(DELETE_GROUPS, 2)) is view


tag_numbers = st.integers(50, 20_000)
junk_tags = st.lists(st.tuples(tag_numbers, st.binary(max_size=5)), max_size=3)
names = st.lists(st.text(max_size=5), max_size=4)
examples = settings(derandomize=True, max_examples=150, deadline=None, database=None)


def tag_buffer(tags: list[tuple[int, bytes]]) -> bytes:
    values = [uvarint(tag) + uvarint(len(value)) + value for tag, value in tags]
    return uvarint(len(values)) + b"".join(values)


@examples
@given(names, st.data())
def test_unknown_tags_at_every_level_are_skipped(topics: list[str], data: st.DataObject) -> None:
    body = uvarint(len(topics) + 1)
    for name in topics:
        encoded = name.encode()
        body += bytes(16) + uvarint(len(encoded) + 1) + encoded + tag_buffer(data.draw(junk_tags))
    body += b"\1\0" + tag_buffer(data.draw(junk_tags))
    assert decode(METADATA, 12, body) == MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=name) for name in topics),  # type: ignore[arg-type]
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )


@examples
@given(junk_tags, junk_tags, st.integers(0, 2**31 - 1))
def test_an_unknown_tag_inside_a_known_one(
    inner: list[tuple[int, bytes]], outer: list[tuple[int, bytes]], replica_id: int
) -> None:
    """The size of the known one shrinks with it. Fetch has such a field: the replica's state."""
    state = struct.pack(">iq", replica_id, 9) + tag_buffer(inner)
    limits = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1)
    body = limits + b"\1\1\1" + tag_buffer([(1, state), *outer])
    decoded: Any = kio_decoder(load_request_schema(1, 17))(memoryview(body))
    assert (decoded.replica_state.replica_id, decoded.replica_state.replica_epoch) == (
        replica_id,
        9,
    )
    clean = limits + b"\1\1\1" + tag_buffer([(1, state[:12] + b"\0")])
    assert kio_bytes(decoded) == clean
    assert tidy(memoryview(body), load_request_schema(1, 17)) == clean


def test_a_known_tag_must_fill_its_size() -> None:
    limits = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1)
    state = struct.pack(">iq", 5, 9) + b"\0"
    for size in (len(state) - 1, len(state) + 1):
        body = limits + b"\1\1\1" + b"\1\1" + bytes([size]) + state + b"????"
        with pytest.raises(MalformedRequest, match="does not fill"):
            kio_decoder(load_request_schema(1, 17))(memoryview(body))


def test_a_nullable_struct(  # KIP-893
) -> None:
    """DescribeTopicPartitions has one: the cursor."""
    absent = decode(75, 0, b"\2\2t\0" + struct.pack(">i", 10) + b"\xff" + b"\0")
    assert absent.cursor is None
    cursor = b"\1" + b"\2c" + struct.pack(">i", 4) + b"\1\x63\1?"
    there = decode(75, 0, b"\2\2t\0" + struct.pack(">i", 10) + cursor + b"\0")
    assert (there.cursor.topic_name, there.cursor.partition_index) == ("c", 4)
    with pytest.raises(MalformedRequest):
        decode(75, 0, b"\2\2t\0" + struct.pack(">i", 10) + cursor[:5])


def test_every_message_of_the_table_has_a_shape() -> None:
    for api in APIS.values():
        for version in range(api.min_served, api.max_version + 1):
            for message_type in (api.load_request_type(version), api.load_response_type(version)):
                if fields(message_type):  # ApiVersions v0 asks nothing
                    with pytest.raises(MalformedRequest):
                        kio_decoder(message_type)(memoryview(b"\xff"))


def bodies() -> Iterator[RequestFrame]:
    for frame in request_frames():
        try:
            parsed = parse_request(frame)
        except MalformedRequest:
            continue
        if isinstance(parsed, RequestFrame) and len(parsed.body) < 200:
            yield parsed


def test_hostile_numbers_anywhere_in_real_requests() -> None:
    """Every byte in turn becomes a huge count, in both spellings."""
    refused = 0
    seen: set[tuple[int, int]] = set()
    for parsed in bodies():
        key, version, body = parsed.api.key, parsed.version, bytes(parsed.body)
        if (key, version) in seen:
            continue
        seen.add((key, version))
        for position in range(len(body)):
            for huge in (b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x7f"):
                hostile = body[:position] + huge + body[position:]
                try:
                    decode(key, version, hostile)
                except MalformedRequest:
                    refused += 1
    assert len(seen) > 100 and refused > 1000
