"""Members of groups that are processes: which of their ends fail a test, and which do not."""

from __future__ import annotations

import sys
import warnings

import pytest
from group_run import ClientAborted, ConfluentMember, MemberFailed, Readings

READS = """
import json, os, sys
print(json.dumps({"owned": [0, 2]}))
print(json.dumps({"read": [[2, 7, "seven"]]}), flush=True)
sys.stdin.read()
"""
CLOSES = 'print(json.dumps({"closing": True}), flush=True)\n'
ABORTS = 'print("*** assert: it is wrong ***", file=sys.stderr, flush=True)\nos.abort()\n'


def member(program: str) -> tuple[ConfluentMember, Readings]:
    readings = Readings()
    made = ConfluentMember("m", readings, "nowhere:1", "group", "topic")
    made.program = (sys.executable, "-c", program)
    return made, readings


def run(made: ConfluentMember) -> None:
    """On this thread, told to leave beforehand."""
    made.leaving.set()
    made.consume()


def test_what_a_member_tells_is_noted() -> None:
    made, readings = member(READS + CLOSES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(made)
    assert readings.seen == {(2, 7): b"seven"}
    assert readings.owners == {"m": set()}


def test_an_abort_of_the_client_while_it_closes_is_told_and_no_more() -> None:
    made, readings = member(READS + CLOSES + ABORTS)
    with pytest.warns(ClientAborted, match=r"member m while it closed: \*\*\* assert: it is wrong"):
        run(made)
    assert readings.seen == {(2, 7): b"seven"}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (READS + ABORTS, r"m ended with signal SIGABRT:\n\*\*\* assert: it is wrong"),
        (READS + CLOSES + "sys.exit(3)", "m ended with exit code 3"),
        (READS + CLOSES + "os.kill(os.getpid(), 11)", "m ended with signal SIGSEGV"),
        (READS, "m ended with exit code 0"),
    ],
    ids=["abort-while-reading", "failure-in-close", "fault-in-close", "early-end"],
)
def test_every_other_end_is_a_failure(program: str, said: str) -> None:
    made, _ = member(program)
    with pytest.raises(MemberFailed, match=said):
        run(made)
