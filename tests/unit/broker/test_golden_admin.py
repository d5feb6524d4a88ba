"""Every administrative call of golden/errors through a session, compared with Kafka's answer.

The calls are made in the order in which Apache Kafka 4.3.1 got them, on connections as then, to a
broker that was set up like that one. Answers must be equal field by field, but for what differs
from run to run (ids of new topics, offsets, times), what has no order, and settings that only one
of the two has. ``DIFFERENCES`` lists the rest with its reasons, and holds only what truly differs.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from golden_masks import SERVED, codes, masked
from golden_replay import (
    CLOSED,
    Plain,
    decoded,
    error_desk,
    error_setup,
    exchange,
)
from protocol_golden import GOLDEN

from tidelog.simulation import World, run_simulation
from tidelog.wire.protocol.apis import APIS


class Difference(NamedTuple):
    ours: tuple[int, ...]
    """The error codes of our answer."""
    reason: str


NO_TRANSACTIONS = "there is no transaction coordinator yet: refused for good"
BETTER_CODE = "Kafka fails without foreseeing it and answers -1"
NO_CLIENT_METRICS = "there are no client metrics subscriptions (KIP-714)"
OTHER_WORDS = "the same code in other words"
DIFFERENCES: dict[tuple[str | None, str | None], Difference] = {
    ("InitProducerId", "init"): Difference((35,), NO_TRANSACTIONS),
    ("InitProducerId", "fence: InitProducerId while open"): Difference((35,), NO_TRANSACTIONS),
    ("InitProducerId", "again"): Difference((35,), NO_TRANSACTIONS),
    ("DescribeConfigs", "client metrics"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "client metrics"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "client metrics unknown key"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "client metrics empty name"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "operation 4"): Difference((42,), BETTER_CODE),
    ("IncrementalAlterConfigs", "operation -1"): Difference((42,), BETTER_CODE),
    ("CreatePartitions", "20000"): Difference((44,), BETTER_CODE),
    ("IncrementalAlterConfigs", "cleaner threads doubled plus one"): Difference(
        (0,), "the number of cleaners may change by any factor at once"
    ),
    ("IncrementalAlterConfigs", "per-broker config on the cluster default"): Difference(
        (42,), "listeners need a restart"
    ),
    ("CreateTopics", "replication factor 2 with one broker"): Difference((38,), OTHER_WORDS),
    ("CreateTopics", "replication factor 32767 with one broker"): Difference((38,), OTHER_WORDS),
    ("CreateTopics", "config leader.replication.throttled.replicas=bad"): Difference(
        (40,), OTHER_WORDS
    ),
    ("CreateTopics", "config cleanup.policy=compact,compact"): Difference(
        (0,), "a list loses repeated entries when it is shown"
    ),
    ("CreateTopics", "config internal.segment.bytes=1000"): Difference(
        (0,), "the answer does not show this hidden setting"
    ),
    ("CreateTopics", "config remote.storage.enable=true"): Difference(
        (40,), "there is no tiered storage; the same code in other words"
    ),
}


def cases() -> list[Plain]:
    lines = (GOLDEN / "errors" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [case for case in found if case["apiKey"] is None or case["apiKey"] in SERVED]


CASES = cases()


@pytest.fixture(scope="module")
def answers() -> dict[int, bytes | str]:
    """What each call got here, by the number of the case."""
    found: dict[int, bytes | str] = {}

    async def replay(world: World) -> None:
        desk = await error_desk(world)
        assert set(desk.handlers) == SERVED
        connections: dict[tuple[str, str], Any] = {}
        for case in CASES:
            name = (case["scenario"], case["connection"])
            if case["step"] == 1:
                connections[name] = desk.connect()
            if name not in connections:
                connections[name] = desk.connect()  # its first steps were other APIs
            found[case["id"]] = await exchange(connections[name], frame_of(case, connections[name]))
        await desk.close()

    run_simulation(replay, seed=1, time_limit_s=3600)
    return found


def frame_of(case: Plain, connection: Any) -> bytes:
    if case["scenario"].endswith("then-close"):
        connection.hang_up()
    return bytes.fromhex(case["requestHex"])


def title(case: Plain) -> str:
    return f"{case['id']} {case['api'] or 'frame'}: {case.get('note')}"[:80]


def both(case: Plain, answer: bytes | str) -> tuple[Any, Any]:
    """Our answer and Kafka's, in a form in which they should be equal."""
    if isinstance(answer, str) or case["outcome"] != "response":
        return ("an answer" if isinstance(answer, bytes) else answer), case["outcome"]
    key, version = case["apiKey"], case["version"]
    recorded = bytes.fromhex(case["responseHex"])[4:]
    known = error_setup()["topicIds"].values()
    ours, theirs = decoded(key, version, answer), decoded(key, version, recorded)
    return masked(ours, known), masked(theirs, known)


@pytest.mark.parametrize("case", CASES, ids=list(map(title, CASES)))
def test_the_answer_is_kafkas(answers: dict[int, bytes | str], case: Plain) -> None:
    ours, theirs = both(case, answers[case["id"]])
    difference = DIFFERENCES.get((case["api"], case.get("note")))
    if difference is None:
        assert ours == theirs
    else:
        assert ours != theirs, "this is no difference any more"
        assert tuple(codes(ours)) == difference.ours


def test_the_cases_are_all_there() -> None:
    assert len(CASES) > 330
    assert {case["apiKey"] for case in CASES} == {*SERVED, None}
    noted = {(case["api"], case.get("note")) for case in CASES}
    assert DIFFERENCES.keys() <= noted


def test_versions_are_those_that_kafka_serves() -> None:
    theirs = json.loads((GOLDEN / "wire" / "api_versions.json").read_text(encoding="utf-8"))["apis"]
    for key in SERVED:
        assert [APIS[key].min_version, APIS[key].max_version] == [
            theirs[str(int(key))]["min"],
            theirs[str(int(key))]["max"],
        ]


def test_an_answer_is_not_a_closed_connection() -> None:
    closed = next(case for case in CASES if case["outcome"] == CLOSED)
    assert both(closed, CLOSED) == (CLOSED, CLOSED)
    ours, theirs = both(closed, bytes(8))
    assert ours != theirs
