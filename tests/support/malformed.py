"""Malformed requests without end, drawn from one seed.

Most are recorded requests of real clients, damaged: a flipped bit, a field at the end of its range,
a cut, another version, a batch whose header lies. A request that is still valid after that and
would change the cluster (create partitions, change settings) is not malformed and is left out.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c
from differential import Ids
from protocol_golden import request_frames

from tidelog.wire.batch import CRC_START, Codec
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import RequestFrame, frame_request, parse_request
from tidelog.wire.protocol.primitives import string
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.records import Record, build_batch

PRODUCE_VERSION: Final = 8
"""The last one with plain lengths."""

_CHANGES_THE_CLUSTER: Final = {
    ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS, ApiKey.DELETE_TOPICS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.UPDATE_FEATURES, ApiKey.DELETE_RECORDS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
}  # fmt: skip
_SIZES: Final = (-(2**31), -1, 0, 1, 9, 104_857_601, 2**31 - 1)
_EXTREMES: Final = {
    1: (0, 1, 0x7F, 0x80, 0xFF),
    2: (0, 1, 0x7FFF, 0x8000, 0xFFFF),
    4: (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF),
    8: (0, 1, 2**63 - 1, 2**63, 2**64 - 1),
}
_TLS_HELLO: Final = bytes.fromhex("16030100c8010000c40303") + bytes(190)
_HTTP: Final = b"GET / HTTP/1.1\r\nHost: localhost:9092\r\nAccept: */*\r\n\r\n"
_BATCH_FIELDS: Final = {
    "base offset": (0, ">q"), "length": (8, ">i"), "leader epoch": (12, ">i"), "magic": (16, ">b"),
    "crc": (17, ">I"), "attributes": (21, ">h"), "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"), "max timestamp": (35, ">q"), "producer id": (43, ">q"),
    "producer epoch": (51, ">h"), "base sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip


class Malformed(NamedTuple):
    kind: str
    data: bytes
    """As it goes over the wire, size included."""
    is_complete: bool
    """If not, the broker waits for more, and the client should hang up."""


class MalformedFrames:
    """Iterate. ``topic`` exists, and so do those whose ids are known: what is right about a
    request gets as far as their logs."""

    def __init__(self, seed: int, topic: str, ids: Ids) -> None:
        self._random = random.Random(seed)
        self._topic = topic
        self._corpus = [ids.to_live(frame) for frame in request_frames() if len(frame) > 8]
        makers: dict[Callable[[], Malformed], int] = {
            self._wrong_size: 3, self._noise: 5, self._cut_off: 8, self._shortened: 8,
            self._flipped: 25, self._out_of_range: 25, self._unknown_api: 5,
            self._other_protocol: 1, self._bad_batch: 15, self._spliced: 5,
        }  # fmt: skip
        self._makers, self._weights = list(makers), list(makers.values())

    def __iter__(self) -> Iterator[Malformed]:
        while True:
            [make] = self._random.choices(self._makers, self._weights)
            made = make()
            if not self._is_valid_change(made):
                yield made

    def _is_valid_change(self, made: Malformed) -> bool:
        try:
            match parse_request(made.data[4:]):
                case RequestFrame(api, version, _, _, body) if api.key in _CHANGES_THE_CLUSTER:
                    decode_request(api.key, version, body)
                    return True
        except MalformedRequest:
            pass
        return False

    # --- frames ------------------------------------------------------------------------

    def _wrong_size(self) -> Malformed:
        size = self._random.choice(_SIZES)
        return Malformed("size", struct.pack(">i", size) + self._random.randbytes(8), False)

    def _noise(self) -> Malformed:
        return Malformed("noise", framed(self._random.randbytes(self._random.randrange(400))), True)

    def _cut_off(self) -> Malformed:
        frame = framed(self._pick())
        return Malformed("cut off", frame[: self._random.randrange(1, len(frame))], False)

    def _shortened(self) -> Malformed:
        frame = self._pick()
        return Malformed("shortened", framed(frame[: self._random.randrange(len(frame))]), True)

    def _other_protocol(self) -> Malformed:
        return Malformed("TLS or HTTP", self._random.choice((_TLS_HELLO, _HTTP)), False)

    def _unknown_api(self) -> Malformed:
        key = self._random.choice((-1, 4, 7, 93, 999, 2**15 - 1, *APIS))
        version = self._random.choice((-(2**15), -1, 0, 99, 2**15 - 1))
        header = struct.pack(">hhi", key, version, 7) + string("fuzz")
        return Malformed("API or version", framed(header + self._random.randbytes(20)), True)

    def _flipped(self) -> Malformed:
        frame = bytearray(self._pick())
        for _ in range(self._random.randrange(1, 4)):
            frame[self._random.randrange(len(frame))] ^= 1 << self._random.randrange(8)
        return Malformed("flipped bits", framed(frame), True)

    def _out_of_range(self) -> Malformed:
        frame = bytearray(self._pick())
        width = self._random.choice((1, 2, 4, 8))
        if len(frame) > width + 8:
            position = self._random.randrange(8, len(frame) - width)
            value = self._random.choice(_EXTREMES[width])
            frame[position : position + width] = value.to_bytes(width, "big")
        return Malformed("field out of range", framed(frame), True)

    def _spliced(self) -> Malformed:
        one, other = self._pick(), self._pick()
        at = self._random.randrange(8, max(9, len(one)))
        return Malformed("spliced", framed(one[:at] + other[min(at, len(other)) :]), True)

    def _pick(self) -> bytes:
        return self._random.choice(self._corpus)

    # --- batches -----------------------------------------------------------------------

    def _bad_batch(self) -> Malformed:
        """A whole Produce request with a batch that lies; its checksum is right three times of
        four, so that what is behind the checksum is reached too."""
        batch = bytearray(self._good_batch())
        name = self._random.choice(list(_BATCH_FIELDS))
        at, layout = _BATCH_FIELDS[name]
        width = struct.calcsize(layout)
        value = self._random.choice(_EXTREMES[width])
        batch[at : at + width] = value.to_bytes(width, "big")
        if name != "crc" and self._random.random() < 0.75:
            struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
        return Malformed(f"batch: {name}", produce_request(self._topic, bytes(batch)), True)

    def _good_batch(self) -> bytes:
        codec = self._random.choice(list(Codec))
        records = [Record(i, 1_700_000_000_000 + i, b"k", b"v" * i) for i in range(3)]
        return build_batch(records, codec=codec)


def framed(data: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(data)) + data


def produce_request(topic: str, batch: bytes, acks: int = 1) -> bytes:
    body = (
        string(None)
        + struct.pack(">hii", acks, 5000, 1)
        + string(topic)
        + struct.pack(">iii", 1, 0, len(batch))
        + batch
    )
    return frame_request(APIS[ApiKey.PRODUCE], PRODUCE_VERSION, 1, "fuzz", body)
