"""Log lines of several nodes on one screen, and when a fallen node is due again."""

from __future__ import annotations

import pytest

from tidelog.cli.node_log import NodeLog
from tidelog.cli.restarts import Restarts

LINES = [
    (1, "12:00:00.123 INFO    tidelog.broker.node  serving"),
    (1, "12:00:00.124 WARNING tidelog.storage  slow disk"),
    (2, "12:00:00.125 DEBUG   tidelog.raft  tick"),
    (1, "12:00:00.126 ERROR   tidelog.broker  broken"),
    (1, "Traceback (most recent call last):"),
    (2, "  of a detail"),
    (3, "a line before any level"),
    (1, "12:00:00.127 INFO    tidelog.broker  INFORMATION"),
]


@pytest.mark.parametrize(
    ("least", "shown"),
    [("DEBUG", [0, 1, 2, 3, 4, 5, 6, 7]), ("INFO", [0, 1, 3, 4, 6, 7]), ("WARNING", [1, 3, 4, 6]),
     ("ERROR", [3, 4, 6])],
)  # fmt: skip
def test_lines_below_the_level_are_left_out_with_what_belongs_to_them(
    least: str, shown: list[int]
) -> None:
    log = NodeLog(least, colours=False)
    printed = [log.shown(node_id, line) for node_id, line in LINES]
    assert [index for index, line in enumerate(printed) if line is not None] == shown


def test_a_line_says_whose_it_is() -> None:
    assert NodeLog("INFO", colours=False).shown(2, "INFO up") == "[2] INFO up"
    assert NodeLog("INFO", colours=True).shown(2, "INFO up") == "\x1b[35m[2]\x1b[0m INFO up"


def test_a_level_inside_a_message_counts_for_nothing() -> None:
    log = NodeLog("ERROR", colours=False)
    assert log.shown(1, "INFO tidelog  an ERROR was answered") is None


def test_restarts_come_later_and_later() -> None:
    restarts = Restarts()
    now_s, delays = 0.0, []
    for _ in range(7):
        delay_s = restarts.ended(1, now_s)
        assert restarts.due(now_s + delay_s - 0.01) == []
        now_s += delay_s
        assert restarts.due(now_s) == [1]
        assert restarts.due(now_s) == []
        delays.append(delay_s)
    assert delays == [1, 2, 4, 8, 16, 30, 30]


def test_a_long_life_is_forgiven() -> None:
    restarts = Restarts()
    restarts.ended(1, 0.0)
    restarts.due(1.0)
    assert restarts.ended(1, 11.0) == 1
    restarts.due(12.0)
    assert restarts.ended(1, 13.0) == 2


def test_nodes_are_counted_apart() -> None:
    restarts = Restarts()
    assert [restarts.ended(node_id, 0.0) for node_id in (3, 1, 2)] == [1, 1, 1]
    assert restarts.due(1.0) == [1, 2, 3]
