"""The node's own log, for people and for machines."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from tidelog.broker.log_format import formatter


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    logger = logging.Logger("tidelog.made_up")
    made = logger.makeRecord(
        logger.name, logging.WARNING, "file.py", 7, message, arguments, None, extra=extra
    )
    made.created, made.msecs = 1_700_000_000.0625, 62.5
    return made


def parsed(one: logging.LogRecord) -> dict[str, Any]:
    text = formatter("json").format(one)
    assert "\n" not in text
    return dict(json.loads(text))


def test_json_has_the_words_and_the_fields() -> None:
    assert parsed(record("%s leads %d", "t-0", 3, leader_epoch=3, isr=[1, 2])) == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "WARNING",
        "logger": "tidelog.made_up",
        "message": "t-0 leads 3",
        "leader_epoch": 3,
        "isr": [1, 2],
    }


def test_json_takes_whatever_it_is_given() -> None:
    told = parsed(record("line\nbreak", where=ValueError("odd"), time="mine", level=2))
    assert told["message"] == "line\nbreak"
    assert told["where"] == "odd"
    assert (told["time_"], told["level_"], told["level"]) == ("mine", 2, "WARNING")


def test_json_tells_of_exceptions() -> None:
    one = record("failed")
    try:
        raise RuntimeError("why")
    except RuntimeError:
        one.exc_info = sys.exc_info()
    assert parsed(one)["exception"].endswith("RuntimeError: why")


@pytest.mark.parametrize("name", ["human", "json"])
def test_every_format_says_the_message(name: str) -> None:
    assert "t-0 leads" in formatter(name).format(record("t-0 leads"))
    assert "WARNING" in formatter(name).format(record("t-0 leads"))
