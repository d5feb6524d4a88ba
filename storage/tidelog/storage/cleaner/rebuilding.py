"""Batches of which some records are gone, or which get a delete horizon, made anew.

Theory: a record keeps its offset, so relative to the batch's base offset, which stays, all of its
bytes stay too, but for one field: its timestamp is stored relative to the batch's base timestamp.
That changes when the first record goes, or when it makes room for a delete horizon (KIP-534). As
long as the new number takes as many bytes as the old one it is written over it; only where it does
not, the record gets a new head. So neighbours are copied in one piece, and everything that is done
for each record is done for all batches of a chunk at once.

Importing this module imports numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np

from tidelog.kernel.ids import TimestampMs
from tidelog.storage.cleaner.chunks import Located
from tidelog.storage.cleaner.columns import Bools, OpenedBatches
from tidelog.wire.batch import (
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    assemble,
)
from tidelog.wire.codecs import compress
from tidelog.wire.varint_columns import (
    Bytes,
    Int64s,
    join_rows,
    read_varlongs,
    varint_matrix,
)


def rebuild_batches(
    opened: OpenedBatches,
    batches: Sequence[Located],
    keep: Bools,
    is_rebuilt: Bools,
    new_horizons: Int64s,
) -> Iterator[tuple[int, bytes]]:
    """Each batch of ``is_rebuilt`` (per batch) with those of its records that ``keep`` (per
    record) names: its index in the chunk and its bytes. Every one keeps a record.

    ``new_horizons`` are per batch, −1 for none.
    """
    rows = np.flatnonzero(keep & is_rebuilt[opened.batch])
    if not len(rows):
        return
    batch = opened.batch[rows]
    firsts = np.flatnonzero(np.diff(batch, prepend=-1))
    groups = batch[firsts]
    headers = [batches[opened.indices[group]][1] for group in groups.tolist()]
    counts = np.diff(firsts, append=len(rows))
    present, timestamps = _timestamps(opened, rows, headers, counts)
    bases = _base_timestamps(headers, new_horizons[groups], timestamps[firsts])
    deltas = timestamps - np.repeat(bases, counts)
    data, sizes = _sections(opened, rows, batch, present, deltas)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))[[*firsts, len(rows)]]
    largest = np.maximum.reduceat(timestamps, firsts)
    view = memoryview(data)
    for position, group in enumerate(groups.tolist()):
        header = _header(
            headers[position],
            has_horizon=int(new_horizons[group]) >= 0,
            base_timestamp=int(bases[position]),
            largest=int(largest[position]),
            count=int(counts[position]),
        )
        section = view[int(bounds[position]) : int(bounds[position + 1])]
        codec = Codec(header.codec_id)
        records = section if codec is Codec.NONE else compress(codec, bytes(section))
        yield opened.indices[group], assemble(header, records)


def _timestamps(
    opened: OpenedBatches, rows: Int64s, headers: Sequence[BatchHeader], counts: Int64s
) -> tuple[Int64s, Int64s]:
    """As stored, relative to the batch's base, and as readers see them."""
    deltas, _ = read_varlongs(opened.buffer, opened.delta_at[rows])
    bases = np.array([header.base_timestamp for header in headers], np.int64)
    timestamps = np.repeat(bases, counts) + deltas
    is_append_time = np.array(
        [header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers], np.bool_
    )
    if bool(is_append_time.any()):
        largest = np.array([header.max_timestamp for header in headers], np.int64)
        of_append = np.repeat(is_append_time, counts)
        timestamps = np.where(of_append, np.repeat(largest, counts), timestamps)
    return deltas, timestamps


def _base_timestamps(
    headers: Sequence[BatchHeader], new_horizons: Int64s, first_timestamps: Int64s
) -> Int64s:
    """A delete horizon, once set, is never moved; without one it is the first record's time."""
    has_one = np.array([header.has_delete_horizon for header in headers], np.bool_)
    present = np.array([header.base_timestamp for header in headers], np.int64)
    bases = np.where(new_horizons >= 0, new_horizons, first_timestamps)
    return np.where(has_one, present, bases)


def _header(
    header: BatchHeader, *, has_horizon: bool, base_timestamp: int, largest: int, count: int
) -> BatchHeader:
    is_append_time = header.attributes & LOG_APPEND_TIME_BIT
    return BatchHeader(
        *header[:5],
        header.attributes | (DELETE_HORIZON_BIT if has_horizon else 0),
        header.last_offset_delta,
        TimestampMs(base_timestamp),
        header.max_timestamp if is_append_time else TimestampMs(largest),
        *header[9:12],
        count,
    )


def _sections(
    opened: OpenedBatches, rows: Int64s, batch: Int64s, present: Int64s, deltas: Int64s
) -> tuple[bytes | bytearray, Int64s]:
    """The records sections one after the other, and the size of each record in them."""
    encoded, delta_sizes = varint_matrix(deltas)
    start, end, delta_end = opened.start[rows], opened.end[rows], opened.delta_end[rows]
    delta_at = opened.delta_at[rows]
    has_new_head = delta_sizes != delta_end - delta_at
    heads, head_sizes = _heads(end - delta_end, has_new_head, encoded, delta_sizes)
    sizes = np.where(has_new_head, head_sizes + end - delta_end, end - start)

    follows = (np.diff(rows, prepend=-2) == 1) & (np.diff(batch, prepend=-1) == 0)
    cuts = np.flatnonzero(has_new_head | ~follows)
    piece_start = np.where(has_new_head, delta_end, start)[cuts]
    piece_end = end[np.concatenate((cuts[1:] - 1, np.full(1, len(rows) - 1)))]
    slices = map(opened.data.__getitem__, map(slice, piece_start.tolist(), piece_end.tolist()))
    if heads:
        pieces: list[bytes] = [b""] * (2 * len(cuts))
        pieces[0::2] = map(BytesIO(heads).read, head_sizes[cuts].tolist())
        pieces[1::2] = slices
    else:
        pieces = list(slices)

    is_patched = ~has_new_head & (deltas != present)
    if not bool(is_patched.any()):
        return b"".join(pieces), sizes
    joined = bytearray().join(pieces)
    at = np.cumsum(sizes) - sizes + delta_at - start
    _patch(joined, at[is_patched], encoded[is_patched], delta_sizes[is_patched])
    return joined, sizes


def _heads(
    rest: Int64s, has_new_head: Bools, encoded: Bytes, delta_sizes: Int64s
) -> tuple[bytes, Int64s]:
    """Length, attributes and timestamp of the records whose timestamp changes its size."""
    sizes = np.zeros(len(rest), np.int64)
    rows = np.flatnonzero(has_new_head)
    if not len(rows):
        return b"", sizes
    attributes = np.zeros((len(rows), 1), np.uint8), np.ones(len(rows), np.int64)
    lengths = varint_matrix(rest[rows] + 1 + delta_sizes[rows])
    heads, sizes[rows] = join_rows([lengths, attributes, (encoded[rows], delta_sizes[rows])])
    return heads, sizes


def _patch(output: bytearray, at: Int64s, encoded: Bytes, sizes: Int64s) -> None:
    """Write each varint over the one that stands there, which is as long."""
    target = np.frombuffer(output, np.uint8)
    target[at] = encoded[:, 0]
    for column in range(1, encoded.shape[1]):
        rows = np.flatnonzero(sizes > column)
        target[at[rows] + column] = encoded[rows, column]
