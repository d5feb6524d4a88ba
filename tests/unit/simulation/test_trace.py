"""The trace: bounded to read, complete to compare."""

from __future__ import annotations

from tidelog.simulation import Trace


def filled(count: int, capacity: int = 100, last: str = "") -> Trace:
    now_ms = 0.0
    trace = Trace(lambda: now_ms, capacity)
    for number in range(count):
        now_ms = number * 1.5
        trace.note(f"node-{number % 2}", "ticked", number=number)
    if last:
        trace.note("node-1", last)
    return trace


def test_events_print_with_time_and_place() -> None:
    assert filled(2, last="stopped").tail().splitlines() == [
        "      0        0.000 ms  node-0     ticked number=0",
        "      1        1.500 ms  node-1     ticked number=1",
        "      2        1.500 ms  node-1     stopped",
    ]


def test_the_tail_says_how_much_it_leaves_out() -> None:
    trace = filled(50)
    lines = trace.tail(3).splitlines()
    assert lines[0] == "… 47 earlier events"
    assert [line.split()[-1] for line in lines[1:]] == ["number=47", "number=48", "number=49"]
    assert [event.number for event in trace.events("node-0")] == [*range(0, 50, 2)]
    assert trace.tail(1, "node-0").splitlines()[1].endswith("number=48")
    assert trace.tail(0) == "… 50 earlier events"
    assert filled(0).tail() == ""


def test_the_ring_forgets_but_the_digest_does_not() -> None:
    short, long = filled(50, capacity=10), filled(50, capacity=100)
    assert len(short.events()) == 10
    assert short.count == 50
    assert short.digest() == long.digest()
    assert "… 40 earlier events" in short.tail(100)


def test_the_digest_shows_any_difference() -> None:
    digests = [
        filled(50).digest(),
        filled(49).digest(),
        filled(50, last="stopped").digest(),
        filled(50, last="Stopped").digest(),
    ]
    assert len(set(digests)) == 4
    assert filled(50).digest() == digests[0]
