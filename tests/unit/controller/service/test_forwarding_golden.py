"""Forwarded requests, byte for byte as Apache Kafka 4.3.1 got and answered them.

Every answer has Kafka's bytes, except where the tables below give a reason. Created topics have
their own ids, and the settings that only one of the two systems has are left out of the comparison.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from controller_cluster import context_of, node

from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.service.admin_codec import VERSIONS
from tidelog.controller.service.controller import Cause
from tidelog.simulation import World, run_simulation
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.frames import parse_request, parse_response_header
from tidelog.wire.protocol.responses import decode_response

if TYPE_CHECKING:
    from tests.unit.controller.service.conftest import Desk

GOLDEN = Path(__file__).parents[3] / "data" / "golden" / "errors"
CREATE_TOPICS = 19
NOT_OURS = {
    "local.retention.bytes",
    "local.retention.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}
ONLY_OURS = {"flush.policy"}

# Another answer than Kafka's, by the note of the case.
OTHER_ANSWERS = {
    "static quorum": "voters can be changed here",
    "wrong cluster id": "judged by the broker",
    "config cleanup.policy=compact,compact": "told once here",
    "operation 4": "Kafka fails without foreseeing it (-1)",
    "operation -1": "Kafka fails without foreseeing it (-1)",
    "20000": "Kafka fails without foreseeing it (-1)",
    "broker 9": "any broker may be asked for any broker",
    "cleaner threads doubled plus one": "a broker's running value, judged there",
    "per-broker config on the cluster default": "listeners need a restart here",
    "log level": "log levels belong to a broker",
    "bad log level": "log levels belong to a broker",
    "unknown logger": "log levels belong to a broker",
    "append to a logger": "log levels belong to a broker",
    "client metrics": "there are no client metrics subscriptions",
    "client metrics unknown key": "there are no client metrics subscriptions",
    "client metrics empty name": "there are no client metrics subscriptions",
    "replication factor 2 with one broker": "there are no cordoned directories here",
    "replication factor -1 with one broker": "there are no cordoned directories here",
    "replication factor 32767 with one broker": "there are no cordoned directories here",
    "config leader.replication.throttled.replicas=bad": "written here",
    "config remote.storage.enable=true": "there is no tiered storage to be enabled",
    "timeout 0": "time-outs are the broker's",
    "timeout -1": "time-outs are the broker's",
}

ALL_ELECTIONS = ("ElectLeaders", "all")
"""Kafka lists the topics in the order of its hash table."""


def cases() -> list[dict[str, Any]]:
    lines = (GOLDEN / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["apiKey"] in VERSIONS]


def request_body(case: dict[str, Any]) -> bytes:
    frame = bytes.fromhex(case["requestHex"])[4:]
    parsed = parse_request(frame)
    return bytes(parsed.body)  # type: ignore[union-attr]


def response_body(case: dict[str, Any]) -> bytes:
    frame = bytes.fromhex(case["responseHex"])[4:]
    return bytes(parse_response_header(APIS[case["apiKey"]], case["version"], frame)[1])


def created_topics(case: dict[str, Any], body: bytes) -> list[Any]:
    """What CreateTopics answered, but for topic ids and the settings of one system only."""
    message: Any = decode_response(case["apiKey"], case["version"], memoryview(body).toreadonly())
    left_out = NOT_OURS | ONLY_OURS
    return [
        (
            topic.name,
            int(topic.error_code),
            topic.error_message,
            topic.num_partitions,
            topic.replication_factor,
            [config for config in topic.configs if config.name not in left_out],
        )
        for topic in message.topics
    ]


async def answer(desk: Desk, case: dict[str, Any]) -> bytes:
    message = pb.ForwardRequest(
        api_key=case["apiKey"], api_version=case["version"], request=request_body(case)
    )
    response = await desk.handlers.forward(context_of(1), message)
    assert response.error_code == 0, response
    return response.response


async def prepare(desk: Desk) -> None:
    """The broker and the topics that Kafka had when it was asked."""
    await desk.add_broker(1)
    setup = json.loads((GOLDEN / "setup.json").read_text(encoding="utf-8"))
    names = [*setup["topicIds"], "__consumer_offsets", "__transaction_state"]
    topics = [
        NewTopic(name, assignments=tuple((i, (node(1),)) for i in range(3 if name == "t3" else 1)))
        for name in names
    ]
    await desk.controller.change(
        Cause("prepare", "test"),
        lambda b: decide_create_topics(b.image, b.policy, topics, b.random),
    )


@pytest.fixture(scope="module")
def answers() -> dict[int, bytes]:
    """All cases, asked in Kafka's order of one controller."""
    from tests.unit.controller.service.conftest import Desk

    async def main(world: World) -> dict[int, bytes]:
        desk = Desk(world, message_max_bytes="1048588")
        await prepare(desk)
        return {case["id"]: await answer(desk, case) for case in cases()}

    return run_simulation(main, seed=1)


CASES = cases()


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case['id']} {case['api']}: {case['note']}"[:80] for case in CASES]
)
def test_answers_have_kafkas_bytes(answers: dict[int, bytes], case: dict[str, Any]) -> None:
    ours, theirs = answers[case["id"]], response_body(case)
    if case["note"] in OTHER_ANSWERS or (case["api"], case["note"]) == ALL_ELECTIONS:
        assert ours != theirs, "take it out of the table"
        return
    if ours != theirs and case["apiKey"] == CREATE_TOPICS:
        assert created_topics(case, ours) == created_topics(case, theirs)
        return
    assert ours == theirs


def test_there_are_cases_for_every_api() -> None:
    assert {case["apiKey"] for case in CASES} == set(VERSIONS)
    assert len(CASES) > 200
