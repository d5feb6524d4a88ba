"""Columns to Arrow, against the records that the slow decoder finds."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.arrow_records import SCHEMA, SCHEMA_WITH_HEADERS, ArrowRecords
from tidelog.wire.batch import Codec, TimestampType, with_log_append_time
from tidelog.wire.columns import decode_columns
from tidelog.wire.records import Record, build_batch, decode_records

some_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
batches = st.lists(
    st.lists(st.tuples(some_bytes, some_bytes, headers), min_size=1, max_size=20),
    min_size=1,
    max_size=4,
)


def batches_of(contents: list[list[tuple[Any, Any, Any]]], codec: Codec) -> list[bytes]:
    built, offset = [], 0
    for content in contents:
        records = [
            Record(offset + index, 1000 + index, key, value, tuple(found))
            for index, (key, value, found) in enumerate(content)
        ]
        built.append(build_batch(records, base_offset=offset, codec=codec))
        offset += len(content)
    return built


@settings(derandomize=True, deadline=None, max_examples=80)
@given(contents=batches, codec=st.sampled_from([Codec.NONE, Codec.LZ4]), data=st.data())
def test_the_rows_are_the_records(
    contents: list[list[tuple[Any, Any, Any]]], codec: Codec, data: st.DataObject
) -> None:
    gathered = ArrowRecords("t", 3, include_headers=True, include_value=True)
    expected: list[dict[str, Any]] = []
    for batch in batches_of(contents, codec):
        columns = decode_columns(batch)
        kept = data.draw(st.lists(st.booleans(), min_size=len(columns), max_size=len(columns)))
        gathered.add(columns, np.flatnonzero(np.array(kept)))
        for record, is_kept in zip(decode_records(batch), kept, strict=True):
            if is_kept:
                expected.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": "t",
                        "partition": 3,
                        "offset": record.offset,
                        "timestampType": 0,
                        "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                    }
                )
    assert len(gathered) == len(expected)
    batch = gathered.take()
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA_WITH_HEADERS)
    moments = batch.column("timestamp").cast("int64").to_pylist()
    assert all(moment % 1000 == 0 and moment >= 1_000_000 for moment in moments)
    assert batch.drop_columns(["timestamp"]).to_pylist() == expected
    assert len(gathered) == gathered.size == 0


def test_values_may_be_left_out_and_headers_too() -> None:
    gathered = ArrowRecords("t", 0, include_headers=False, include_value=False)
    columns = decode_columns(build_batch([Record(0, 5, b"k", b"v", ())], base_offset=0))
    gathered.add(columns, np.arange(1))
    batch = gathered.take()
    assert batch.schema.equals(SCHEMA)
    assert batch.column("key").to_pylist() == [b"k"]
    assert batch.column("value").to_pylist() == [None]


def test_the_time_of_append_is_told_apart() -> None:
    gathered = ArrowRecords("t", 0, include_headers=False, include_value=True)
    plain = build_batch([Record(0, 5, None, b"v", ())], base_offset=0)
    for one in (plain, with_log_append_time(plain, 77)):
        gathered.add(decode_columns(one), np.arange(1))
    batch = gathered.take()
    kinds = [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]
    assert batch.column("timestampType").to_pylist() == kinds
    assert batch.column("timestamp").cast("int64").to_pylist() == [5000, 77_000]


def test_a_time_that_does_not_fit_is_cut() -> None:
    gathered = ArrowRecords("t", 0, include_headers=False, include_value=True)
    huge = build_batch([Record(0, 2**62, None, b"v", ())], base_offset=0)
    gathered.add(decode_columns(huge), np.arange(1))
    [micros] = gathered.take().column("timestamp").cast("int64").to_pylist()
    assert micros == (2**63 - 1) // 1000 * 1000
