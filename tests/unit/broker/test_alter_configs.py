"""Changing settings: what the broker judges itself, and what it leaves to the controller."""

from __future__ import annotations

from typing import Any

import pytest
from admin_desk import Desk, at_desk

from tidelog.broker.context import ControllerRefused
from tidelog.controller.metadata.records import ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> dict[str, Any]:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


RETENTION = ("retention.ms", SET, "77")
CLEANERS = ("log.cleaner.threads", SET, "2")


async def alter(desk: Desk, *resources: dict[str, Any], key: ApiKey | None = None) -> list[Any]:
    key = key or ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = await desk.ask(key, 1, resources=list(resources), validate_only=False)
    return [
        (one.error_code.value, one.error_message, one.resource_type, one.resource_name)
        for one in response.responses
    ]


def test_answers_come_in_the_order_of_the_request() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        answers = await alter(
            desk,
            resource(BROKER, "2", CLEANERS),
            resource(TOPIC, "t", RETENTION),
            resource(LOGGER, "1", ("x", SET, "INFO")),
            resource(TOPIC, "nope", RETENTION),
            resource(BROKER, "1", CLEANERS),
        )
        assert [(code, kind, name) for code, _, kind, name in answers] == [
            (42, BROKER, "2"), (0, TOPIC, "t"), (40, LOGGER, "1"), (3, TOPIC, "nope"),
            (0, BROKER, "1"),
        ]  # fmt: skip
        assert answers[0][1] == "Unexpected broker id, expected 1, but received 2"
        image = desk.cluster.image
        assert dict(image.config(ResourceType.TOPIC, "t")) == {"retention.ms": "77"}
        assert dict(image.config(ResourceType.BROKER, "1")) == {"log.cleaner.threads": "2"}
        assert dict(image.config(ResourceType.BROKER, "2")) == {}

    at_desk(scenario, 1, 2)


def test_what_is_judged_here_alone_is_not_forwarded() -> None:
    async def scenario(desk: Desk) -> None:
        answers = await alter(desk, resource(BROKER, "2", CLEANERS), resource(BROKER, "x"))
        assert [code for code, *_ in answers] == [42, 42]
        assert answers[1][1] == "Node id must be an integer, but it is: x"
        assert desk.cluster.forwarded == []

    at_desk(scenario, 1, 2)


def test_what_nobody_objects_to_goes_as_it_came() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        assert [code for code, *_ in await alter(desk, resource(TOPIC, "t", RETENTION))] == [0]
        assert len(desk.cluster.forwarded) == 1

    at_desk(scenario)


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_a_resource_or_a_name_given_twice_is_refused(key: ApiKey) -> None:
    async def scenario(desk: Desk) -> None:
        for name in ("t", "u"):
            await desk.cluster.create(name, (1,))
        twice = resource(TOPIC, "t", RETENTION)
        answers = await alter(
            desk, twice, resource(TOPIC, "u", RETENTION, RETENTION), twice, key=key
        )
        assert [(code, message) for code, message, *_ in answers] == [
            (42, "Each resource must appear at most once."),
            (42, "Error due to duplicate config keys"),
            (42, "Each resource must appear at most once."),
        ]

    at_desk(scenario)


def test_that_it_is_given_twice_is_said_of_another_broker_too() -> None:
    async def scenario(desk: Desk) -> None:
        answers = await alter(desk, *[resource(BROKER, "2", CLEANERS)] * 2)
        assert {message for _, message, *_ in answers} == {
            "Each resource must appear at most once."
        }

    at_desk(scenario, 1, 2)


def test_a_refusal_of_the_controller_is_for_those_that_were_sent_there() -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.refusal = ControllerRefused(ErrorCode.NOT_CONTROLLER, "nobody")
        answers = await alter(desk, resource(BROKER, "2"), resource(TOPIC, "t", RETENTION))
        assert [(code, message) for code, message, *_ in answers] == [
            (42, "Unexpected broker id, expected 1, but received 2"),
            (41, "nobody"),
        ]

    at_desk(scenario, 1, 2)


@pytest.mark.parametrize(
    ("name", "changes", "code", "message"),
    [
        ("1", [("x", SET, "INFO")], 40, "Logger x does not exist!"),
        ("1", [("x", DELETE, None)], 40, "Logger x does not exist!"),
        ("1", [("x", APPEND, "INFO")], 42,
         "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [("x", SUBTRACT, "INFO")], 42,
         "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [], 0, None),
        ("2", [("x", SET, "INFO")], 42, "Unexpected broker id, expected 1, but received 2"),
        ("", [("x", SET, "INFO")], 42, "Node id must be an integer, but it is: "),
    ],
)  # fmt: skip
def test_log_levels_cannot_be_changed(
    name: str, changes: list[tuple[str, int, str | None]], code: int, message: str | None
) -> None:
    async def scenario(desk: Desk) -> None:
        [answer] = await alter(desk, resource(LOGGER, name, *changes))
        assert answer == (code, message, LOGGER, name)
        assert desk.cluster.forwarded == []

    at_desk(scenario)


def test_the_older_api_replaces_all_settings() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,), configs={"segment.ms": "5"})
        [answer] = await alter(desk, resource(TOPIC, "t", RETENTION), key=ApiKey.ALTER_CONFIGS)
        assert answer[0] == 0
        assert dict(desk.cluster.image.config(ResourceType.TOPIC, "t")) == {"retention.ms": "77"}

    at_desk(scenario)
