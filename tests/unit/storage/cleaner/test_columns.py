"""Many batches opened and rebuilt at once, against one record after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.storage.cleaner import columns
from tidelog.storage.cleaner.chunks import PADDING, Located
from tidelog.storage.cleaner.columns import OpenedBatches, open_batches
from tidelog.storage.cleaner.rebuilding import rebuild_batches
from tidelog.wire.batch import BatchHeader, Codec, TimestampType, assemble, headers
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import Record, build_batch, decode_records, rebuild_batch

NO_LIMIT = 1 << 40
fields = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"x" * 200, b"y" * 20_000]))
record_lists = st.lists(
    st.tuples(
        fields,
        fields,
        st.integers(-(2**40), 2**40),
        st.lists(st.tuples(st.text(max_size=3), fields), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
batch_specs = st.lists(
    st.tuples(
        record_lists,
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP]),
        st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
        st.one_of(st.none(), st.integers(0, 2**41)),
    ),
    min_size=1,
    max_size=6,
)


def chunk_of(specs: list[Any]) -> tuple[bytes, list[Located]]:
    data, offset = b"", 5
    for records, codec, kind, horizon in specs:
        made = [Record(offset + 2 * i, t, k, v, h) for i, (k, v, t, h) in enumerate(records)]
        data += build_batch(
            made, base_offset=offset, codec=codec, timestamp_type=kind, delete_horizon_ms=horizon
        )
        offset += 2 * len(records)
    batches = list(headers(data))
    return data + bytes(PADDING), batches


def rows_of(opened: OpenedBatches) -> list[tuple[int, bytes | None, bool]]:
    found = []
    for row in range(len(opened.offset)):
        start, length = int(opened.key_start[row]), int(opened.key_length[row])
        key = None if length < 0 else opened.data[start : start + length]
        found.append((int(opened.offset[row]), key, bool(opened.has_value[row])))
    return found


@pytest.fixture(params=["side by side", "one by one"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = 0 if request.param == "side by side" else 10**9
    monkeypatch.setattr(columns, "_FEW_LANES", lanes)


@settings(derandomize=True, max_examples=120, deadline=None)
@given(specs=batch_specs, limit=st.sampled_from([1, 300, NO_LIMIT]), lanes=st.sampled_from([0, 99]))
def test_it_finds_what_the_plain_decoder_finds(specs: list[Any], limit: int, lanes: int) -> None:
    before, columns._FEW_LANES = columns._FEW_LANES, lanes  # type: ignore[misc]
    try:
        data, batches = chunk_of(specs)
        wanted = list(range(len(batches)))
        opened = list(open_batches(data, batches, wanted, limit))
    finally:
        columns._FEW_LANES = before  # type: ignore[misc]
    expected = [
        (record.offset, record.key, record.value is not None)
        for position, header in batches
        for record in decode_records(data[position : position + header.size])
    ]
    assert [row for part in opened for row in rows_of(part)] == expected
    assert [index for part in opened for index in part.indices] == wanted


@settings(derandomize=True, max_examples=150, deadline=None)
@given(specs=batch_specs, chance=st.randoms(use_true_random=False))
def test_it_rebuilds_what_the_plain_builder_builds(specs: list[Any], chance: Any) -> None:
    data, batches = chunk_of(specs)
    for opened in open_batches(data, batches, list(range(len(batches))), NO_LIMIT):
        keep = np.array([chance.random() < 0.6 for _ in opened.offset], np.bool_)
        kept = np.bincount(opened.batch[keep], minlength=len(opened.indices))
        horizons = np.array(
            [-1 if batches[i][1].has_delete_horizon else chance.choice([-1, 10**12])
             for i in opened.indices],
            np.int64,
        )  # fmt: skip
        made = dict(rebuild_batches(opened, batches, keep, kept > 0, horizons))
        assert sorted(made) == [opened.indices[i] for i in np.flatnonzero(kept).tolist()]
        for place, index in enumerate(opened.indices):
            if index not in made:
                continue
            position, header = batches[index]
            records = decode_records(data[position : position + header.size])
            mask = keep[opened.batch == place].tolist()
            horizon = int(horizons[place])
            expected = rebuild_batch(
                header,
                [record for record, stays in zip(records, mask, strict=True) if stays],
                delete_horizon_ms=None if horizon < 0 else horizon,
            )
            assert made[index] == expected


def broken(section: bytes, count: int) -> tuple[bytes, list[Located]]:
    """Somebody wrote this, and gave it a checksum."""
    (_, header), *_ = headers(build_batch([Record(0, 0, b"k", b"v")]))
    changed: BatchHeader = header._replace(records_count=count)
    data = assemble(changed, section)
    return data + bytes(PADDING), list(headers(data))


@pytest.mark.usefixtures("walk")
@pytest.mark.parametrize(
    ("section", "count"),
    [
        (b"", 1),
        (b"\x0e\0\0\0\x02k\x02v\0", 1),  # a byte more than the record says
        (b"\x12\0\0\0\x02k\x02v\0", 1),  # a byte less
        (b"\x10\0\0\0\x02k\x02v\0", 2),  # a record missing
        (b"\x01\0\0\0\x02k\x02v\0", 1),  # a negative length
        (b"\x10\0\0\0\x7fk\x02v\0", 1),  # a key of −64 bytes
        (b"\x10\0\0\0\x02k\x7fv\0", 1),  # a value of −64 bytes
        (b"\x10\0\0\0\x02k\x7ev\0", 1),  # a value that goes on behind the record
        (b"\xff\xff\xff\xff\xff\x7f", 1),  # a varint of over 32 bits
        (b"\xfe\xff\xff\xff\x0f", 1),  # a length of 2^31 − 1
        (b"\x10\0\0\0\x02k\x02v\0", -1),
    ],
)
def test_what_makes_no_sense_is_refused(section: bytes, count: int) -> None:
    data, batches = broken(section, count)
    with pytest.raises(MalformedBatch):
        list(open_batches(data, batches, [0], NO_LIMIT))
