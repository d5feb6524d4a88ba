"""Batches to Arrow, against the records that the slow decoder finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.arrow_records import SCHEMA, SCHEMA_WITH_HEADERS, ArrowRecords, Bools
from tidelog.pipeline.joined_batches import JoinedColumns
from tidelog.wire.batch import (
    BatchHeader,
    Codec,
    TimestampType,
    assemble,
    read_header,
    with_log_append_time,
)
from tidelog.wire.errors import InvalidRecord, MalformedBatch
from tidelog.wire.records import Record, build_batch, decode_records, empty_batch

some_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
batches = st.lists(
    st.lists(st.tuples(some_bytes, some_bytes, headers), min_size=1, max_size=20),
    min_size=1,
    max_size=4,
)


def batches_of(contents: list[list[tuple[Any, Any, Any]]], codecs: list[Codec]) -> list[bytes]:
    built, offset = [], 0
    for content, codec in zip(contents, codecs, strict=False):
        records = [
            Record(offset + index, 1000 + offset + index, key, value, tuple(found))
            for index, (key, value, found) in enumerate(content)
        ]
        built.append(build_batch(records, base_offset=offset, codec=codec))
        offset += len(content)
    return built


class Gathered:
    """What comes of batches that lie in one piece of memory, or each in one of its own."""

    def __init__(
        self,
        *,
        headers: bool = True,
        value: bool = True,
        offsets: Any = None,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self.damaged: list[tuple[int, str]] = []
        self._offsets = offsets
        self.records = ArrowRecords(
            "t",
            3,
            include_headers=headers,
            include_value=value,
            columns=columns,
            wanted=self._wanted,
            on_damage=self._on_damage,
        )

    def _wanted(self, columns: JoinedColumns) -> Bools:
        if self._offsets is None:
            return np.ones(len(columns), np.bool_)
        return np.isin(columns.offsets, self._offsets)

    def _on_damage(self, header: BatchHeader, error: MalformedBatch) -> None:
        self.damaged.append((header.base_offset, str(error)))

    def add(self, built: list[bytes], *, together: bool) -> None:
        for blob in [b"".join(built)] if together else built:
            buffer, position = np.frombuffer(blob, np.uint8), 0
            while position < len(blob):
                header = read_header(blob, position)
                self.records.add(buffer, position, header)
                position += header.size


def rows_of(batch: bytes, kept: set[int]) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for record in decode_records(batch)
        if record.offset in kept
    ]


codecs_of_four = st.lists(st.sampled_from([Codec.NONE, Codec.LZ4]), min_size=4, max_size=4)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(contents=batches, codecs=codecs_of_four, together=st.booleans(), data=st.data())
def test_the_rows_are_the_records(
    contents: list[list[tuple[Any, Any, Any]]],
    codecs: list[Codec],
    together: bool,
    data: st.DataObject,
) -> None:
    built = batches_of(contents, codecs)
    count = sum(map(len, contents))
    kept = data.draw(st.sets(st.integers(0, count - 1)) | st.just(set(range(count))))
    gathered = Gathered(offsets=sorted(kept))
    gathered.add(built, together=together)
    batch = gathered.records.take()
    expected = [row for one in built for row in rows_of(one, kept)]
    if not expected:
        assert batch is None
        return
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA_WITH_HEADERS)
    moments = batch.column("timestamp").cast("int64").to_pylist()
    assert moments == [1_000_000 + 1000 * index for index in sorted(kept)]
    assert batch.drop_columns(["timestamp"]).to_pylist() == expected
    assert gathered.records.take() is None


@pytest.mark.parametrize("count", [1, 3, 8])
def test_only_the_columns_that_are_asked_for_are_made_in_their_order(count: int) -> None:
    built = [
        build_batch(
            [Record(7, 5, b"k", b"v", (("h", b"1"),)), Record(8, 6, None, b"w", ())], base_offset=7
        )
    ]
    names = SCHEMA_WITH_HEADERS.names
    everything = Gathered()
    everything.add(built, together=True)
    whole = everything.records.take()
    for first in range(len(names)):
        columns = tuple((names[first:] + names[:first])[:count])
        gathered = Gathered(columns=columns)
        gathered.add(built, together=True)
        assert gathered.records.take().equals(whole.select(columns))


HEADER_ONLY = ("offset", "partition", "topic", "timestampType")


def test_offsets_come_from_headers_of_batches_unless_records_were_compacted_away() -> None:
    def offsets(*built: bytes) -> list[int]:
        gathered = Gathered(columns=HEADER_ONLY)
        gathered.add(list(built), together=False)
        return list(gathered.records.take().column("offset").to_pylist())

    whole = build_batch([Record(n, 5, None, b"v", ()) for n in (3, 4)], base_offset=3)
    empty = empty_batch(base_offset=5, last_offset_delta=1, max_timestamp=5)
    gaps = build_batch([Record(n, 5, None, b"v", ()) for n in (7, 9)], base_offset=7)
    assert offsets(whole, empty, whole) == [3, 4, 3, 4]
    assert offsets(whole, empty, gaps) == [3, 4, 7, 9]


def test_records_that_no_column_needs_are_not_looked_at() -> None:
    header = read_header(build_batch([Record(4, 5, None, b"v", ())], base_offset=4))
    nonsense = assemble(header, b"\x10" + bytes(8))
    for columns, offsets, damaged in ((HEADER_ONLY, [4], []), (("offset", "key"), [], [4])):
        gathered = Gathered(columns=columns)
        gathered.add([nonsense], together=True)
        batch = gathered.records.take()
        assert ([] if batch is None else batch.column("offset").to_pylist()) == offsets
        assert [offset for offset, _ in gathered.damaged] == damaged


def test_values_may_be_left_out_and_headers_too() -> None:
    gathered = Gathered(headers=False, value=False)
    gathered.add([build_batch([Record(0, 5, b"k", b"v", ())], base_offset=0)], together=True)
    batch = gathered.records.take()
    assert batch.schema.equals(SCHEMA)
    assert batch.column("key").to_pylist() == [b"k"]
    assert batch.column("value").to_pylist() == [None]


def test_the_time_of_append_is_told_apart() -> None:
    gathered = Gathered()
    plain = build_batch([Record(n, 5 + n, None, b"v", ()) for n in range(2)], base_offset=0)
    gathered.add([plain, with_log_append_time(plain, 77)], together=True)
    batch = gathered.records.take()
    kinds = [TimestampType.CREATE_TIME] * 2 + [TimestampType.LOG_APPEND_TIME] * 2
    assert batch.column("timestampType").to_pylist() == kinds
    assert batch.column("timestamp").cast("int64").to_pylist() == [5000, 6000, 77_000, 77_000]


def test_a_time_that_does_not_fit_is_cut() -> None:
    gathered = Gathered()
    gathered.add([build_batch([Record(0, 2**62, None, b"v", ())], base_offset=0)], together=True)
    [micros] = gathered.records.take().column("timestamp").cast("int64").to_pylist()
    assert micros == (2**63 - 1) // 1000 * 1000


def test_a_batch_without_records_is_passed_over() -> None:
    one = build_batch([Record(9, 5, None, b"v", ())], base_offset=9)
    none = empty_batch(base_offset=7, last_offset_delta=1, max_timestamp=5)
    gathered = Gathered()
    gathered.add([none, one, none, one, none], together=True)
    assert gathered.records.take().column("offset").to_pylist() == [9, 9]
    gathered.add([none], together=True)
    assert gathered.records.take() is None


@pytest.mark.parametrize("together", [True, False])
def test_of_batches_that_make_no_sense_each_is_told_and_the_others_stay(together: bool) -> None:
    def good(offset: int) -> bytes:
        return build_batch([Record(offset, 5, None, b"v", ())], base_offset=offset)

    def bad(offset: int, **changes: int) -> bytes:
        header = read_header(good(offset))._replace(**changes)  # type: ignore[arg-type]
        return assemble(header, b"\x10" + bytes(8))

    gathered = Gathered()
    many = bad(3, records_count=9_999)  # seen before the records are looked at
    gathered.add([good(0), bad(1), good(2), many, bad(4), good(5)], together=together)
    assert gathered.records.take().column("offset").to_pylist() == [0, 2, 5]
    assert sorted(offset for offset, _ in gathered.damaged) == [1, 3, 4]
    gathered.add([bad(6)], together=True)
    assert gathered.records.take() is None
    assert gathered.damaged[-1][0] == 6


def test_what_is_told_of_damage_may_be_an_error() -> None:
    def refuse(header: BatchHeader, error: MalformedBatch) -> None:
        raise error

    gathered = Gathered()
    gathered.records = ArrowRecords(
        "t", 3, include_headers=False, include_value=True, wanted=lambda c: c.offsets >= 0,
        on_damage=refuse,
    )  # fmt: skip
    header = read_header(build_batch([Record(0, 5, None, b"v", ())], base_offset=0))
    gathered.add([assemble(header, b"\x10" + bytes(8))], together=True)
    with pytest.raises(InvalidRecord, match="record 0"):
        gathered.records.take()
