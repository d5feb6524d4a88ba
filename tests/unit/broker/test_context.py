"""Settings that change while the broker runs, and brokers as a listener's clients see them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from admin_desk import Desk, at_desk
from controller_cluster import directory
from pretended_cluster import address_of

from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.records import (
    BrokerRegistrationChange,
    Config,
    NoOp,
    ResourceType,
    UnregisterBroker,
)
from tidelog.kernel.ids import NO_NODE, LeaderEpoch, NodeId, PartitionEpoch
from tidelog.kernel.settings import Settings
from tidelog.wire.protocol.apis import ApiKey

ALL_BROKERS = ""


def set_for(broker: str, name: str, value: str | None) -> Config:
    return Config(ResourceType.BROKER, broker, name, value)


# Settings.


def test_a_broker_runs_with_what_it_was_started_with() -> None:
    async def scenario(desk: Desk) -> None:
        assert desk.context.settings.get_int("max.connections") == 50

    at_desk(scenario, settings=Settings.of({"max.connections": "50"}))


def test_dynamic_settings_take_effect_and_go_again() -> None:
    async def scenario(desk: Desk) -> None:
        def effective() -> int:
            return desk.context.settings.get_int("max.connections")

        await desk.cluster.take(set_for(ALL_BROKERS, "max.connections", "60"))
        assert effective() == 60
        await desk.cluster.take(set_for("1", "max.connections", "70"))
        assert effective() == 70
        await desk.cluster.take(set_for("2", "max.connections", "80"))
        assert effective() == 70
        await desk.cluster.take(set_for("1", "max.connections", None))
        assert effective() == 60
        await desk.cluster.take(set_for(ALL_BROKERS, "max.connections", None))
        assert effective() == 50

    at_desk(scenario, 1, 2, settings=Settings.of({"max.connections": "50"}))


def test_followers_hear_of_changes_only() -> None:
    heard: list[int] = []

    async def scenario(desk: Desk) -> None:
        context = desk.context
        context.follow(lambda settings: heard.append(settings.get_int("max.connections")))
        for record in (
            NoOp(),
            set_for(ALL_BROKERS, "max.connections", "60"),
            set_for("2", "max.connections", "99"),
            Config(ResourceType.TOPIC, "t", "retention.ms", "5"),
            set_for("1", "max.connections", "70"),
        ):
            await desk.cluster.take(record)
            context.refresh()
            context.refresh()

    at_desk(scenario, 1, 2, settings=Settings.of({"max.connections": "50"}))
    assert heard == [50, 60, 70]


def test_settings_that_cannot_be_read_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.take(
            set_for(ALL_BROKERS, "max.connections", "60"),
            set_for("1", "max.connections", "a newer node's value"),
            set_for(ALL_BROKERS, "log.dirs", "read-only here"),
        )
        for _ in range(3):
            desk.context.refresh()
        assert desk.context.settings.get_int("max.connections") == 60

    at_desk(scenario)
    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(logged) == 2
    assert "log.dirs" in logged[0] and "max.connections" in logged[1]


def test_a_topic_inherits_what_its_broker_runs_with() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("own", (1,), configs={"retention.ms": "7"})
        await desk.cluster.create("inherits", (1,))
        await desk.cluster.take(set_for(ALL_BROKERS, "log.retention.ms", "9"))
        found = [desk.context.topic_config(name).retention_ms for name in ("own", "inherits")]
        assert found == [7, 9]

    at_desk(scenario)


def test_a_topic_whose_settings_cannot_be_read_inherits_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("odd", (1,), configs={"retention.ms": "long"})
        assert desk.context.topic_config("odd").retention_ms == 604_800_000

    at_desk(scenario)
    assert "topic odd" in caplog.text


def test_a_setting_changed_by_a_client_takes_effect_at_once() -> None:
    async def scenario(desk: Desk) -> None:
        heard: list[int] = []
        desk.context.follow(lambda s: heard.append(s.get_int("max.connections")))
        await alter(desk, "1", "max.connections", "3")
        desk.context.refresh()
        assert heard == [2**31 - 1, 3]

    at_desk(scenario)


async def alter(desk: Desk, broker: str, name: str, value: str) -> None:
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 4, "resource_name": broker, "configs": [change]}
    response: Any = await desk.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    assert response.responses[0].error_code.value == 0, response


# Brokers, as clients see them.


def test_addresses_are_those_of_the_listener() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.start(2, listeners=("PLAINTEXT", "EXTERNAL"), rack="r2")
        await desk.cluster.start(3, listeners=("EXTERNAL",))
        inside, outside = desk.context.view("PLAINTEXT"), desk.context.view("EXTERNAL")
        assert [node.node_id for node in inside.live] == [1, 2]
        told = [(node.node_id, node.host, node.port, node.rack) for node in outside.live]
        at2, at3 = address_of(2, "EXTERNAL"), address_of(3, "EXTERNAL")
        assert told == [(2, at2.host, at2.port, "r2"), (3, at3.host, at3.port, None)]
        assert desk.context.view("NONE").live == ()

    at_desk(scenario)


def test_fenced_brokers_are_registered_but_not_live() -> None:
    async def scenario(desk: Desk) -> None:
        assert desk.context.view("PLAINTEXT").controller_id == 1
        await desk.cluster.fence(1)
        view = desk.context.view("PLAINTEXT")
        assert [node.node_id for node in view.live] == [2, 3]
        assert sorted(view.registered) == [1, 2, 3]
        assert view.controller_id == 2
        assert [view.is_live(NodeId(n)) for n in (1, 2, 9)] == [False, True, False]

    at_desk(scenario, 1, 2, 3)


def test_nobody_is_the_controller_when_nobody_is_there() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.fence(1)
        assert desk.context.view("PLAINTEXT").controller_id == NO_NODE

    at_desk(scenario)


def test_a_view_is_made_anew_only_when_brokers_change() -> None:
    async def scenario(desk: Desk) -> None:
        view = desk.context.view("PLAINTEXT")
        await desk.cluster.take(NoOp())
        await desk.cluster.create("t", (1,))
        assert desk.context.view("PLAINTEXT") is view
        await desk.cluster.fence(2)
        assert desk.context.view("PLAINTEXT") is not view
        await asyncio.sleep(0)

    at_desk(scenario, 1, 2)


def state(*replicas: int, leader: int = 1) -> PartitionState:
    nodes = tuple(map(NodeId, replicas))
    return PartitionState(
        replicas=nodes,
        isr=nodes,
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        directories=tuple(directory(100 + broker) for broker in replicas),
    )


def test_replicas_are_offline_with_their_broker_and_with_their_directory() -> None:
    async def scenario(desk: Desk) -> None:
        cluster = desk.cluster
        epoch = cluster.image.brokers[NodeId(3)].epoch
        await cluster.fence(2)
        await cluster.take(
            BrokerRegistrationChange(NodeId(3), epoch, log_dirs=(directory(999),)),
            UnregisterBroker(NodeId(4), cluster.image.brokers[NodeId(4)].epoch),
        )
        view = desk.context.view("PLAINTEXT")
        assert view.offline(state(1, 2, 3, 4)) == (2, 3, 4)
        assert view.offline(state(1)) == ()
        assert [view.leader(state(1, leader=leader)) for leader in (1, 2, 4, -1)] == [1, 2, -1, -1]
        assert view.known((NodeId(1), NodeId(2), NodeId(4))) == (1, 2)

    at_desk(scenario, 1, 2, 3, 4)


def test_a_replica_that_was_not_placed_yet_is_where_its_broker_is() -> None:
    async def scenario(desk: Desk) -> None:
        unplaced = PartitionState(
            replicas=(NodeId(1),),
            isr=(NodeId(1),),
            leader=NodeId(1),
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            directories=(directory(0),),
        )
        assert desk.context.view("PLAINTEXT").offline(unplaced) == ()
        epoch = desk.cluster.image.brokers[NodeId(1)].epoch
        await desk.cluster.take(BrokerRegistrationChange(NodeId(1), epoch, log_dirs=()))
        assert desk.context.view("PLAINTEXT").offline(unplaced) == (1,)

    at_desk(scenario)
