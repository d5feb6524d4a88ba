"""Histories written by hand: each call notes one operation, a millisecond after the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.chaos.history import (
    FaultBand,
    History,
    Operation,
    Outcome,
    Record,
    RunEnd,
    RunHeader,
    Sample,
    Verb,
)

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
COMPACTED = "table"

Seen = tuple[int, str, int | None]
"""Offset, key and sequence."""


def header() -> RunHeader:
    return RunHeader(
        seed=7,
        command="tidelog chaos run --seed 7",
        target="local",
        workload="append",
        faults=("kill-leader",),
        duration_s=90.0,
        started_at="2026-01-01T00:00:00Z",
        environment={"tidelog": "0.1.0"},
        compacted_topics=(COMPACTED,),
    )


class Script:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.at_ms = 0.0

    def history(
        self,
        *,
        faults: Sequence[FaultBand] = (),
        samples: Sequence[Sample] = (),
        divergences: Sequence[str] = (),
        is_whole: bool = True,
    ) -> History:
        end = RunEnd(self.at_ms, False, tuple(divergences)) if is_whole else None
        return History(header(), tuple(self.operations), tuple(faults), tuple(samples), end=end)

    def note(
        self,
        client: str,
        verb: Verb,
        outcome: Outcome = OK,
        *,
        topic: str = "events",
        partition: int = 0,
        offset: int | None = None,
        key: str = "",
        sequence: int | None = None,
        group: str = "",
        transaction: str = "",
        is_commit: bool = False,
        seen: tuple[Record, ...] = (),
        lasts_ms: float = 0.5,
    ) -> Operation:
        self.at_ms += 1.0
        ended_ms = None if outcome is UNKNOWN else self.at_ms + lasts_ms
        operation = Operation(
            len(self.operations) + 1, client, verb, self.at_ms, ended_ms, outcome,
            topic=topic, partition=partition, offset=offset, key=key, sequence=sequence,
            group=group, transaction=transaction, is_commit=is_commit, seen=seen,
        )  # fmt: skip
        self.operations.append(operation)
        return operation

    def append(
        self,
        key: str,
        sequence: int | None,
        offset: int | None = None,
        outcome: Outcome | None = None,
        *,
        topic: str = "events",
        partition: int = 0,
        transaction: str = "",
    ) -> Operation:
        """OK if an offset is given, unknown otherwise, unless said."""
        if outcome is None:
            outcome = UNKNOWN if offset is None else OK
        return self.note(
            "producer", Verb.APPEND, outcome, topic=topic, partition=partition, offset=offset,
            key=key, sequence=sequence, transaction=transaction,
        )  # fmt: skip

    def end(self, transaction: str, *, commit: bool, outcome: Outcome = OK) -> Operation:
        return self.note(
            "producer", Verb.END_TRANSACTION, outcome, topic="", partition=-1,
            transaction=transaction, is_commit=commit,
        )  # fmt: skip

    def poll(
        self,
        client: str,
        *seen: Seen,
        topic: str = "events",
        partition: int = 0,
        group: str = "",
    ) -> Operation:
        records = tuple(Record(topic, partition, *one) for one in seen)
        return self.note(client, Verb.POLL, topic="", partition=-1, group=group, seen=records)

    def read_all(
        self,
        *seen: Seen,
        end: int,
        topic: str = "events",
        partition: int = 0,
        client: str = "final-reader",
    ) -> Operation:
        """A poll, and the note that it was all there is."""
        self.poll(client, *seen, topic=topic, partition=partition)
        began_ms = self.at_ms
        read = self.note(client, Verb.READ_TO_END, topic=topic, partition=partition, offset=end)
        self.operations[-1] = replace(read, invoked_ms=began_ms)
        return self.operations[-1]

    def commit(
        self, offset: int, *, client: str = "member-1", outcome: Outcome = OK, transaction: str = ""
    ) -> Operation:
        return self.note(
            client, Verb.COMMIT_OFFSET, outcome, offset=offset, group="g", transaction=transaction
        )

    def fetch(
        self, offset: int | None, *, client: str = "member-2", outcome: Outcome = OK
    ) -> Operation:
        return self.note(client, Verb.FETCH_OFFSET, outcome, offset=offset, group="g")
