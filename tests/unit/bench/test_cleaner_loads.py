"""What `make bench-cleaner` writes: which loads there are, and records that a broker would take."""

from __future__ import annotations

import pytest

from bench.cleaner import Load, batches, chosen_loads
from tidelog.wire.batch import Codec, read_header

NOW_MS = 1_700_000_000_000


def test_all_of_keys_sizes_and_codecs() -> None:
    full = {(load.keys, load.value_bytes, load.codec) for load in chosen_loads(True, [])}
    assert full == {
        (keys, size, codec)
        for keys in (1_000_000, 10_000_000)
        for size in (100, 1000)
        for codec in (Codec.NONE, Codec.ZSTD)
    }


def test_loads_are_chosen_by_name() -> None:
    name = "10,000,000 keys, values of 1000 B, zstd"
    assert chosen_loads(True, [name]) == [Load(10_000_000, 1000, Codec.ZSTD)]
    with pytest.raises(ValueError, match=f"no load {name!r}, only: 100,000 keys"):
        chosen_loads(False, [name])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_record_is_ahead_of_now(codec: Codec) -> None:
    load = Load(5_000, 100, codec)
    headers = [read_header(batch) for batch in batches(load, NOW_MS)]
    assert max(header.max_timestamp for header in headers) <= NOW_MS
    assert min(header.base_timestamp for header in headers) >= NOW_MS - 2 * load.records
    assert sum(header.records_count for header in headers) >= load.records
