"""The administrative runs of four clients against Kafka 4.3.1, sent again to our own sessions.

Each run has the frames of one client in the order in which they passed. Those of APIs that are not
served here are left out. ``DIFFERENCES`` lists answers that are not equal, with the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from golden_masks import SERVED, codes, masked
from golden_replay import Plain, decoded, exchange, run_desk
from protocol_golden import GOLDEN

from tidelog.simulation import World, run_simulation
from tidelog.wire.protocol.apis import ApiKey

RUNS = [
    "aiokafka-admin",
    "confluent-admin",
    "java-admin",
    "java-admin-groups",
    "kafka-python-admin",
]
BROKER = 4
DIFFERENCES = {
    ("java-admin", "InitProducerId"): ([15], "fenceProducers needs a transaction coordinator"),
    ("kafka-python-admin", "InitProducerId"): ([14], "here it is the first request of its kind"),
}


def frames(run: str) -> list[Plain]:
    text = (GOLDEN / "wire" / f"{run}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def replay(run: str) -> list[tuple[Plain, Plain, Plain]]:
    """Requests with our answer and Kafka's."""
    found: list[tuple[Plain, Plain, Plain]] = []
    passed = frames(run)

    async def main(world: World) -> None:
        desk = await run_desk(world, passed)
        connections: dict[int, Any] = {}
        for request, recorded in pairs(passed):
            number = request["connection"]
            connection = connections.setdefault(number, None) or desk.connect()
            connections[number] = connection
            answer = await exchange(connection, bytes.fromhex(request["hex"]))
            assert isinstance(answer, bytes), (request["api_name"], answer)
            key, version = request["api_key"], request["version"]
            theirs = decoded(key, version, bytes.fromhex(recorded["hex"])[4:])
            found.append((request, decoded(key, version, answer), theirs))
        await desk.close()

    run_simulation(main, seed=1, time_limit_s=3600)
    return found


def pairs(passed: list[Plain]) -> Iterator[tuple[Plain, Plain]]:
    answers = {
        (frame["connection"], frame["correlation_id"]): frame
        for frame in passed
        if frame["dir"] == "response"
    }
    for frame in passed:
        if frame["dir"] == "request" and frame["api_key"] in SERVED:
            answer = answers.get((frame["connection"], frame["correlation_id"]))
            if answer is not None:  # none if the client hung up first
                yield frame, answer


def comparable(request: Plain, ours: Plain, theirs: Plain) -> tuple[Any, Any]:
    if request["api_key"] == ApiKey.DESCRIBE_CONFIGS:
        for mine, other in zip(ours["results"], theirs["results"], strict=True):
            if mine["resource_type"] == other["resource_type"] == BROKER:
                reduce_to_common_types(mine, other)
    return masked(ours), masked(theirs)


def reduce_to_common_types(mine: Plain, other: Plain) -> None:
    """Two brokers run with other settings, but what both have is of the same type."""
    mine["configs"], other["configs"] = (
        {one["name"]: (one["is_sensitive"], one.get("config_type")) for one in result["configs"]}
        for result in (mine, other)
    )
    common = mine["configs"].keys() & other["configs"].keys()
    assert len(common) > 100
    for result in (mine, other):
        result["configs"] = {name: result["configs"][name] for name in common}


@pytest.mark.parametrize("run", RUNS)
def test_clients_get_kafkas_answers(run: str) -> None:
    answered = replay(run)
    assert len(answered) > 3
    differing: set[tuple[str, str]] = set()
    for request, ours, theirs in answered:
        mine, other = comparable(request, ours, theirs)
        key = (run, request["api_name"])
        if mine != other and key in DIFFERENCES:
            differing.add(key)
            assert codes(mine) == DIFFERENCES[key][0]
            continue
        assert mine == other, request["body"]
    assert differing == {key for key in DIFFERENCES if key[0] == run}
