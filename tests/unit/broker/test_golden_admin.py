"""Every administrative call of golden/errors through a session, compared with Kafka's answer.

The calls are made in the order in which Apache Kafka 4.3.1 got them, on connections as then, to a
broker that was set up like that one. Answers must be equal field by field, but for what differs
from run to run (ids of new topics, offsets, times), what has no order, and settings that only one
of the two has. ``known_differences`` lists the rest with its reasons.
"""

from __future__ import annotations

import json
from typing import Any

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
from known_differences import ADMINISTRATION, WITHOUT_COORDINATOR
from protocol_golden import GOLDEN

from tidelog.simulation import World, run_simulation
from tidelog.wire.protocol.apis import APIS

DIFFERENCES = ADMINISTRATION | WITHOUT_COORDINATOR


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
