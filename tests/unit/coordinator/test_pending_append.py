"""What a group hears of an append, in which order its log says what."""

from __future__ import annotations

import pytest

from tidelog.coordinator.runtime.pending_append import PendingAppend
from tidelog.kernel.errors import ErrorCode

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
Said = ErrorCode | None
"""An answer, or None: the records are replicated."""


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ([None, ErrorCode.NONE], ["NONE"]),
        ([ErrorCode.NOT_ENOUGH_REPLICAS], ["NOT_ENOUGH_REPLICAS"]),
        (
            [None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND],
            ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"],
        ),
        ([TIMED_OUT], ["delayed"]),
        ([TIMED_OUT, None], ["delayed", "late"]),
        ([None, TIMED_OUT], ["NONE"]),
    ],
)
def test_an_append_is_finished_or_delayed_and_then_late(said: list[Said], heard: list[str]) -> None:
    found: list[str] = []
    pending = PendingAppend(
        lambda code: found.append(code.name),
        lambda: found.append("delayed"),
        lambda: found.append("late"),
    )
    for each in said:
        if each is None:
            pending.replicated(7)
        else:
            pending.answered(each)
    assert found == heard
