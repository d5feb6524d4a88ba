"""Transcripts: what a controller hears, and whom it then holds for lost.

A script has a line per event, ``milliseconds event``:

    open B S        broker B opens stream S        reset B S      that stream breaks
    beat B [E]      a heartbeat, of epoch E        register B E   a registration is applied
    active/standby  this controller's role         forget B       the broker is unregistered
    tick [DUE]      a tick, meant to come at DUE   undrained      a tick before all was heard

``lost: B reason, …`` after a tick is what must come out of it; nothing else may.
"""

from __future__ import annotations

import pytest

from tidelog.controller.liveness import (
    BecameActive,
    BecameStandby,
    BrokerLiveness,
    BrokerLost,
    BrokerRegistered,
    BrokerUnregistered,
    HeartbeatReceived,
    LivenessEvent,
    LossReason,
    StreamOpened,
    StreamReset,
    Tick,
)
from tidelog.kernel.ids import BrokerEpoch, NodeId, Offset

WORDS = {LossReason.STREAM_RESET: "reset", LossReason.SILENCE: "silence"}


def parse(line: str) -> tuple[float, LivenessEvent]:
    time, word, *numbers = line.split()
    now = float(time)
    n = [int(number) for number in numbers]
    match word:
        case "open":
            return now, StreamOpened(NodeId(n[0]), n[1])
        case "reset":
            return now, StreamReset(NodeId(n[0]), n[1])
        case "beat":
            return now, HeartbeatReceived(NodeId(n[0]), BrokerEpoch(n[1] if n[1:] else 1))
        case "register":
            return now, BrokerRegistered(NodeId(n[0]), BrokerEpoch(n[1]))
        case "forget":
            return now, BrokerUnregistered(NodeId(n[0]))
        case "active":
            return now, BecameActive()
        case "standby":
            return now, BecameStandby()
        case "tick":
            return now, Tick(due_ms=n[0] if n else now, drained=True)
        case "undrained":
            return now, Tick(due_ms=n[0] if n else now, drained=False)
    raise ValueError(line)


def show(lost: list[BrokerLost]) -> str:
    return ", ".join(f"{one.broker} {WORDS[one.reason]}" for one in lost)


def play(script: str) -> BrokerLiveness:
    liveness = BrokerLiveness(grace_ms=300, session_ms=3000)
    for line in filter(None, map(str.strip, script.splitlines())):
        event, _, expected = line.partition("lost:")
        found = show(liveness.step(*parse(event)))
        assert found == expected.strip(), line
    return liveness


TWO_BROKERS = """
    0 register 1 1
    0 register 2 1
    0 open 1 1
    0 open 2 1
    0 beat 1
    0 beat 2
"""

TRANSCRIPTS = {
    "a killed process is lost after the grace": """
        0 active
        100 reset 1 1
        399 tick
        400 tick             lost: 1 reset
        500 tick
    """,
    "a stream that comes back in time is forgiven": """
        0 active
        100 reset 1 1
        350 open 1 2
        350 beat 1
        500 tick
        3300 beat 2
        3349 tick
        3350 tick            lost: 1 silence
    """,
    "a stream that comes back without heartbeats does not prolong the session": """
        0 active
        2900 beat 2
        2900 reset 1 1
        2950 open 1 2
        2999 tick
        3000 tick            lost: 1 silence
    """,
    "the reset of an old stream says nothing about the new one": """
        0 active
        100 open 1 2
        150 reset 1 1
        600 tick
    """,
    "an open stream that is silent for a session is a dead network": """
        0 active
        2000 beat 2
        2999 tick
        3000 tick            lost: 1 silence
        4999 tick
        5000 tick            lost: 2 silence
    """,
    "a broker that is heard again can be lost again": """
        0 active
        100 reset 1 1
        400 tick             lost: 1 reset
        900 open 1 2
        900 beat 1
        1000 reset 1 2
        1300 tick            lost: 1 reset
    """,
    "both at once, in the order of their ids": """
        0 active
        100 reset 2 1
        110 reset 1 1
        500 tick             lost: 1 reset, 2 reset
    """,
    "a stall of 2.5 s fences nobody, although a stream broke meanwhile": """
        0 active
        600 beat 1
        600 beat 2
        3100 undrained 650
        3100 reset 1 1
        3100 open 1 2
        3100 beat 2
        3100 beat 1
        3150 tick
        3400 tick
    """,
    "a stall longer than a session fences nobody either": """
        0 active
        100 beat 1
        100 beat 2
        9000 tick 150
        9050 beat 1
        9050 beat 2
        9100 tick
    """,
    "after a stall a dead broker is still lost, only later": """
        0 active
        100 reset 1 1
        2600 tick 150
        2850 tick            lost: 1 reset
    """,
    "nothing is judged before everything is heard": """
        0 active
        100 reset 1 1
        500 undrained
        500 open 1 2
        500 beat 1
        500 tick
    """,
    "a standby notes and says nothing": """
        100 reset 1 1
        5000 tick
    """,
    "the active controller dies with a broker: its successor knows at once": """
        100 beat 2
        200 reset 1 1
        1500 beat 2
        1600 active
        1600 tick            lost: 1 reset
    """,
    "a successor within the grace waits for the rest of it": """
        1500 beat 2
        1500 beat 1
        1500 reset 1 1
        1600 active
        1600 tick
        1800 tick            lost: 1 reset
    """,
    "silence noted by a standby counts too": """
        2000 beat 2
        3100 active
        3100 tick            lost: 1 silence
    """,
    "a broker never met gets a full session": """
        0 register 3 1
        3000 beat 1
        3000 beat 2
        4000 active
        4000 tick
        6000 beat 1
        6000 beat 2
        6999 tick
        7000 tick            lost: 3 silence
    """,
    "after a change of the guard nobody is judged twice or not at all": """
        0 active
        100 reset 1 1
        400 tick             lost: 1 reset
        500 standby
        600 beat 2
        900 tick
        1000 active
        1000 tick            lost: 1 reset
    """,
    "an earlier incarnation does not keep its successor alive": """
        0 active
        1000 register 1 7
        2000 beat 1 1
        3000 beat 2
        3999 tick
        4000 tick            lost: 1 silence
    """,
    "a new incarnation starts with a clean record": """
        0 active
        100 reset 1 1
        200 register 1 7
        450 tick
        3000 beat 2
        3200 tick            lost: 1 silence
    """,
    "an unregistered broker is nobody's concern": """
        0 active
        100 reset 1 1
        200 forget 1
        3000 beat 2
        9000 tick 9000       lost: 2 silence
    """,
    "who is heard of before its registration is applied is not judged": """
        0 active
        0 open 9 1
        10 beat 9 5
        20 reset 9 1
        900 tick
        1000 register 9 5
        1000 tick            lost: 9 reset
    """,
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcripts(name: str) -> None:
    play(TWO_BROKERS + TRANSCRIPTS[name])


def test_the_loss_names_the_incarnation() -> None:
    liveness = play(TWO_BROKERS + "0 active\n0 beat 1 8\n10 reset 1 1")
    [lost] = liveness.step(400, Tick(400, drained=True))
    assert lost == BrokerLost(NodeId(1), BrokerEpoch(8), LossReason.STREAM_RESET)


def test_the_next_deadline() -> None:
    liveness = play(TWO_BROKERS)
    assert liveness.next_deadline_ms() is None
    liveness.step(0, BecameActive())
    assert liveness.next_deadline_ms() == 3000
    liveness.step(100, StreamReset(NodeId(2), 1))
    assert liveness.next_deadline_ms() == 400
    assert liveness.step(400, Tick(400, drained=True)) != []
    assert liveness.next_deadline_ms() == 3000


def test_a_session_ends_with_its_stream() -> None:
    liveness = play(TWO_BROKERS)
    one, epoch = NodeId(1), BrokerEpoch(1)
    assert liveness.has_session(100, one, epoch)
    assert not liveness.has_session(100, one, BrokerEpoch(2))
    assert not liveness.has_session(100, NodeId(9), epoch)
    assert not liveness.has_session(3000, one, epoch)
    liveness.step(200, StreamReset(one, 1))
    assert not liveness.has_session(201, one, epoch)


def test_how_far_the_brokers_are() -> None:
    liveness = play(TWO_BROKERS)
    one, two = NodeId(1), NodeId(2)
    for broker, offset in ((one, 40), (two, 30)):
        liveness.step(10, HeartbeatReceived(broker, BrokerEpoch(1), Offset(offset)))
    assert liveness.lowest_metadata_offset([one, two]) == 30
    assert liveness.lowest_metadata_offset([one]) == 40
    assert liveness.lowest_metadata_offset([one, NodeId(9)]) == -1
    assert liveness.lowest_metadata_offset([]) is None
