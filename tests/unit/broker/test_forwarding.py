"""Requests that the controller decides: what goes there, and what is said without an answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from admin_desk import Desk, at_desk, filled
from golden_masks import codes
from golden_replay import plain

from tidelog.broker.context import ControllerRefused
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request
from tidelog.wire.protocol.kio_codec import kio_bytes

TIMEOUT = {"timeout": timedelta(milliseconds=1234)}
CHANGE = {"name": "retention.ms", "value": "5", "config_operation": 0}
RESOURCES = [
    {"resource_type": 2, "resource_name": "t", "configs": [CHANGE]},
    {"resource_type": 2, "resource_name": "u", "configs": [CHANGE]},
]
REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CREATE_TOPICS: {
        "topics": [
            {"name": name, "num_partitions": 1, "replication_factor": 1,
             "assignments": [], "configs": []}
            for name in ("a", "b")
        ],
        "validate_only": True,
        **TIMEOUT,
    },
    ApiKey.DELETE_TOPICS: {
        "topics": [{"name": "a", "topic_id": None}, {"name": "b", "topic_id": None}],
        "topic_names": ["a", "b"],
        **TIMEOUT,
    },
    ApiKey.CREATE_PARTITIONS: {
        "topics": [{"name": name, "count": 9, "assignments": None} for name in ("a", "b")],
        "validate_only": True,
        **TIMEOUT,
    },
    ApiKey.ALTER_CONFIGS: {"resources": RESOURCES, "validate_only": True},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": RESOURCES, "validate_only": True},
    ApiKey.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "a", "partitions": [0, 1]}],
        **TIMEOUT,
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [
            {"name": "a", "partitions": [{"partition_index": i, "replicas": [1]} for i in (0, 1)]}
        ],
        "allow_replication_factor_change": False,
        **TIMEOUT,
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None, **TIMEOUT},
    ApiKey.UPDATE_FEATURES: {
        "feature_updates": [{"feature": "f", "max_version_level": 1, "allow_downgrade": False,
                             "upgrade_type": 1}],
        "validate_only": True,
        **TIMEOUT,
    },
    ApiKey.UNREGISTER_BROKER: {"broker_id": 3},
    ApiKey.ADD_RAFT_VOTER: {
        "cluster_id": None, "voter_id": 3, "voter_directory_id": None, "listeners": [],
        "ack_when_committed": True, **TIMEOUT,
    },
    ApiKey.REMOVE_RAFT_VOTER: {"cluster_id": None, "voter_id": 3, "voter_directory_id": None},
}  # fmt: skip
"""Two things wanted of each API that has a list."""
ONE_ANSWER = (
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
)  # fmt: skip
ALL_VERSIONS = [
    (key, version)
    for key in REQUESTS
    for version in range(APIS[key].min_version, APIS[key].max_version + 1)
]


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_the_body_goes_to_the_controller_as_it_came(key: ApiKey, version: int) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.ask(key, version, **REQUESTS[key])
        [sent] = desk.cluster.forwarded
        request_type: Any = APIS[key].load_request_type(version)
        assert (sent.api_key, sent.api_version) == (key, version)
        assert sent.body == kio_bytes(filled(request_type, REQUESTS[key]))
        assert (sent.client_id, sent.listener_name) == ("desk", "PLAINTEXT")
        assert sent.client_address == "10.0.0.7:50000"
        has_timeout = "timeout" in REQUESTS[key]
        assert desk.cluster.timeouts_ms == [1234 if has_timeout else 30_000]

    at_desk(scenario)


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_a_refusal_is_told_for_everything_that_was_asked(key: ApiKey, version: int) -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.refusal = ControllerRefused(ErrorCode.NOT_CONTROLLER, "nobody is active")
        response = plain(await desk.ask(key, version, **REQUESTS[key]))
        assert codes(response) == [41] * (1 if key in ONE_ANSWER else 2)
        words = [message for message in messages(response) if message is not None]
        if "error_message" in str(response):
            assert set(words) == {"nobody is active"}

    at_desk(scenario)


def messages(response: Any) -> list[str | None]:
    if isinstance(response, list):
        return [message for one in response for message in messages(one)]
    if not isinstance(response, dict):
        return []
    own = [response["error_message"]] if "error_message" in response else []
    return own + [message for one in response.values() for message in messages(one)]


@pytest.mark.parametrize("key", [key for key in REQUESTS if "timeout" in REQUESTS[key]])
def test_no_answer_in_time_is_a_time_out(key: ApiKey) -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.gate.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = plain(await desk.ask(key, APIS[key].max_version, **REQUESTS[key]))
        assert set(codes(response)) == {7}
        assert loop.time() - began == pytest.approx(1.234)

    at_desk(scenario)


@pytest.mark.parametrize("milliseconds", [0, -1])
def test_who_does_not_wait_gets_no_change(milliseconds: int) -> None:
    async def scenario(desk: Desk) -> None:
        fields = {
            **REQUESTS[ApiKey.CREATE_TOPICS],
            "timeout": timedelta(milliseconds=milliseconds),
            "validate_only": False,
        }
        response = plain(await desk.ask(ApiKey.CREATE_TOPICS, 7, **fields))
        assert codes(response) == [7, 7]
        assert desk.cluster.forwarded == []
        assert not desk.cluster.image.topics.by_name

    at_desk(scenario)


def test_bytes_after_the_body_do_not_disturb() -> None:
    """librdkafka leaves some behind a request now and then."""

    async def scenario(desk: Desk) -> None:
        client = desk.connect()
        request_type: Any = APIS[ApiKey.CREATE_TOPICS].load_request_type(7)
        fields = {**REQUESTS[ApiKey.CREATE_TOPICS], "validate_only": False}
        body = kio_bytes(filled(request_type, fields)) + b"\1\0\0"
        client.send(frame_request(APIS[ApiKey.CREATE_TOPICS], 7, 1, None, body))
        assert await client.receive() is not None
        assert sorted(desk.cluster.image.topics.by_name) == ["a", "b"]

    at_desk(scenario)


def test_while_one_client_waits_for_the_controller_others_are_served() -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.gate.clear()
        waiting = desk.connect()
        request_type: Any = APIS[ApiKey.CREATE_TOPICS].load_request_type(7)
        body = kio_bytes(filled(request_type, REQUESTS[ApiKey.CREATE_TOPICS]))
        waiting.send(frame_request(APIS[ApiKey.CREATE_TOPICS], 7, 1, None, body))
        response = await desk.ask(
            ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False
        )
        assert response.error_code.value == 0
        assert waiting.frames_written == 0

    at_desk(scenario)
