"""A history of a chaos run of any length, with anomalies at known places; for `spark_verify`.

It is that of a run against a log that does what it should: writers that are told that it failed or
told nothing, transactions of one and of two partitions that are committed, aborted or of which
nobody knows, groups that commit how far they are, a compacted topic, and a full read at the end.
Every line follows from its place, so that pieces of it can be made at the same time. An anomaly is
planted in a round of a partition by changing what its last two slots of the log hold, or what is
told of them; each is meant to be found as one anomaly of its kind, and as nothing else.
"""

from __future__ import annotations

import json
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final

Expected = tuple[str, str, int, int | None]
"""Kind, topic, partition and offset of an anomaly."""

_SLOTS: Final = 50
"""Offsets of a partition that a round takes, each of a key of its own."""
_SPECIAL: Final = _SLOTS - 2
"""The first of the two slots of a round that hold what was planted."""
_UNKNOWN_SLOT: Final = 45
_FAILED_SLOT: Final = 44
_TRANSACTIONS: Final = 5
_READ_ROUNDS: Final = 10
_FETCHED_EVERY: Final = 10
_PIECE_OPERATIONS: Final = 100_000
_PIECES_AHEAD: Final = 8
_KEPT_ROUNDS: Final = 20
"""What compaction has left of the table."""
_STEP_MS: Final = 0.01
_TOPICS: Final = ("events",) * 5 + ("orders",) * 2 + ("table",)

PLANTS: Final = {
    "events": (
        "lost write", "duplicate", "reorder", "inconsistent offset", "invented record",
        "failed and there", "non-monotonic poll", "unseen", "stale group offset",
    ),
    "orders": ("aborted read", "torn transaction"),
    "table": ("resurrected key",),
}  # fmt: skip
_MORE: Final = {
    "duplicate": -1, "inconsistent offset": -1, "invented record": -1, "non-monotonic poll": 1,
    "stale group offset": 1, "aborted read": 1, "torn transaction": 1,
}  # fmt: skip
"""Operations that an anomaly adds."""
DIVERGENCE: Final = "events-0: nodes 1 and 2 differ at 7"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a history looks like; two of the same shape are the same, byte for byte."""

    operations: int
    """At least so many."""
    partitions: int = 8
    """A multiple of 8: of eight five are of events, two of orders, one of the table."""
    planted: int = 0
    """Anomalies of each kind."""
    seed: int = 1
    rounds: int = field(init=False, default=0)
    plants: dict[tuple[int, int], str] = field(init=False, default_factory=dict)
    """By round and partition, counted over all topics."""
    expected: list[Expected] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        assert self.partitions % len(_TOPICS) == 0
        of_round = self.partitions * (_SLOTS + 2 + 0.1 + 1 / _READ_ROUNDS + _TRANSACTIONS / 8)
        object.__setattr__(self, "rounds", int(self.operations / of_round) + 1)
        chance = random.Random(self.seed)
        for topic, kinds in PLANTS.items():
            numbers = [n for n in range(self.partitions) if _TOPICS[n % len(_TOPICS)] == topic]
            # One in so many rounds at most, and not in the last, behind which readers end.
            free = range(len(numbers) * max(0, self.rounds - 2))
            wanted = [kind for kind in kinds for _ in range(self.planted)]
            assert len(wanted) <= len(free), "too many anomalies for so few operations"
            for kind, place in zip(wanted, chance.sample(free, len(wanted)), strict=True):
                at, number = divmod(place, len(numbers))
                self.plants[at + 1, numbers[number]] = kind
                self.expected.append(_expected(kind, at + 1, numbers[number]))
        if self.planted:
            self.expected.append(("divergence", "", -1, None))


def place_of(number: int) -> tuple[str, int]:
    topic = _TOPICS[number % len(_TOPICS)]
    before = _TOPICS[: number % len(_TOPICS)].count(topic)
    return topic, number // len(_TOPICS) * _TOPICS.count(topic) + before


def _expected(kind: str, at: int, number: int) -> Expected:
    topic, partition = place_of(number)
    first = at * _SLOTS + _SPECIAL
    match kind:
        case "lost write" | "duplicate" | "reorder" | "non-monotonic poll" | "torn transaction":
            return kind, topic, partition, first + 1
        case "failed and there":
            return "invented record", topic, partition, first
        case "stale group offset":
            return kind, topic, partition, at * _SLOTS
        case _:
            return kind, topic, partition, first


# --- operations ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """An offset of the log that is not like the others."""

    key: str
    sequence: int | None
    is_written: bool = True
    outcome: str = "ok"
    is_seen: bool = True
    """By those who read while the run goes on."""
    is_seen_at_end: bool = True


def _gone(key: str, sequence: int, outcome: str = "ok") -> _Slot:
    return _Slot(key, sequence, outcome=outcome, is_seen=False, is_seen_at_end=False)


def _planted(kind: str, key: str) -> tuple[_Slot, _Slot]:
    match kind:
        case "lost write" | "torn transaction" | "aborted read":
            return _Slot(key, 0), _gone(key, 1)
        case "duplicate":
            return _Slot(key, 0), _Slot(key, 0, is_written=False)
        case "reorder":
            return _Slot(key, 1), _Slot(key, 0)
        case "inconsistent offset":
            return _gone(key, 0), _Slot(key, 0, is_written=False)
        case "invented record":
            return _Slot(key, 0, is_written=False), _Slot(f"{key}+", 0)
        case "failed and there":
            return _Slot(key, 0, outcome="failed"), _Slot(f"{key}+", 0)
        case "unseen":
            return _Slot(key, 0, is_seen=False), _Slot(key, 1)
        case "resurrected key":
            return _Slot(key, 0), _Slot(key, None, is_seen_at_end=False)
        case _:
            return _Slot(key, 0), _Slot(key, 1)


def _odd_slots(shape: Shape, number: int, at: int) -> dict[int, _Slot]:
    """Those of a round of a partition."""
    partition = place_of(number)[1]
    unknown = f"k{partition}.{_UNKNOWN_SLOT}"
    slots = {
        _FAILED_SLOT: _gone(f"k{partition}.{_FAILED_SLOT}", at, "failed"),
        _UNKNOWN_SLOT: _Slot(unknown, at, outcome="unknown")
        if at % 2
        else _gone(unknown, at, "unknown"),
    }
    kind = shape.plants.get((at, number))
    # Their keys are of one round, so that what is planted leaves no gap in the numbers of a key.
    pair = (
        (_Slot(f"s{partition}.{at}", 0), _Slot(f"s{partition}.{at}", 1))
        if kind is None
        else _planted(kind, f"x{partition}.{at}")
    )
    return {**slots, _SPECIAL: pair[0], _SPECIAL + 1: pair[1]}


def _is_aborted(at: int, index: int) -> bool:
    return at % 3 == 0 and index == 3


def _records(shape: Shape, number: int, at: int, *, is_end: bool) -> list[str]:
    """What readers get of a round of a partition."""
    topic, partition = place_of(number)
    first = at * _SLOTS
    slots = list(range(_FAILED_SLOT))
    if topic == "orders" and _is_aborted(at, 3):
        slots = [slot for slot in slots if not 30 <= slot < 40]
    is_compacted = is_end and topic == "table" and at < shape.rounds - _KEPT_ROUNDS
    found = [
        f'["{topic}",{partition},{first + slot},"k{partition}.{slot}",{at}]'
        for slot in ([] if is_compacted else [*slots, _SPECIAL - 2, _SPECIAL - 1])
    ]
    odd = _odd_slots(shape, number, at)
    if is_compacted:
        odd = {slot: one for slot, one in odd.items() if slot >= _SPECIAL}
    found += [
        f'["{topic}",{partition},{first + slot},"{one.key}",'
        f"{'null' if one.sequence is None else one.sequence}]"
        for slot, one in sorted(odd.items())
        if (one.is_seen_at_end if is_end else one.is_seen)
    ]
    return sorted(found, key=_offset) if not is_compacted else found


def _offset(record: str) -> int:
    return int(record.split(",", 3)[2])


class _Lines:
    """Operations in their order, numbered from ``number`` on."""

    def __init__(self, shape: Shape, number: int) -> None:
        self.shape = shape
        self.number = number
        self.text: list[str] = []

    def add(self, client: str, verb: str, rest: str, outcome: str = "ok", began: str = "") -> None:
        at = self.number * _STEP_MS
        self.text.append(
            f'{{"kind":"operation","number":{self.number},"client":"{client}","verb":"{verb}",'
            f'"invoked_ms":{began or f"{at:.2f}"},"ended_ms":{at + 0.005:.3f},'
            f'"outcome":"{outcome}",{rest}}}\n'
        )
        self.number += 1

    def appends(self, number: int, at: int) -> None:
        topic, partition = place_of(number)
        client, first = f"w{number}", at * _SLOTS
        odd = _odd_slots(self.shape, number, at)
        written = [slot for slot in range(_SLOTS) if slot not in odd or odd[slot].is_written]
        if self.shape.plants.get((at, number)) == "reorder":
            written[-2:] = reversed(written[-2:])
        for slot in written:
            one = odd.get(slot)
            of_transaction = self._transaction(number, at, slot) if topic == "orders" else ""
            if one is None:
                rest = (
                    f'"topic":"{topic}","partition":{partition},"offset":{first + slot},'
                    f'"key":"k{partition}.{slot}","sequence":{at}{of_transaction}'
                )
                self.add(client, "append", rest)
                continue
            rest = f'"topic":"{topic}","key":"{one.key}"{of_transaction}'
            if one.sequence is not None:
                rest += f',"sequence":{one.sequence}'
            if one.outcome == "ok":
                rest += f',"offset":{first + slot}'
            if one.outcome != "unknown" or at % 4 == 1:  # else nobody knows where it went
                rest += f',"partition":{partition}'
            self.add(client, "append", rest, one.outcome)

    def _transaction(self, number: int, at: int, slot: int) -> str:
        """That of a pair of partitions, but for what is planted, which has its own."""
        if slot >= _SPECIAL and (at, number) in self.shape.plants:
            return f',"transaction":"x{number}.{at}"'
        pair = number // len(_TOPICS)
        return f',"transaction":"t{pair}.{at}.{slot // (_SLOTS // _TRANSACTIONS)}"'

    def ends(self, pair: int, at: int) -> None:
        for index in range(_TRANSACTIONS):
            rest = f'"transaction":"t{pair}.{at}.{index}"'
            if not _is_aborted(at, index):
                rest += ',"is_commit":true'
            is_unknown = at % 3 == 1 and index == 2
            self.add("copier", "end-transaction", rest, "unknown" if is_unknown else "ok")
        for number in (pair * len(_TOPICS) + 5, pair * len(_TOPICS) + 6):
            match self.shape.plants.get((at, number)):
                case "aborted read":
                    self.add("copier", "end-transaction", f'"transaction":"x{number}.{at}"')
                case "torn transaction":
                    rest = f'"transaction":"x{number}.{at}","is_commit":true'
                    self.add("copier", "end-transaction", rest, "unknown")

    def reads(self, number: int, at: int) -> None:
        """Of the group."""
        topic, partition = place_of(number)
        client = f"c{number}"
        kind = self.shape.plants.get((at, number))
        seen = _records(self.shape, number, at, is_end=False)
        self.add(client, "poll", f'"group":"g","seen":[{",".join(seen)}]')
        if kind == "non-monotonic poll":
            self.add(client, "poll", f'"group":"g","seen":[{seen[-1]}]')
        where = f'"group":"g","topic":"{topic}","partition":{partition},"offset":'
        self.add(client, "commit-offset", f"{where}{(at + 1) * _SLOTS}")
        if at % _FETCHED_EVERY == 0:
            self.add(client, "fetch-offset", f"{where}{(at + 1) * _SLOTS}")
        if kind == "stale group offset":
            self.add(client, "fetch-offset", f"{where}{at * _SLOTS}")

    def full_read(self, number: int) -> None:
        topic, partition = place_of(number)
        began = f"{operations_before(self.shape, self.shape.rounds) * _STEP_MS + 0.006:.3f}"
        for start in range(0, self.shape.rounds, _READ_ROUNDS):
            seen: list[str] = []
            for at in range(start, min(start + _READ_ROUNDS, self.shape.rounds)):
                seen += _records(self.shape, number, at, is_end=True)
            self.add("reader", "poll", f'"seen":[{",".join(seen)}]')
        end = self.shape.rounds * _SLOTS
        rest = f'"topic":"{topic}","partition":{partition},"offset":{end}'
        self.add("reader", "read-to-end", rest, began=began)


# --- pieces ----------------------------------------------------------------------------------


def operations_before(shape: Shape, at: int) -> int:
    """In rounds before that one."""
    eighths = shape.partitions // len(_TOPICS)
    fetches = (at + _FETCHED_EVERY - 1) // _FETCHED_EVERY * shape.partitions
    of_rounds = at * (shape.partitions * (_SLOTS + 2) + eighths * _TRANSACTIONS)
    planted = sum(_MORE.get(kind, 0) for (own, _), kind in shape.plants.items() if own < at)
    return of_rounds + fetches + planted


def _rounds_text(shape: Shape, start: int, end: int) -> bytes:
    lines = _Lines(shape, operations_before(shape, start) + 1)
    for at in range(start, end):
        for number in range(shape.partitions):
            lines.appends(number, at)
        for pair in range(shape.partitions // len(_TOPICS)):
            lines.ends(pair, at)
        for number in range(shape.partitions):
            lines.reads(number, at)
    assert lines.number == operations_before(shape, end) + 1
    return "".join(lines.text).encode()


def _reads_text(shape: Shape, number: int) -> bytes:
    of_one = (shape.rounds + _READ_ROUNDS - 1) // _READ_ROUNDS + 1
    lines = _Lines(shape, operations_before(shape, shape.rounds) + number * of_one + 1)
    lines.full_read(number)
    assert len(lines.text) == of_one
    return "".join(lines.text).encode()


def count_of(shape: Shape) -> int:
    """All operations."""
    of_one = (shape.rounds + _READ_ROUNDS - 1) // _READ_ROUNDS + 1
    return operations_before(shape, shape.rounds) + shape.partitions * of_one


def write_history(shape: Shape, path: Path) -> None:
    """With a process per core."""
    step = max(1, _PIECE_OPERATIONS // (shape.partitions * (_SLOTS + 2)))
    starts = range(0, shape.rounds, step)
    with (
        path.open("wb") as file,
        ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _use, (shape,)) as pool,
    ):
        file.write(_line(kind="run", seed=shape.seed, command="bench.spark_verify", target="none",
                         workload="mixed", faults=[], duration_s=1.0, compacted_topics=["table"],
                         started_at="2025-06-01T00:00:00Z"))  # fmt: skip
        for text in _in_order(pool, _piece, [(start, start + step) for start in starts]):
            file.write(text)
        for text in _in_order(pool, _last_piece, [(n, 0) for n in range(shape.partitions)]):
            file.write(text)
        at_ms = (count_of(shape) + 1) * _STEP_MS
        file.write(_line(kind="fault", number=1, name="kill-leader", detail="node 1", nodes=[1],
                         began_ms=1.0, ended_ms=2.0))  # fmt: skip
        divergences = [DIVERGENCE] if shape.planted else []
        file.write(_line(kind="end", at_ms=at_ms, was_interrupted=False, divergences=divergences))


def _in_order(
    pool: ProcessPoolExecutor, make: Callable[[int, int], bytes], pieces: list[tuple[int, int]]
) -> Iterator[bytes]:
    """What each piece gives; only so many are made ahead."""
    waiting: deque[Future[bytes]] = deque()
    for piece in pieces:
        waiting.append(pool.submit(make, *piece))
        if len(waiting) > _PIECES_AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


_SHAPE: list[Shape] = []
"""Of a process that makes pieces."""


def _use(shape: Shape) -> None:
    _SHAPE.append(shape)


def _piece(start: int, end: int) -> bytes:
    return _rounds_text(_SHAPE[0], start, min(end, _SHAPE[0].rounds))


def _last_piece(number: int, _: int) -> bytes:
    return _reads_text(_SHAPE[0], number)


def _line(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
