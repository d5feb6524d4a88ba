"""JSON files that name partitions, as Kafka's tools take them, and partitions named by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tidelog.cli.brokers import Place
from tidelog.cli.failures import WrongUse

T = TypeVar("T")


def read_json(path: Path) -> Any:
    """``-`` is standard input."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError) as error:
        raise WrongUse(f"{path}: {error}") from None


def partitions_of(
    document: Any, path: Path, example: str, value: Callable[[Mapping[str, Any]], T]
) -> dict[Place, T]:
    """The list ``partitions`` of such a file; ``value`` reads what else an entry has."""
    found: dict[Place, T] = {}
    try:
        for entry in document["partitions"]:
            topic, partition = entry["topic"], entry["partition"]
            if not isinstance(topic, str) or type(partition) is not int or partition < 0:
                raise ValueError(f"{entry}")
            if (topic, partition) in found:
                raise ValueError(f"{topic}-{partition} is named twice")
            found[topic, partition] = value(entry)
    except KeyError as error:
        raise WrongUse(f"{path}: {error} is missing; it must look like {example}") from None
    except (TypeError, ValueError) as error:
        raise WrongUse(f"{path}: {error}; it must look like {example}") from None
    if not found:
        raise WrongUse(f"{path}: names no partition; it must look like {example}")
    return found


def dashed(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def parse_numbers(option: str, text: str) -> list[int]:
    """``1,2,3``."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise WrongUse(f"{option} {text}: numbers joined by commas, as in 1,2,3")
    return [int(part) for part in parts]
