"""The error table against the one read out of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

from tidelog.kernel.errors import ErrorCode

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "tables" / "errors.json"


def test_the_table_is_kafkas() -> None:
    ours = [
        {
            "code": int(code),
            "name": code.name,
            "retriable": code.retriable,
            "refresh_metadata": code.refresh_metadata,
        }
        for code in ErrorCode
    ]
    assert ours == json.loads(GOLDEN.read_text())
    assert len(ours) == 135


def test_codes_compare_and_look_up_as_numbers() -> None:
    assert int(ErrorCode.NONE) == 0
    assert {ErrorCode.NONE: 1}[ErrorCode(0)] == 1
    assert not ErrorCode.NONE
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode["NOT_LEADER_OR_FOLLOWER"] is ErrorCode(6)


def test_messages_are_one_line_and_distinct() -> None:
    messages = [code.message for code in ErrorCode]
    assert all(message and "\n" not in message for message in messages)
    assert len(set(messages)) == len(messages)
