"""DescribeConfigs: values, where they come from, and what is not shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from admin_desk import Desk, at_desk, filled

from tidelog.broker.handlers import describe_configs
from tidelog.controller.metadata.records import Config, ResourceType
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.group_table import GROUP_SETTINGS
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import Kind, Room, Setting
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request, parse_response_header
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NEWEST = APIS[ApiKey.DESCRIBE_CONFIGS].max_version


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }


async def describe(
    desk: Desk, *resources: dict[str, Any], version: int = NEWEST, docs: bool = False
) -> Any:
    return await desk.ask(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=list(resources),
        include_synonyms=True,
        include_documentation=docs,
    )


async def one(desk: Desk, kind: int, name: str, key: str) -> Any:
    [result] = (await describe(desk, resource(kind, name, key))).results
    assert result.error_code.value == 0, result.error_message
    [config] = result.configs
    return config


def told(config: Any) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    synonyms = [(s.name, s.value, s.source) for s in config.synonyms]
    return config.value, config.config_source, synonyms


def for_broker(broker: str, name: str, value: str) -> Config:
    return Config(ResourceType.BROKER, broker, name, value)


def test_a_topic_setting_tells_everything_that_could_decide_it() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,), configs={"retention.ms": "1"})
        await desk.cluster.take(
            for_broker("1", "log.retention.ms", "2"), for_broker("", "log.retention.ms", "3")
        )
        assert told(await one(desk, TOPIC, "t", "retention.ms")) == (
            "1",
            1,
            [
                ("retention.ms", "1", 1),
                ("log.retention.ms", "2", 2),
                ("log.retention.ms", "3", 3),
                ("log.retention.hours", "4", 4),
            ],
        )

    at_desk(scenario, settings=Settings.of({"log.retention.hours": "4"}))


def test_a_topic_setting_falls_back_step_by_step() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        found = await one(desk, TOPIC, "t", "retention.ms")
        assert told(found) == ("14400000", 4, [("log.retention.hours", "4", 4)])
        await desk.cluster.take(for_broker("", "log.retention.ms", "3"))
        assert told(await one(desk, TOPIC, "t", "retention.ms"))[:2] == ("3", 3)
        await desk.cluster.take(for_broker("1", "log.retention.ms", "2"))
        assert told(await one(desk, TOPIC, "t", "retention.ms"))[:2] == ("2", 2)
        assert told(await one(desk, TOPIC, "t", "segment.ms")) == ("604800000", 5, [])

    at_desk(scenario, settings=Settings.of({"log.retention.hours": "4"}))


def test_a_broker_tells_every_setting_with_its_type() -> None:
    async def scenario(desk: Desk) -> None:
        [result] = (await describe(desk, resource(BROKER, "1"), docs=True)).results
        shown = {config.name: config for config in result.configs}
        assert shown.keys() == {row.name for row in BROKER_SETTINGS.values() if not row.hidden}
        for name, config in shown.items():
            row = BROKER_SETTINGS[name]
            assert (config.config_type, config.documentation) == (row.kind.value, row.doc)
        assert shown["log.dirs"].read_only and not shown["max.connections"].read_only

    at_desk(scenario)


def test_a_broker_tells_its_dynamic_settings() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.take(
            for_broker("1", "max.connections", "5"), for_broker("", "max.connections", "6")
        )
        assert told(await one(desk, BROKER, "1", "max.connections")) == (
            "5",
            2,
            [
                ("max.connections", "5", 2),
                ("max.connections", "6", 3),
                ("max.connections", "7", 4),
                ("max.connections", "2147483647", 5),
            ],
        )
        [result] = (await describe(desk, resource(BROKER, ""))).results
        values = {config.name: told(config) for config in result.configs}
        assert values["max.connections"] == ("6", 3, [("max.connections", "6", 3)])
        assert values.keys() == {"max.connections", "min.insync.replicas"}

    at_desk(scenario, settings=Settings.of({"max.connections": "7"}))


def test_what_no_table_has_may_be_a_secret() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.take(for_broker("1", "my.secret", "x"), for_broker("", "other", "y"))
        config = await one(desk, BROKER, "1", "my.secret")
        assert (config.value, config.is_sensitive, config.config_type) == (None, True, 0)
        assert (await one(desk, BROKER, "", "other")).value is None

    at_desk(scenario)


def test_passwords_are_never_shown() -> None:
    row = Setting("my.password", Kind.PASSWORD, None, Room.BROKER, "A secret.")
    shown = describe_configs.entry(row, "hunter2", (), read_only=False)
    assert (shown.value, shown.is_sensitive) == (None, True)


def test_hidden_settings_are_shown_where_they_are_set() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        await desk.cluster.create("small", (1,), configs={"internal.segment.bytes": "1000"})
        [plain, small] = (
            await describe(desk, resource(TOPIC, "t"), resource(TOPIC, "small"))
        ).results
        assert len(small.configs) == len(plain.configs) + 1
        shown = {row.name for row in TOPIC_SETTINGS.values() if not row.hidden}
        assert {config.name for config in plain.configs} == shown

    at_desk(scenario)


def test_a_value_that_cannot_be_read_is_not_told() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,), configs={"retention.ms": "a newer node's"})
        assert told(await one(desk, TOPIC, "t", "retention.ms")) == ("604800000", 5, [])

    at_desk(scenario)


def test_groups_have_settings_of_their_own() -> None:
    async def scenario(desk: Desk) -> None:
        name = "consumer.session.timeout.ms"
        await desk.cluster.take(Config(ResourceType.GROUP, "g", name, "50000"))
        own = await one(desk, GROUP, "g", name)
        broker = ("group.consumer.session.timeout.ms", "45000", 5)
        assert told(own) == ("50000", 8, [(name, "50000", 8), broker])
        assert told(await one(desk, GROUP, "other", name))[:2] == ("45000", 5)
        [result] = (await describe(desk, resource(GROUP, "g"))).results
        assert [config.name for config in result.configs] == list(GROUP_SETTINGS)

    at_desk(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", 3), (TOPIC, "bad name", 17), (BROKER, "2", 42), (BROKER, "x", 42),
        (LOGGER, "2", 42), (METRICS, "m", 42), (GROUP, "", 42), (99, "x", 42),
        (-1, "x", 42),
    ],
)  # fmt: skip
def test_what_cannot_be_described_says_why(kind: int, name: str, code: int) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        response = await describe(desk, resource(kind, name), resource(TOPIC, "t"))
        assert [result.error_code.value for result in response.results] == [code, 0]
        assert response.results[0].configs == ()

    at_desk(scenario, 1, 2)


def test_loggers_are_described_with_the_level_in_effect() -> None:
    async def scenario(desk: Desk) -> None:
        response = await describe(desk, resource(LOGGER, "1"))
        [result] = response.results
        assert result.error_code.value == 0
        levels = {one.name: one.value for one in result.configs}
        assert {"root", "tidelog.broker", "tidelog.request", "tidelog.state_change"} <= set(levels)
        assert set(levels.values()) <= {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}
        first = result.configs[0]
        assert (first.config_source, first.read_only, first.is_sensitive) == (6, False, False)
        only = await describe(desk, resource(LOGGER, "1", "tidelog.request"))
        assert [one.name for one in only.results[0].configs] == ["tidelog.request"]

    at_desk(scenario)


@pytest.mark.parametrize("version", range(1, NEWEST + 1))
def test_the_response_is_kios_in_every_version(version: int) -> None:
    """It is put together from pieces; kio would have written the same bytes."""

    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        for resources in ([], [resource(TOPIC, "t"), resource(BROKER, "1"), resource(TOPIC, "x")]):
            api = APIS[ApiKey.DESCRIBE_CONFIGS]
            fields = {"resources": resources, "include_synonyms": True}
            request_type: Any = api.load_request_type(version)
            body = kio_bytes(filled(request_type, {**fields, "include_documentation": True}))
            client = desk.connect()
            client.send(frame_request(api, version, 1, None, body))
            frame = await client.receive()
            assert frame is not None
            _, answer = parse_response_header(api, version, frame)
            decoded = decode_response(api.key, version, answer)
            assert kio_bytes(decoded) == bytes(answer)

    at_desk(scenario)


def test_many_resources_are_described_with_pauses() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.get_running_loop().create_task(count())
        response = await describe(desk, *[resource(TOPIC, "t")] * 100)
        other.cancel()
        assert len(response.results) == 100
        assert turns >= 6

    at_desk(scenario)
