"""Levels of loggers, changed while the node runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from admin_desk import Desk, at_desk

from tidelog.broker import log_levels
from tidelog.wire.protocol.apis import ApiKey

SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "tidelog.broker.made_up"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.root.level
    logging.getLogger(NAME)
    yield
    logging.root.setLevel(root)
    for name in (NAME, "tidelog.broker", "tidelog"):
        logging.getLogger(name).setLevel(logging.NOTSET)


async def alter(
    desk: Desk, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    one: dict[str, Any] = {"resource_type": 8, "resource_name": "1", "configs": configs}
    response = await desk.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[one], validate_only=validate_only
    )
    [answer] = response.responses
    assert desk.cluster.forwarded == []
    return answer.error_code.value, answer.error_message


def test_a_level_is_set_and_taken_back() -> None:
    async def scenario(desk: Desk) -> None:
        logging.root.setLevel(logging.WARNING)
        assert await alter(desk, (NAME, SET, "DEBUG")) == (0, None)
        assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
        assert log_levels.level_of(NAME) == "DEBUG"
        assert await alter(desk, (NAME, DELETE, None)) == (0, None)
        assert log_levels.level_of(NAME) == "WARN"

    at_desk(scenario)


def test_a_level_holds_for_what_is_below() -> None:
    async def scenario(desk: Desk) -> None:
        assert await alter(desk, ("tidelog.broker", SET, "ERROR"), ("root", SET, "INFO")) == (
            0,
            None,
        )
        assert log_levels.level_of(NAME) == "ERROR"
        assert log_levels.level_of("root") == "INFO"

    at_desk(scenario)


def test_what_is_only_validated_changes_nothing() -> None:
    async def scenario(desk: Desk) -> None:
        before = log_levels.level_of(NAME)
        assert await alter(desk, (NAME, SET, "TRACE"), validate_only=True) == (0, None)
        assert log_levels.level_of(NAME) == before

    at_desk(scenario)


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ((NAME, SET, "LOUD"), 40, "Cannot set the log level of"),
        ((NAME, SET, None), 40, "Valid log levels are FATAL, ERROR, WARN, INFO, DEBUG, TRACE"),
        (("no.such.Logger", SET, "DEBUG"), 40, "Logger no.such.Logger does not exist!"),
        (("no.such.Logger", DELETE, None), 40, "Logger no.such.Logger does not exist!"),
        (("root", DELETE, None), 42, "Removing the log level of the root logger"),
        ((NAME, APPEND, "DEBUG"), 42, "APPEND operation is not allowed"),
        ((NAME, SUBTRACT, "DEBUG"), 42, "SUBTRACT operation is not allowed"),
        ((NAME, 9, "DEBUG"), 42, "9 operation is not allowed"),
    ],
)
def test_one_bad_change_refuses_them_all(
    change: tuple[str, int, str | None], code: int, says: str
) -> None:
    async def scenario(desk: Desk) -> None:
        before = log_levels.level_of("tidelog.broker")
        other = "ERROR" if before != "ERROR" else "INFO"
        answer = await alter(desk, ("tidelog.broker", SET, other), change)
        assert answer[0] == code
        assert says in (answer[1] or "")
        assert log_levels.level_of("tidelog.broker") == before

    at_desk(scenario)


@pytest.mark.parametrize(
    ("number", "level"), [(60, "FATAL"), (50, "FATAL"), (30, "WARN"), (25, "INFO"), (1, "TRACE")]
)
def test_levels_of_python_have_kafkas_names(number: int, level: str) -> None:
    logging.getLogger(NAME).setLevel(number)
    assert log_levels.level_of(NAME) == level
