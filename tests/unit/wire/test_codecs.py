"""Codecs: framing as the Java client makes it, all framings read, bombs and cuts refused."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.batch import Codec
from tidelog.wire.codecs import compress, decompress
from tidelog.wire.errors import (
    CorruptBatch,
    DecompressedTooLarge,
    MalformedBatch,
    UnsupportedCodec,
)

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the sea came up and took the sand away, " * 5_000
NOISE = bytes((i * i * 2654435761 >> 13) & 0xFF for i in range(150_000))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "x", "text", "noise"])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_there_and_back(codec: Codec, data: bytes, wrap: Callable[[bytes], memoryview]) -> None:
    packed = compress(codec, wrap(data))
    assert decompress(codec, wrap(packed), limit_bytes=len(data)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("level", [1, 5, 9, 12])
def test_levels(codec: Codec, level: int) -> None:
    level = min(level, 9) if codec is Codec.GZIP else level
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_uncompressed_records_are_not_copied() -> None:
    data = bytearray(b"abc")
    view = decompress(Codec.NONE, data)
    data[0] = ord("z")
    assert bytes(view) == b"zbc"


@pytest.mark.parametrize("codec_id", [5, 6, 7, -1])
def test_an_unknown_codec_is_refused(codec_id: int) -> None:
    with pytest.raises(UnsupportedCodec, match=f"codec {codec_id} ") as raised:
        decompress(codec_id, b"abc")
    assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def linked_lz4(data: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress(data))
    assert not packed[4] & 0x20, "blocks are independent"
    return packed


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def two_snappy_streams(data: bytes) -> bytes:
    return compress(Codec.SNAPPY, data[:70_000]) + compress(Codec.SNAPPY, data[70_000:])


def zstd_with_everything(data: bytes) -> bytes:
    writer = zstandard.ZstdCompressor(write_content_size=True, write_checksum=True)
    return writer.compress(data[:100_000]) + writer.compress(data[100_000:])


FOREIGN: list[tuple[Codec, Callable[[bytes], bytes]]] = [
    (Codec.GZIP, gzip.compress),
    (Codec.SNAPPY, raw_snappy),
    (Codec.SNAPPY, two_snappy_streams),
    (Codec.LZ4, linked_lz4),
    (Codec.ZSTD, zstd_with_everything),
]


@pytest.mark.parametrize(("codec", "pack"), FOREIGN, ids=lambda it: getattr(it, "__name__", ""))
def test_framings_that_we_do_not_write_are_read(
    codec: Codec, pack: Callable[[bytes], bytes]
) -> None:
    assert decompress(codec, pack(TEXT), limit_bytes=len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, pack(TEXT), limit_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
def test_cut_or_prolonged_data_is_corrupt(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    cuts = [packed[:-n] for n in (1, 2, 3, 4, 5, 8, len(packed) // 2, len(packed) - 20)]
    for damaged in (b"", packed[:3], *cuts, packed + b"!"):
        with pytest.raises(CorruptBatch, match=f"{codec.name.lower()} records") as raised:
            decompress(codec, damaged)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_negative_snappy_block_is_corrupt() -> None:
    packed = bytearray(compress(Codec.SNAPPY, TEXT))
    packed[16:20] = struct.pack(">i", -8)
    with pytest.raises(CorruptBatch, match="block of -8 bytes"):
        decompress(Codec.SNAPPY, packed)


def snappy_that_claims(size: int) -> bytes:
    preamble = bytearray()
    while size > 0x7F:
        preamble.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*preamble, size]) + b"\0"


def zstd_that_claims(size: int) -> bytes:
    packed = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 17)))
    assert packed[4] >> 6 == 2, "the content size is not a field of four bytes"
    packed[5:9] = struct.pack("<I", size)
    return bytes(packed)


BOMB = bytes(64 * 1024 * 1024)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_stopped_before_it_fills_the_memory(codec: Codec) -> None:
    packed = compress(codec, BOMB)
    tracemalloc.start()
    with pytest.raises(DecompressedTooLarge, match="1000000 bytes") as raised:
        decompress(codec, packed, limit_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 8_000_000 + len(packed)


def test_claimed_sizes_are_not_believed() -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, snappy_that_claims(4_000_000_000), limit_bytes=1_000_000)
    with pytest.raises(MalformedBatch):
        decompress(Codec.ZSTD, zstd_that_claims(4_000_000_000), limit_bytes=1_000_000)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=300), st.data())
def test_damaged_data_raises_nothing_else(codec: Codec, data: bytes, draw: st.DataObject) -> None:
    packed = bytearray(compress(codec, data * 4))
    for _ in range(draw.draw(st.integers(1, 4))):
        packed[draw.draw(st.integers(0, len(packed) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedBatch):
        assert len(decompress(codec, packed, limit_bytes=5_000)) <= 5_000


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=100))
def test_random_data_raises_nothing_else(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(MalformedBatch):
        assert len(decompress(codec, data, limit_bytes=5_000)) <= 5_000
