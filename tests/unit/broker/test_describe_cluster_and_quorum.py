"""What tools ask first: APIs and features, the brokers, the metadata quorum."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from admin_desk import Desk, at_desk
from pretended_cluster import address_of

from tidelog.broker.context import ControllerRefused
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import FeatureLevel
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.settings import Settings
from tidelog.wire.protocol.apis import APIS, ApiKey

# ApiVersions.

SOFTWARE: dict[str, Any] = {"client_software_name": "a.b-c", "client_software_version": "1"}


@pytest.mark.parametrize("version", range(5))
def test_exactly_what_has_a_handler_is_advertised(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        response = await desk.ask(ApiKey.API_VERSIONS, version, **SOFTWARE)
        told = {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
        assert told == {
            key: (APIS[key].min_version, APIS[key].max_version) for key in desk.handlers
        }
        assert response.error_code.value == 0

    at_desk(scenario)


def test_features_are_those_of_this_node_and_those_of_the_cluster() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.take(FeatureLevel("transaction.version", 1))
        response = await desk.ask(ApiKey.API_VERSIONS, 4, **SOFTWARE)
        supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
        assert supported == dict(SUPPORTED_FEATURES)
        finalized = {f.name: f.max_version_level for f in response.finalized_features}
        assert finalized == {
            **{name: high for name, (_, high) in SUPPORTED_FEATURES.items()},
            "transaction.version": 1,
        }
        assert response.finalized_features_epoch == desk.cluster.image.offset

    at_desk(scenario)


def test_before_version_4_no_feature_starts_at_0() -> None:
    async def scenario(desk: Desk) -> None:
        response = await desk.ask(ApiKey.API_VERSIONS, 3, **SOFTWARE)
        assert [f.name for f in response.supported_features] == ["metadata.version"]

    at_desk(scenario)


def test_a_broker_without_metadata_answers_too() -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.controller._committed = MetadataImage()
        response = await desk.ask(ApiKey.API_VERSIONS, 4, **SOFTWARE)
        assert response.error_code.value == 0
        assert response.finalized_features_epoch == -1
        assert response.finalized_features == ()

    at_desk(scenario)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ä", "a\n"])
def test_software_without_a_proper_name_is_refused(name: str) -> None:
    async def scenario(desk: Desk) -> None:
        for fields in (
            {**SOFTWARE, "client_software_name": name},
            {**SOFTWARE, "client_software_version": name},
        ):
            response = await desk.ask(ApiKey.API_VERSIONS, 3, **fields)
            assert (response.error_code.value, response.api_keys) == (42, ())

    at_desk(scenario)


# DescribeCluster.


async def cluster(desk: Desk, version: int = 2, **fields: Any) -> Any:
    given = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    return await desk.ask(ApiKey.DESCRIBE_CLUSTER, version, **{**given, **fields})


@pytest.mark.parametrize("version", range(3))
def test_the_live_brokers_are_told(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.fence(2)
        response = await cluster(desk, version)
        told = [(b.broker_id, b.host, b.port) for b in response.brokers]
        at1, at3 = address_of(1), address_of(3)
        assert told == [(1, at1.host, at1.port), (3, at3.host, at3.port)]
        assert (response.controller_id, response.cluster_id) == (1, desk.context.cluster_id)

    at_desk(scenario, 1, 2, 3)


def test_fenced_brokers_are_told_if_asked_for() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.fence(2)
        response = await cluster(desk, include_fenced_brokers=True)
        assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, True)]

    at_desk(scenario, 1, 2)


@pytest.mark.parametrize(("endpoint_type", "code"), [(1, 0), (2, 114), (0, 115), (-1, 115)])
def test_only_brokers_are_to_be_found_here(endpoint_type: int, code: int) -> None:
    async def scenario(desk: Desk) -> None:
        response = await cluster(desk, endpoint_type=endpoint_type)
        assert response.error_code.value == code
        assert len(response.brokers) == (1 if code == 0 else 0)

    at_desk(scenario)


# DescribeQuorum.


async def quorum(desk: Desk, version: int, *topics: tuple[str, int]) -> Any:
    wanted = [
        {"topic_name": name, "partitions": [{"partition_index": index}]} for name, index in topics
    ]
    return await desk.ask(ApiKey.DESCRIBE_QUORUM, version, topics=wanted)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_described_as_its_leader_sees_it(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        response = await quorum(desk, version, ("__cluster_metadata", 0), ("t", 0))
        metadata, other = (topic.partitions[0] for topic in response.topics)
        assert (metadata.leader_id, metadata.leader_epoch) == (1, 1)
        assert metadata.high_watermark == desk.cluster.image.offset + 1
        assert [voter.replica_id for voter in metadata.current_voters] == [1]
        assert (other.error_code.value, other.current_voters) == (3, ())
        if version >= 1:
            assert metadata.current_voters[0].last_fetch_timestamp == 7
        if version >= 2:
            [node] = response.nodes
            assert (node.node_id, node.listeners[0].host) == (1, "controller1")
            assert node.listeners[0].name == "CONTROLLER"

    at_desk(scenario)


def test_a_voter_s_listener_has_the_name_it_was_given() -> None:
    async def scenario(desk: Desk) -> None:
        response = await quorum(desk, 2, ("__cluster_metadata", 0))
        assert response.nodes[0].listeners[0].name == "QUORUM"

    at_desk(scenario, settings=Settings.of({"controller.listener.names": "quorum,other"}))


def test_nobody_is_asked_about_other_partitions() -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.refusal = ControllerRefused(ErrorCode.NOT_CONTROLLER)
        response = await quorum(desk, 2, ("__cluster_metadata", 1), ("t", 0))
        assert [topic.partitions[0].error_code.value for topic in response.topics] == [3, 3]
        assert response.nodes == ()

    at_desk(scenario)


@pytest.mark.parametrize("version", range(3))
def test_a_quorum_that_cannot_be_asked_is_an_error(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.refusal = ControllerRefused(ErrorCode.REQUEST_TIMED_OUT, "nobody answered")
        response = await quorum(desk, version, ("__cluster_metadata", 0))
        assert (response.error_code.value, response.topics) == (7, ())
        if version >= 2:
            assert response.error_message == "nobody answered"

    at_desk(scenario)


# Start-up.


def test_handlers_do_not_load_kio_before_it_is_needed() -> None:
    code = (
        "import sys, tidelog.broker.handlers.administration, tidelog.broker.handlers.api_versions;"
        "print([m for m in sys.modules if m == 'kio' or m.startswith('kio.')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"
