"""The newest offset of each key, against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.real import SystemRandom
from tidelog.storage.cleaner.digests import PADDING, Digests, KeyDigests
from tidelog.storage.cleaner.offset_map import SLOT_BYTES, MapTooSmall, OffsetMap

DIGESTS = KeyDigests(SystemRandom(1).randbytes(32))
NO_OFFSETS = np.zeros(0, np.int64)


def digests_of(keys: list[bytes], family: KeyDigests = DIGESTS) -> Digests:
    buffer = np.frombuffer(b"".join(keys) + bytes(PADDING), np.uint8)
    lengths = np.array([len(key) for key in keys], np.int64)
    return family.of(buffer, np.cumsum(lengths) - lengths, lengths)


keys_of = st.lists(
    st.one_of(
        st.integers(0, 40).map(lambda i: b"key-%d" % i),
        st.binary(max_size=20),
        st.sampled_from([b"", b"\0", b"\0\0", b"x" * 512, b"x" * 513, b"x" * 3000]),
    ),
    max_size=60,
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(chunks=st.lists(keys_of, max_size=5), capacity=st.integers(1, 80))
def test_it_agrees_with_a_dict_and_stops_where_kafka_does(
    chunks: list[list[bytes]], capacity: int
) -> None:
    slots = next(n for n in range(capacity + 1, 200) if _is_prime(n))
    newest = OffsetMap(slots * SLOT_BYTES + 5, (capacity + 0.5) / slots)
    assert newest.capacity == capacity
    expected: dict[bytes, int] = {}
    offset, is_full = 0, False
    for keys in chunks:
        offsets = np.arange(offset, offset + len(keys), dtype=np.int64)
        put = 0
        for key in keys:
            is_full = is_full or len(expected) >= capacity
            if is_full:
                break
            expected[key] = offset + put
            put += 1
        assert newest.put(digests_of(keys), offsets) == put
        offset += len(keys)
    assert newest.size == len(expected)
    assert newest.latest_offset == max(expected.values(), default=-1)
    everything = sorted({key for keys in chunks for key in keys} | {b"never there"})
    found = newest.get(digests_of(everything)).tolist()
    assert found == [expected.get(key, -1) for key in everything]
    for first in (0, offset // 2, offset + 1):
        still = newest.still_newest(first).tolist()
        assert still == [first + i in expected.values() for i in range(len(still))]
        wanted = max(0, newest.latest_offset + 1 - first)
        assert len(still) == min(wanted, newest.memory_bytes // 8)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, number))


def test_a_full_map_is_still_searched_to_an_end() -> None:
    newest = OffsetMap(1009 * SLOT_BYTES, 1.0)
    keys = [b"%d" % i for i in range(2000)]
    assert newest.put(digests_of(keys), np.arange(2000, dtype=np.int64)) == 1008
    found = newest.get(digests_of(keys)).tolist()
    assert found == [*range(1008), *(-1 for _ in range(1008, 2000))]


def test_no_more_memory_than_given_and_no_more_than_needed() -> None:
    assert OffsetMap(1 << 20, 0.9).memory_bytes <= 1 << 20
    assert OffsetMap(128 << 20, 0.9, most_keys=1000).memory_bytes < 64 << 10
    assert OffsetMap(1 << 20, 0.9, most_keys=10**9).memory_bytes <= 1 << 20


def test_the_default_buffer_holds_five_million_keys() -> None:
    assert OffsetMap(128 << 20, 0.9).capacity == pytest.approx(5_030_000, rel=0.01)


@pytest.mark.parametrize(("memory", "factor"), [(0, 0.9), (24, 0.9), (47, 0.9), (1 << 20, 0.0)])
def test_memory_for_not_even_one_key_is_refused_by_name(memory: int, factor: float) -> None:
    with pytest.raises(MapTooSmall, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(memory, factor)


def test_digests_of_many_keys_are_all_different() -> None:
    keys = [b"%d" % i for i in range(200_000)] + [b"\0" * i for i in range(600)]
    first, last = digests_of(keys)
    assert len({*zip(first.tolist(), last.tolist(), strict=True)}) == len(keys)


def test_a_digest_depends_on_the_secret_and_on_nothing_around_the_key() -> None:
    key = b"some key of 21 bytes."
    alone = digests_of([key])
    among = digests_of([b"before", key, b"behind"])
    assert (alone[0][0], alone[1][0]) == (among[0][1], among[1][1])
    other = digests_of([key], KeyDigests(b"another"))
    assert (alone[0][0], alone[1][0]) != (other[0][0], other[1][0])
    assert digests_of([])[0].tolist() == []
    assert OffsetMap(1 << 10, 0.9).get(digests_of([])).tolist() == NO_OFFSETS.tolist()
