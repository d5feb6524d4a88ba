"""Arrow rows become the batches that a producer in Java would make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.errors import WrongRows
from tidelog.pipeline.partitioner import murmur2, murmur2_of_all, partitions_of_keys
from tidelog.wire.batch import Codec, check_batch
from tidelog.wire.records import iterate

pa = pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-spark installs it")

NOW_MS = 1_700_000_000_123
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
SOME_BYTES = st.none() | st.binary(max_size=40)
ROW = st.tuples(
    SOME_BYTES,
    SOME_BYTES,
    st.none() | st.lists(st.tuples(st.text(max_size=5), SOME_BYTES), max_size=3),
    st.none() | st.integers(0, 4_000_000_000_000),
)


def arrow(rows: list[Any], **columns: Any) -> Any:
    keys, values, headers, times = zip(*rows, strict=True)
    pairs = [
        None if one is None else [{"key": key, "value": value} for key, value in one]
        for one in headers
    ]
    micros = [None if time is None else time * 1000 + 7 for time in times]
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(pairs, HEADERS),
            "timestamp": pa.array(micros, pa.timestamp("us", tz="UTC")),
            **columns,
        }
    )


def built(rows: Any, codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    from tidelog.pipeline.outgoing_rows import build_batch

    who = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5, "is_transactional": False}
    return build_batch(rows, codec=codec, **{**who, **fields})


@given(st.lists(ROW, min_size=1, max_size=30))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_a_batch_holds_what_the_rows_held(rows: list[Any]) -> None:
    from tidelog.pipeline.outgoing_rows import rows_of

    batch = built(rows_of(arrow(rows), NOW_MS))
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    found = [(one.key, one.value, one.headers, one.timestamp) for one in iterate(batch)]
    assert found == [
        (key, value, tuple(headers or ()), NOW_MS if time is None else time)
        for key, value, headers, time in rows
    ]


@given(st.lists(ROW, min_size=2, max_size=30), st.data())
@settings(derandomize=True, max_examples=60, deadline=None)
def test_rows_can_be_picked_cut_and_joined(rows: list[Any], data: Any) -> None:
    from tidelog.pipeline.outgoing_rows import joined, rows_of

    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(1, len(rows) - 1))
    taken = rows_of(arrow(rows), NOW_MS).take(np.array(order, np.int64))
    whole = joined([taken.between(0, cut), taken.between(cut, len(rows))])
    assert [one.value for one in iterate(built(whole))] == [rows[index][1] for index in order]
    assert len(built(whole)) <= 61 + int(whole.sizes.sum())


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    from tidelog.pipeline.outgoing_rows import rows_of

    rows = [(b"k", b"v" * 500, None, 5)] * 100
    batch = built(rows_of(arrow(rows), NOW_MS), codec, is_transactional=True)
    header = check_batch(batch)
    assert header.codec_id == codec and header.is_transactional
    assert [one.value for one in iterate(batch)] == [b"v" * 500] * 100


def test_strings_are_bytes_and_columns_may_be_missing() -> None:
    from tidelog.pipeline.outgoing_rows import rows_of

    batch = pa.record_batch({"value": pa.array(["ä", None], pa.string())})
    found = [(one.key, one.value, one.timestamp) for one in iterate(built(rows_of(batch, NOW_MS)))]
    assert found == [(None, "ä".encode(), NOW_MS), (None, None, NOW_MS)]


def test_a_header_without_a_key_is_told() -> None:
    from tidelog.pipeline.outgoing_rows import rows_of

    lists = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    batch = pa.record_batch({"value": pa.array([b"v"], pa.binary()), "headers": lists})
    with pytest.raises(WrongRows, match="a header has no key"):
        rows_of(batch, NOW_MS)


# What org.apache.kafka.common.utils.Utils.murmur2 gives, by Kafka's own UtilsTest.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829),
     (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
     (b"abc", 479470107)],
)  # fmt: skip
def test_the_hash_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32


@given(st.lists(st.binary(max_size=60) | st.binary(min_size=100, max_size=110), max_size=60))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_all_at_once_is_one_by_one(keys: list[bytes]) -> None:
    lengths = np.array([len(key) for key in keys], np.int64)
    starts = np.cumsum(lengths) - lengths
    blob = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
    assert murmur2_of_all(blob, starts, lengths).tolist() == [murmur2(key) for key in keys]
    wanted = [(murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]
    assert partitions_of_keys(blob, starts, lengths, 7).tolist() == wanted


def routed(batch: Any, topic: str | None = "t", first: int = 0) -> dict[Any, list[bytes | None]]:
    from tidelog.pipeline.routing import Router

    router = Router(topic, lambda name: 4, first)
    return {place: rows.values.to_pylist() for place, rows in router.route(batch, NOW_MS)}


def test_rows_go_where_they_say_then_by_key_then_together() -> None:
    keys = pa.array([b"21", None, b"21", None, b"x"], pa.binary())
    partitions = pa.array([None, None, 3, None, 3], pa.int32())
    values = pa.array([b"0", b"1", b"2", b"3", b"4"], pa.binary())
    batch = pa.record_batch({"key": keys, "value": values, "partition": partitions})
    by_key = (-973932308 & 0x7FFFFFFF) % 4
    assert by_key == 0
    assert routed(batch, first=6) == {
        ("t", 0): [b"0"], ("t", 2): [b"1", b"3"], ("t", 3): [b"2", b"4"],
    }  # fmt: skip


def test_rows_of_several_topics() -> None:
    topics = pa.array(["a", "b", "a"], pa.string())
    batch = pa.record_batch({"value": pa.array([b"0", b"1", b"2"], pa.binary()), "topic": topics})
    assert routed(batch, None) == {("a", 0): [b"0", b"2"], ("b", 0): [b"1"]}
    assert routed(batch, "c") == {("c", 0): [b"0", b"1", b"2"]}
    without = batch.set_column(1, "topic", pa.array(["a", None, "a"], pa.string()))
    with pytest.raises(WrongRows, match="a row has no topic"):
        routed(without, None)


def test_a_partition_that_is_not_there_is_named() -> None:
    values = pa.array([b"0"], pa.binary())
    batch = pa.record_batch({"value": values, "partition": pa.array([4], pa.int32())})
    with pytest.raises(
        WrongRows, match="partition 4 of topic 't', which has the partitions 0 to 3"
    ):
        routed(batch)


def test_rows_without_a_key_move_on_when_a_batch_goes_out() -> None:
    from tidelog.pipeline.routing import Router

    batch = pa.record_batch({"value": pa.array([b"0"], pa.binary())})
    router = Router("t", lambda name: 2, 0)
    seen = []
    for _ in range(3):
        [(place, _rows)] = router.route(batch, NOW_MS)
        seen.append(place[1])
        router.advance(place)
    assert seen == [0, 1, 0]


def test_rows_wait_until_a_batch_is_full_or_the_time_is_over() -> None:
    from tidelog.pipeline.outgoing_rows import rows_of
    from tidelog.pipeline.routing import Gathering

    rows = rows_of(pa.record_batch({"value": pa.array([b"x" * 67] * 10, pa.binary())}), NOW_MS)
    assert rows.sizes.tolist() == [100] * 10  # 31 for the record, one each for key and headers
    gathering = Gathering(461, 50, 10_000)
    gathering.add(("t", 0), rows.between(0, 3), 0)
    assert list(gathering.full(49)) == []
    gathering.add(("t", 0), rows, 49)
    assert [len(cut) for _, cut in gathering.full(49)] == [4, 4, 4]
    assert list(gathering.full(98)) == []
    assert [len(cut) for _, cut in gathering.full(99)] == [1]
    gathering.add(("t", 0), rows, 100)
    assert [len(cut) for _, cut in gathering.rest()] == [4, 4, 2]
    with pytest.raises(WrongRows, match=r"takes 161 bytes, and the most is 160"):
        Gathering(100, 50, 160).add(("t", 0), rows, 0)
