"""Frames that clients and Apache Kafka 4.3.1 exchanged, and what Kafka answered to bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


class WireFrame(NamedTuple):
    """One frame, without its size."""

    run: str
    is_request: bool
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    data: bytes


@cache
def wire_frames() -> tuple[WireFrame, ...]:
    return tuple(_wire_frames())


def _wire_frames() -> Iterator[WireFrame]:
    for path in sorted((GOLDEN / "wire").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            frame = json.loads(line)
            yield WireFrame(
                path.stem,
                frame["dir"] == "request",
                frame["api_key"],
                frame["version"],
                frame["correlation_id"],
                frame["client_id"],
                bytes.fromhex(frame["hex"])[4:],
            )


@cache
def error_cases() -> tuple[dict[str, Any], ...]:
    return tuple(
        {**json.loads(line), "file": name}
        for name in ("cases", "security-cases", "epoch-cases")
        for line in (GOLDEN / "errors" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    )


def table(name: str) -> Any:
    return json.loads((GOLDEN / "tables" / f"{name}.json").read_text(encoding="utf-8"))


@cache
def request_frames() -> tuple[bytes, ...]:
    """Every different request, from both collections, without its size."""
    frames = {frame.data for frame in wire_frames() if frame.is_request}
    frames |= {bytes.fromhex(case["requestHex"])[4:] for case in error_cases()}
    return tuple(sorted(frames))
