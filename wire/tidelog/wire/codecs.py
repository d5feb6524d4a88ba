"""Compression of the records section: gzip, snappy, lz4 and zstd as Kafka frames them.

What is written is framed as the Java client does it, so every client reads it: gzip with
OS byte 255, snappy in the xerial stream format with 32 KiB blocks, lz4 frames of independent
64 KiB blocks, zstd frames without a content size. What is read is more: snappy without a
stream around it (librdkafka once sent that), lz4 with linked blocks, several zstd frames.

Invariant: ``decompress`` never holds more than ``limit_bytes`` of output (plus one block),
whatever the input claims. Sizes in frame headers are never trusted for an allocation.

The native libraries are imported on first use; most batches a broker sees are never opened.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import Codec
from tidelog.wire.errors import CorruptBatch, DecompressedTooLarge, UnsupportedCodec

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DEFAULT_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What one batch may grow to: sixty times the largest batch of the default settings."""

_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_GZIP_WBITS: Final = 31
_RAW_DEFLATE_WBITS: Final = -15

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE: Final = 32 * 1024

# Version 1, independent blocks, no checksums; blocks of 64 KiB; then the header's own checksum.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_SIZE: Final = 64 * 1024
_LZ4_STORED_BIT: Final = 0x8000_0000
_LZ4_END: Final = bytes(4)
_LZ4_MAX_RATIO: Final = 256
_LZ4_DICTIONARY_FLAG: Final = 0x01
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_BLOCK_CHECKSUM_FLAG: Final = 0x10
_LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's number for the fast compressor; any other level means high compression (KIP-390)."""

_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_BLOCK_HEADER: Final = 3
_ZSTD_RLE: Final = 1

_I32: Final = struct.Struct(">i")
_U32_LITTLE: Final = struct.Struct("<I")


def compress(codec: Codec, data: ByteView, level: int | None = None) -> bytes:
    """The compressed form; ``level`` None is the codec's default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gzip_compress(data, -1 if level is None else level)
        case Codec.SNAPPY:
            return _snappy_compress(data)
        case Codec.LZ4:
            return _lz4_compress(data, _LZ4_DEFAULT_LEVEL if level is None else level)
        case Codec.ZSTD:
            return _zstd_compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level)


def decompress(
    codec_id: int, data: ByteView, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes | memoryview:
    """The records section; a view of ``data`` itself when it is not compressed."""
    match codec_id:
        case Codec.NONE:
            return data if isinstance(data, bytes) else memoryview(data)
        case Codec.GZIP:
            return _gzip_decompress(data, limit_bytes)
        case Codec.SNAPPY:
            return _snappy_decompress(data, limit_bytes)
        case Codec.LZ4:
            return _lz4_decompress(data, limit_bytes)
        case Codec.ZSTD:
            return _zstd_decompress(data, limit_bytes)
        case _:
            raise UnsupportedCodec(f"compression codec {codec_id} is unknown, 0 to 4 are allowed")


def _too_large(codec: Codec, limit_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(
        f"{codec.name.lower()} records are larger than {limit_bytes} bytes when decompressed"
    )


def _corrupt(codec: Codec, why: object) -> CorruptBatch:
    return CorruptBatch(f"{codec.name.lower()} records do not decompress: {why}")


def _gzip_compress(data: ByteView, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE_WBITS)
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFF_FFFF)
    return b"".join((_GZIP_HEADER, deflate.compress(data), deflate.flush(), trailer))


def _gzip_decompress(data: ByteView, limit_bytes: int) -> bytes:
    inflate = zlib.decompressobj(_GZIP_WBITS)
    try:
        output = inflate.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise _corrupt(Codec.GZIP, error) from None
    if len(output) > limit_bytes:
        raise _too_large(Codec.GZIP, limit_bytes)
    if not inflate.eof:
        raise _corrupt(Codec.GZIP, "the data ends too early")
    if inflate.unused_data:
        raise _corrupt(Codec.GZIP, f"{len(inflate.unused_data)} bytes follow its end")
    return output


def _snappy_compress(data: ByteView) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        pieces += (_I32.pack(len(block)), block)
    return b"".join(pieces)


def _snappy_decompress(data: ByteView, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, limit_bytes, limit_bytes)
    blocks: list[bytes] = []
    position, room = 0, limit_bytes
    while position < len(view):
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # streams may follow one another
            continue
        if len(view) - position < _I32.size:
            raise _corrupt(Codec.SNAPPY, "the data ends too early")
        size = _I32.unpack_from(view, position)[0]
        position += _I32.size
        if not 0 <= size <= len(view) - position:
            raise _corrupt(Codec.SNAPPY, f"a block of {size} bytes, {len(view) - position} left")
        blocks.append(_snappy_block(view[position : position + size], room, limit_bytes))
        room -= len(blocks[-1])
        position += size
    return b"".join(blocks)


def _snappy_block(block: memoryview, room: int, limit_bytes: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        # Copied because a read-only view of foreign memory is not taken by every release.
        raw = bytes(block)
        if snappy.decompress_raw_len(raw) > room:
            raise _too_large(Codec.SNAPPY, limit_bytes)
        return bytes(snappy.decompress_raw(raw))
    except DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None


def _lz4_compress(data: ByteView, level: int) -> bytes:
    view = memoryview(data)
    pieces = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        packed = _lz4_block(block, level)
        if len(packed) < len(block):
            pieces += (_U32_LITTLE.pack(len(packed)), packed)
        else:
            pieces += (_U32_LITTLE.pack(len(block) | _LZ4_STORED_BIT), bytes(block))
    pieces.append(_LZ4_END)
    return b"".join(pieces)


def _lz4_block(block: ReadableBuffer, level: int) -> bytes:
    from cramjam import lz4

    if level == _LZ4_DEFAULT_LEVEL:
        return bytes(lz4.compress_block(block, store_size=False))
    return bytes(
        lz4.compress_block(block, mode="high_compression", compression=level, store_size=False)
    )


def _lz4_decompress(data: ByteView, limit_bytes: int) -> bytes:
    from cramjam import DecompressionError, lz4

    # The library has no limit of its own, but it stops at the end of the buffer it is given.
    most = _lz4_most_bytes(memoryview(data))
    output = bytearray(min(most, limit_bytes))
    try:
        size = lz4.decompress_into(data, output)
    except DecompressionError as error:
        if most > limit_bytes and "whole buffer" in str(error):
            raise _too_large(Codec.LZ4, limit_bytes) from None
        raise _corrupt(Codec.LZ4, error) from None
    return bytes(memoryview(output)[:size])


def _lz4_most_bytes(frame: memoryview) -> int:
    """What the blocks of a frame can decompress to at most, by their headers alone."""
    if len(frame) < len(_LZ4_HEADER):
        raise _corrupt(Codec.LZ4, "the data ends too early")
    flags, block_size_code = frame[4], frame[5] >> 4 & 7
    block_bytes = 1 << (8 + 2 * block_size_code)
    position = len(_LZ4_HEADER)
    position += 8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0
    position += 4 if flags & _LZ4_DICTIONARY_FLAG else 0
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM_FLAG else 0
    most = 0
    while position + _U32_LITTLE.size <= len(frame):
        field = _U32_LITTLE.unpack_from(frame, position)[0]
        if field == 0:
            break
        stored = field & ~_LZ4_STORED_BIT
        most += stored if field & _LZ4_STORED_BIT else min(block_bytes, _LZ4_MAX_RATIO * stored)
        position += _U32_LITTLE.size + stored + checksum
    return most


def _zstd_compress(data: ByteView, level: int) -> bytes:
    from zstandard import ZstdCompressor

    stream = ZstdCompressor(level=level).compressobj()
    return stream.compress(data) + stream.flush()


def _zstd_decompress(data: ByteView, limit_bytes: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    try:
        _require_whole_zstd_frames(data)
        reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)
        output = reader.read(limit_bytes + 1)
    except ZstdError as error:
        raise _corrupt(Codec.ZSTD, error) from None
    if len(output) > limit_bytes:
        raise _too_large(Codec.ZSTD, limit_bytes)
    return output


def _require_whole_zstd_frames(data: ByteView) -> None:
    """Walk the block headers (RFC 8878 §3.1.1.2), as the reader takes a cut for the end."""
    from zstandard import frame_header_size, get_frame_parameters

    view = memoryview(data)
    position = 0
    while position < len(view) or not position:
        frame = view[position:]
        has_checksum = get_frame_parameters(frame).has_checksum
        position += frame_header_size(frame)
        is_last = False
        while not is_last:
            if position + _ZSTD_BLOCK_HEADER > len(view):
                raise _corrupt(Codec.ZSTD, "the data ends too early")
            field = int.from_bytes(view[position : position + _ZSTD_BLOCK_HEADER], "little")
            is_last = bool(field & 1)
            stored = 1 if (field >> 1) & 3 == _ZSTD_RLE else field >> 3
            position += _ZSTD_BLOCK_HEADER + stored
        position += 4 if has_checksum else 0
        if position > len(view):
            raise _corrupt(Codec.ZSTD, "the data ends too early")
