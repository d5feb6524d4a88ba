"""A verdict says what is bad, what was measured and what could not be judged."""

from __future__ import annotations

import io
import json

from chaos_scripts import Script
from rich.console import Console

from tidelog.chaos.checkers import Kind
from tidelog.chaos.history import FaultBand, History, RunEnd
from tidelog.chaos.verdict import as_json, judge
from tidelog.chaos.verdict_text import milliseconds, summary

KILL = FaultBand(1, "kill-leader", "node 2", (2,), 1.0, 2.0)


def shown(history: History) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(summary(judge(history)))
    return out.getvalue()


def lossy() -> Script:
    script = Script()
    script.append("a", 0, 0)
    script.append("a", 1, 1)
    script.append("a", 2)
    script.read_all((0, "a", 0), end=1)
    return script


def test_a_good_run() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.read_all((0, "a", 0), end=1)
    verdict = judge(script.history())
    assert verdict.is_good
    assert verdict.caveats == ("No fault acted, though some were asked for.",)
    assert judge(script.history(faults=[KILL])).caveats == ()
    assert verdict.totals.acknowledged == 1
    assert "OK: no anomaly" in shown(script.history())


def test_a_bad_run_names_what_is_lost() -> None:
    history = lossy().history()
    verdict = judge(history)
    assert not verdict.is_good
    assert verdict.counts()[Kind.LOST_WRITE] == 1
    assert verdict.counts()[Kind.DUPLICATE] == 0
    assert verdict.totals.unknown == 1
    text = shown(history)
    assert "lost write: a#1 of events-0" in text
    assert "ANOMALIES: 1 lost write" in text


def test_writes_that_nobody_looked_for_are_told() -> None:
    script = Script()
    script.append("a", 0, 0)
    script.append("a", 1, 1)
    verdict = judge(script.history(faults=[KILL]))
    assert verdict.is_good
    assert verdict.caveats == (
        "2 acknowledged writes of events-0 were not looked for: nobody read it to its end after "
        "them.",
    )


def test_what_went_wrong_in_the_run_itself_is_told() -> None:
    script = Script()
    failed = FaultBand(3, "cut", "1 | 2", (1, 2), 1.0, None, "no rights")
    assert judge(script.history(faults=[failed])).caveats == ("Fault 3 (cut) failed: no rights",)
    assert "cut off" in judge(script.history(is_whole=False)).caveats[0]
    history = script.history()
    interrupted = History(history.header, (), end=RunEnd(1.0, True))
    assert "interrupted" in judge(interrupted).caveats[0]


def test_the_json_is_plain_and_whole() -> None:
    found = json.loads(json.dumps(as_json(judge(lossy().history(faults=[KILL])))))
    assert found["ok"] is False
    assert found["anomaly_counts"]["lost write"] == 1
    assert found["anomalies"][0]["operations"][0]["key"] == "a"
    assert found["faults"][0]["name"] == "kill-leader"
    assert found["effects"][0]["detail"] == "node 2"
    assert found["totals"]["acknowledged"] == 2


def test_only_so_many_anomalies_are_listed() -> None:
    script = Script()
    for number in range(50):
        script.append("a", number, number)
    script.read_all(end=0)
    text = shown(script.history())
    assert text.count("lost write: ") == 20
    assert "and 30 more" in text


def test_times_are_told_in_the_unit_a_person_would_use() -> None:
    assert [milliseconds(value) for value in (None, 0.25, 9.94, 12.3, 999.4, 1500.0)] == [
        "–",
        "0.2 ms",
        "9.9 ms",
        "12 ms",
        "999 ms",
        "1.50 s",
    ]
