"""A broker's life as transcripts: events on the left, what the machine does on the right."""

from __future__ import annotations

import pytest

from tidelog.controller.client.lifecycle import (
    BecameReady,
    BrokerLifecycle,
    BrokerState,
    EnterState,
    HeartbeatAnswered,
    LifecycleEvent,
    Register,
    Registered,
    RegistrationLost,
    SendHeartbeat,
    ShutdownRequested,
    ShutdownTimedOut,
    UnexpectedEvent,
)
from tidelog.kernel.ids import BrokerEpoch

EVENTS: dict[str, LifecycleEvent] = {
    "registered": Registered(BrokerEpoch(7)),
    "registration lost": RegistrationLost(),
    "ready": BecameReady(),
    "behind": HeartbeatAnswered(is_caught_up=False, is_fenced=True, should_shut_down=False),
    "caught up": HeartbeatAnswered(is_caught_up=True, is_fenced=True, should_shut_down=False),
    "unfenced": HeartbeatAnswered(is_caught_up=True, is_fenced=False, should_shut_down=False),
    "may stop": HeartbeatAnswered(is_caught_up=True, is_fenced=True, should_shut_down=True),
    "stop": ShutdownRequested(),
    "too slow": ShutdownTimedOut(),
}

TRANSCRIPTS = {
    "from start to end": """
        (start)        STARTING -                      wants fence
        registered     STARTING 7                      wants fence    beat
        behind         STARTING 7                      wants fence
        caught up      RECOVERY 7                      wants fence    RECOVERY, beat
        ready          RECOVERY 7                      -              beat
        caught up      RECOVERY 7                      -
        unfenced       RUNNING 7                       -              RUNNING
        unfenced       RUNNING 7                       -
        stop           PENDING 7                       wants shutdown PENDING, beat
        unfenced       PENDING 7                       wants shutdown
        may stop       SHUTTING_DOWN 7                 wants fence    SHUTTING_DOWN
        stop           SHUTTING_DOWN 7                 wants fence
        unfenced       SHUTTING_DOWN 7                 wants fence
        registered     SHUTTING_DOWN 7                 wants fence
    """,
    "ready before it has caught up": """
        (start)        STARTING -                      wants fence
        ready          STARTING -                      -              beat
        registered     STARTING 7                      -              beat
        unfenced       RECOVERY 7                      -              RECOVERY, beat
        unfenced       RUNNING 7                       -              RUNNING
    """,
    "an answer before the registration means nothing": """
        (start)        STARTING -                      wants fence
        caught up      STARTING -                      wants fence
        may stop       STARTING -                      wants fence
    """,
    "fenced while running": """
        (start)        STARTING -                      wants fence
        registered     STARTING 7                      wants fence    beat
        ready          STARTING 7                      -              beat
        caught up      RECOVERY 7                      -              RECOVERY, beat
        unfenced       RUNNING 7                       -              RUNNING
        caught up      RUNNING 7                       -
        unfenced       RUNNING 7                       -
    """,
    "taken off the list while running": """
        (start)        STARTING -                      wants fence
        registered     STARTING 7                      wants fence    beat
        ready          STARTING 7                      -              beat
        caught up      RECOVERY 7                      -              RECOVERY, beat
        unfenced       RUNNING 7                       -              RUNNING
        registration lost STARTING -                   -              STARTING, register
        registration lost STARTING -                   -
        registered     STARTING 7                      -              beat
        registration lost STARTING -                   -              register
        registered     STARTING 7                      -              beat
        caught up      RECOVERY 7                      -              RECOVERY, beat
    """,
    "stopped before it ran": """
        (start)        STARTING -                      wants fence
        registered     STARTING 7                      wants fence    beat
        stop           SHUTTING_DOWN 7                 wants fence    SHUTTING_DOWN
        caught up      SHUTTING_DOWN 7                 wants fence
        registration lost SHUTTING_DOWN 7              wants fence
    """,
    "a hand-over that takes too long": """
        (start)        STARTING -                      wants fence
        too slow       STARTING -                      wants fence
        registered     STARTING 7                      wants fence    beat
        ready          STARTING 7                      -              beat
        caught up      RECOVERY 7                      -              RECOVERY, beat
        unfenced       RUNNING 7                       -              RUNNING
        too slow       RUNNING 7                       -
        stop           PENDING 7                       wants shutdown PENDING, beat
        too slow       SHUTTING_DOWN 7                 wants fence    SHUTTING_DOWN
    """,
    "taken off the list while it stops": """
        (start)        STARTING -                      wants fence
        registered     STARTING 7                      wants fence    beat
        ready          STARTING 7                      -              beat
        caught up      RECOVERY 7                      -              RECOVERY, beat
        unfenced       RUNNING 7                       -              RUNNING
        stop           PENDING 7                       wants shutdown PENDING, beat
        registration lost SHUTTING_DOWN 7              wants fence    SHUTTING_DOWN
    """,
}


def _short(state: BrokerState) -> str:
    return "PENDING" if state is BrokerState.PENDING_CONTROLLED_SHUTDOWN else state.name


def told(life: BrokerLifecycle, event: str) -> str:
    effects = life.step(EVENTS[event]) if event in EVENTS else []
    wants = ("wants fence" if life.wants_fence else "") or (
        "wants shutdown" if life.wants_shut_down else "-"
    )
    words = []
    for effect in effects:
        match effect:
            case SendHeartbeat():
                words.append("beat")
            case Register():
                words.append("register")
            case EnterState(state):
                words.append(_short(state))
    epoch = "-" if life.epoch is None else life.epoch
    return " ".join(f"{event} {_short(life.state)} {epoch} {wants} {', '.join(words)}".split())


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name: str) -> None:
    expected = [" ".join(line.split()) for line in TRANSCRIPTS[name].strip().splitlines()]
    life = BrokerLifecycle()
    events = ["(start)"]
    for line in expected[1:]:
        events.append(max((event for event in EVENTS if line.startswith(event)), key=len))
    assert [told(life, event) for event in events] == expected


def test_a_running_broker_does_not_register() -> None:
    life = BrokerLifecycle()
    for event in ("registered", "ready", "caught up", "unfenced"):
        life.step(EVENTS[event])
    with pytest.raises(UnexpectedEvent, match="RUNNING"):
        life.step(EVENTS["registered"])
