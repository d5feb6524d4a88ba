"""Damaged requests of real clients: decoded or ``MalformedRequest``, in bounded memory.

The limit on address space makes an attempt to reserve gigabytes fail at once, also where the
pages would never be touched.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocol_golden import request_frames, wire_frames

from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import RequestFrame, parse_request, parse_response_header
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.protocol.responses import decode_response

HEADROOM_BYTES = 256 << 20
SMALL_BYTES = 2_000
SEEDS = range(8)
FRAMES_PER_SEED = 4_000


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    in_use = pages * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + HEADROOM_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def damaged(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0 if position < len(data):
                data[position] ^= 1 << chance.randrange(8)
            case 1 if position < len(data):
                data[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                data[position:position] = chance.randbytes(chance.randint(1, 6))
            case 3:
                del data[position : position + chance.randint(1, 6)]
            case 4:
                del data[position:]
            case 5:
                data[position : position + 5] = b"\xff\xff\xff\xff\x0f"
            case _:
                data[position : position + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
    return bytes(data)


def is_readable(frame: bytes) -> bool:
    try:
        parsed = parse_request(frame)
        if isinstance(parsed, RequestFrame):
            decode_request(parsed.api.key, parsed.version, parsed.body)
            return True
    except MalformedRequest:
        pass
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_requests(seed: int) -> None:
    chance = random.Random(seed)
    frames = [frame for frame in request_frames() if len(frame) <= SMALL_BYTES]
    readable = sum(
        is_readable(damaged(chance.choice(frames), chance)) for _ in range(FRAMES_PER_SEED)
    )
    assert FRAMES_PER_SEED * 0.1 < readable < FRAMES_PER_SEED * 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_random_bodies_of_every_api(seed: int) -> None:
    chance = random.Random(seed)
    for api in APIS.values():
        for version in range(api.min_served, api.max_version + 1):
            for _ in range(5):
                body = chance.randbytes(chance.randint(0, 60))
                try:
                    decode_request(api.key, version, memoryview(body))
                except MalformedRequest:
                    continue


def test_damaged_responses() -> None:
    chance = random.Random(3)
    answers = [
        frame
        for frame in wire_frames()
        if not frame.is_request and frame.api_key in APIS and len(frame.data) <= SMALL_BYTES
    ]
    for _ in range(FRAMES_PER_SEED):
        answer = chance.choice(answers)
        try:
            data = damaged(answer.data, chance)
            _, body = parse_response_header(APIS[answer.api_key], answer.version, data)
            decode_response(answer.api_key, answer.version, body)
        except MalformedRequest:
            continue
