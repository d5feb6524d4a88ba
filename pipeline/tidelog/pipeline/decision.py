"""The record that a batch is decided: of which query, which one, and the transactions it has.

It is kept as the metadata of a group's committed offsets, because those can be committed in a
transaction, and so at one moment. Each entry holds some 4 KB, hence the list is spread over as many
as it needs; they are written together, so they always belong together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.pipeline.errors import BrokerRefused

MAX_ENTRY_BYTES: Final = 3500
"""Brokers take 4096 unless told otherwise (``offset.metadata.max.bytes``)."""
MAX_ENTRIES: Final = 50
"""As many partitions as the offsets topic has unless made otherwise."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of one producer, or the producer before it begins one."""

    id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    query: str
    batch: int
    transactions: tuple[Transaction, ...]

    def covers(self, query: str, batch: int) -> bool:
        """Whether that batch is written, or will be without being written again."""
        return self.query == query and self.batch >= batch


def driver_id(prefix: str) -> str:
    return f"{prefix}-driver"


@dataclass(frozen=True, slots=True)
class Task:
    """Which one, of which start of the job.

    A task of an earlier run that lives on, or another attempt, never has the same transactional id:
    it could abort what is already decided.
    """

    run: str
    """Eight hexadecimal digits."""
    partition: int
    attempt: int

    def id(self, prefix: str) -> str:
        return f"{prefix}-{self.run}-{self.partition}-{self.attempt}"


def is_task_id(prefix: str, transactional_id: str, run: str = "[0-9a-f]{8}") -> bool:
    """Not fooled by a prefix that begins with another one."""
    tail = rf"-{run}-\d+-\d+"
    return re.fullmatch(re.escape(prefix) + tail, transactional_id) is not None


def to_entries(decision: Decision, prefix: str) -> list[str]:
    start = len(prefix)
    rows = [[one.id[start:], one.producer_id, one.epoch] for one in decision.transactions]
    cuts = _cut([len(_json(row)) + 1 for row in rows], MAX_ENTRY_BYTES - 200 - len(decision.query))
    if len(cuts) > MAX_ENTRIES:
        raise BrokerRefused(
            f"{len(rows)} tasks wrote rows, more than one decision can name; "
            "write fewer partitions (coalesce)"
        )
    head = {"query": decision.query, "batch": decision.batch, "entries": len(cuts)}
    return [_json({**head, "transactions": rows[start:stop]}) for start, stop in cuts]


def from_entries(entries: Mapping[int, str], prefix: str) -> Decision | None:
    """None if there is none; an error if what is there was written by something else."""
    if 0 not in entries:
        return None
    try:
        first = json.loads(entries[0])
        parts = [json.loads(entries[index]) for index in range(first["entries"])]
        if any(
            (part["query"], part["batch"]) != (first["query"], first["batch"]) for part in parts
        ):
            raise ValueError("its entries are of different batches")
        rows = [row for part in parts for row in part["transactions"]]
        transactions = tuple(Transaction(prefix + tail, pid, epoch) for tail, pid, epoch in rows)
        return Decision(str(first["query"]), int(first["batch"]), transactions)
    except (ValueError, KeyError, TypeError) as error:
        raise BrokerRefused(
            f"group {prefix!r} keeps something that is no decision of this sink ({error}); "
            "choose another transactionalIdPrefix"
        ) from error


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def _cut(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Ranges whose sizes add up to no more than that; at least one."""
    cuts, start, total = [], 0, 0
    for index, size in enumerate(sizes):
        if total + size > most and index > start:
            cuts.append((start, index))
            start, total = index, 0
        total += size
    return [*cuts, (start, len(sizes))]
