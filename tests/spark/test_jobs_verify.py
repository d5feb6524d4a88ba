"""``verify``: Spark's verdict on a history is that of the local checker, anomaly by anomaly."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.spark_history import Shape, count_of, write_history
from tidelog.chaos.checkers import Facts, Kind, check_facts, unjudged_writes
from tidelog.chaos.history import (
    Event,
    FaultBand,
    Operation,
    Outcome,
    Record,
    RunEnd,
    RunHeader,
    Verb,
)
from tidelog.chaos.history_file import HistoryWriter, read_history
from tidelog.cli.chaos_part import judge_part
from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.verify import verify

pytestmark = pytest.mark.spark

OPERATIONS = 110_000
"""A history is made in pieces of 100,000: this one has a seam."""
HEADER = RunHeader(1, "tidelog chaos run", "local", "mixed", (), 1.0, "2025-06-01T00:00:00Z",
                   compacted_topics=("table",))  # fmt: skip


class Run:
    """A run against a log that loses, repeats and moves records now and then."""

    def __init__(self, seed: int, *, has_transactions: bool) -> None:
        self.chance = random.Random(seed)
        self.has_transactions = has_transactions
        self.events: list[Event] = []
        self.logs: dict[tuple[str, int], list[Record | None]] = {}
        self.sequences: dict[tuple[str, str], int] = {}
        self.positions: dict[str, dict[tuple[str, int], int]] = {}

    def note(self, verb: Verb, client: str, **fields: Any) -> None:
        at_ms = float(len(self.events))
        number = len(self.events) + 1
        outcome = fields.pop("outcome", Outcome.OK)
        self.events.append(Operation(number, client, verb, at_ms, at_ms + 0.5, outcome, **fields))

    def append(self, transaction: str = "") -> None:
        chance = self.chance
        topic = chance.choice(["events", "orders", "table"])
        key = f"k{chance.randrange(40)}"
        sequence = self.sequences.get((topic, key), -1) + 1
        self.sequences[topic, key] = sequence
        partition = int(key[1:]) % 4 if chance.random() < 0.999 else chance.randrange(4)
        log = self.logs.setdefault((topic, partition), [])
        record = Record(topic, partition, len(log), key, sequence)
        outcome = chance.choices(list(Outcome), [96, 2, 2])[0]
        if outcome is not Outcome.FAILED or chance.random() < 0.1:
            log.append(None if chance.random() < 0.01 else record)
            if chance.random() < 0.01:
                log.append(Record(topic, partition, len(log), key, sequence))
        known = outcome is Outcome.OK
        self.note(
            Verb.APPEND, f"writer-{key}", outcome=outcome, topic=topic,
            partition=partition if known or chance.random() < 0.5 else -1,
            offset=record.offset if known else None, key=key, sequence=sequence,
            transaction=transaction,
        )  # fmt: skip

    def transaction(self) -> None:
        name = f"transaction-{len(self.events)}"
        for _ in range(self.chance.randrange(1, 4)):
            self.append(name)
        outcome = self.chance.choices(list(Outcome), [90, 5, 5])[0]
        is_commit = self.chance.random() < 0.7
        self.note(
            Verb.END_TRANSACTION, "copier", transaction=name, is_commit=is_commit, outcome=outcome
        )

    def poll(self, client: str, group: str = "") -> None:
        positions = self.positions.setdefault(client, {})
        seen: list[Record] = []
        for place, log in sorted(self.logs.items()):
            start = positions.get(place, 0)
            if self.chance.random() < 0.01:
                start = max(0, start - 2)
            end = min(len(log), start + 20)
            seen += [one for one in log[start:end] if one is not None]
            positions[place] = end
        self.note(Verb.POLL, client, group=group, seen=tuple(seen))

    def commit(self) -> None:
        place = self.chance.choice(sorted(self.logs))
        offset = self.positions.get("c1", {}).get(place, 0) - self.chance.choice([0, 0, 0, 1])
        verb = self.chance.choice([Verb.COMMIT_OFFSET, Verb.FETCH_OFFSET])
        self.note(verb, "c1", group="g", topic=place[0], partition=place[1],
                  offset=max(0, offset))  # fmt: skip

    def read_all(self, client: str) -> None:
        for (topic, partition), log in sorted(self.logs.items()):
            seen = tuple(one for one in log if one is not None and self.chance.random() < 0.995)
            self.note(Verb.POLL, client, seen=seen)
            self.note(Verb.READ_TO_END, client, topic=topic, partition=partition, offset=len(log))

    def run(self, steps: int) -> list[Event]:
        for _ in range(steps):
            match self.chance.randrange(10):
                case 0:
                    self.poll("c1", "g")
                case 1:
                    self.poll("c2")
                case 2 if self.logs:
                    self.commit()
                case 3 if self.has_transactions:
                    self.transaction()
                case _:
                    self.append()
        self.read_all("reader")
        divergences = ("events-0: nodes 1 and 2 differ at 7",)
        cut = FaultBand(1, "cut", "node 1", (1,), 700.0, 900.0)  # what is old then may be old
        return [*self.events, cut, RunEnd(float(len(self.events)), False, divergences)]


@pytest.mark.parametrize("has_transactions", [False, True])
def test_the_verdict_is_that_of_the_local_checker(
    spark: Any, tmp_path: Path, has_transactions: bool
) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path)
    writer.note(HEADER)
    for event in Run(7, has_transactions=has_transactions).run(1200):
        writer.note(event)
    writer.close()
    facts = Facts(read_history(path))
    local = sorted(
        (one.kind.value, one.text, one.topic, one.partition, one.offset)
        for one in check_facts(facts)
    )
    kinds = {one[0] for one in local}
    assert {"lost write", "duplicate", "divergence", "stale group offset"} <= kinds
    assert "torn transaction" in kinds or not has_transactions

    result = verify(spark, str(path), judge_part)
    assert sorted(result.findings) == local
    assert result.summary.facts["writes_not_judged"] == sum(unjudged_writes(facts).values())
    if not has_transactions:
        assert int(str(result.summary.facts["parts"])) > 2


@pytest.mark.parametrize("planted", [0, 4])
def test_every_planted_anomaly_is_found_and_nothing_else(
    spark: Any, tmp_path: Path, planted: int
) -> None:
    """What `make bench-spark-verify` does with a hundred million operations."""
    shape = Shape(OPERATIONS, partitions=16, planted=planted, seed=3)
    path = tmp_path / "history.jsonl"
    write_history(shape, path)
    history = read_history(path)
    assert len(history.operations) == count_of(shape) >= OPERATIONS
    local = sorted(
        (one.kind.value, one.text, one.topic, one.partition, one.offset)
        for one in check_facts(Facts(history))
    )
    result = verify(spark, str(path), judge_part)
    assert result.summary.records == count_of(shape)
    assert sorted(result.findings) == local
    assert Counter((one[0], *one[2:]) for one in local) == Counter(shape.expected)
    kinds = {one[0] for one in local}
    assert kinds == ({kind.value for kind in Kind} if planted else set())
    # Orders have transactions of two partitions, and all else can be judged apart.
    assert result.summary.facts["parts"] == 16 - 2


def test_a_file_that_is_no_history_is_told(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    whole = tmp_path / "whole.jsonl"
    writer = HistoryWriter(whole)
    for event in (HEADER, *Run(1, has_transactions=False).run(20)):
        writer.note(event)
    writer.close()
    lines = whole.read_text().splitlines(keepends=True)
    wrong = {
        "is empty": "",
        "is no line of a history": "".join([lines[0], "nonsense\n", *lines[1:]]),
        "begins with a line that says what ran": "".join(lines[1:]),
        "two runs": "".join([lines[0], *lines]),
    }
    for message, text in wrong.items():
        path.write_text(text)
        with pytest.raises(WrongJob, match=message):
            verify(spark, str(path), judge_part)
    path.write_text("".join(lines[:-1]) + lines[-1][:10])
    cut_off = verify(spark, str(path), judge_part)
    assert not any(one[0] == "divergence" for one in cut_off.findings)
