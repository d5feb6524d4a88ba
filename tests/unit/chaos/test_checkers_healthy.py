"""Any history of a log that behaves is clean, and one record taken out of it is noticed.

The model is a list per partition: writes are put at its end or get no answer, with or without an
effect; transactions show when they have committed; readers stop and start over anywhere.
"""

from __future__ import annotations

from random import Random

from chaos_scripts import OK, UNKNOWN, Script, Seen
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.chaos.checkers import Kind, check_history

PARTITIONS = 2
KEYS = ("a", "b", "c")


class Log:
    """A cluster that does all it promises."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.script = Script()
        self.visible: list[list[Seen]] = [[] for _ in range(PARTITIONS)]
        self.ends = [0] * PARTITIONS
        self.sequences = dict.fromkeys(KEYS, 0)
        self.positions: dict[tuple[str, int], int] = {}
        self.lives: dict[str, int] = {}
        self.group_offset = 0
        self.transactions = 0

    def put(self, key: str, transaction: str = "") -> list[tuple[int, Seen]]:
        """What becomes visible, if it has no transaction or that one commits."""
        partition = KEYS.index(key) % PARTITIONS
        sequence = self.sequences[key]
        self.sequences[key] += 1
        happens, answers = self.random.random() < 0.8, self.random.random() < 0.8
        offset = self.ends[partition]
        self.script.append(
            key, sequence, offset if happens and answers else None,
            partition=partition, transaction=transaction,
        )  # fmt: skip
        if not happens:
            return []
        self.ends[partition] += 1
        return [(partition, (offset, key, sequence))]

    def write(self) -> None:
        self.show(self.put(self.random.choice(KEYS)))

    def show(self, written: list[tuple[int, Seen]]) -> None:
        for partition, record in written:
            self.visible[partition].append(record)

    def transact(self) -> None:
        self.transactions += 1
        name = f"t{self.transactions}"
        before = dict(self.sequences)
        written = [one for key in KEYS for one in self.put(key, name)]
        commits, answers = self.random.random() < 0.6, self.random.random() < 0.7
        self.script.end(name, commit=commits or not answers, outcome=OK if answers else UNKNOWN)
        for partition in range(PARTITIONS):
            self.ends[partition] += 1  # the marker
        if commits:
            self.show(written)
        elif answers and self.random.random() < 0.5:
            self.sequences = before  # tried again by another transaction or write

    def poll(self) -> None:
        reader = self.random.choice(("one", "two"))
        if self.random.random() < 0.2:
            self.lives[reader] = self.lives.get(reader, 0) + 1
        client = f"{reader}.{self.lives.get(reader, 0)}"
        partition = self.random.randrange(PARTITIONS)
        position = self.positions.get((client, partition), 0)
        seen = self.visible[partition][position : position + self.random.randrange(5)]
        self.positions[client, partition] = position + len(seen)
        if seen:
            self.script.poll(client, *seen, partition=partition)

    def commit(self) -> None:
        self.group_offset += self.random.randrange(3)
        self.script.commit(self.group_offset, outcome=self.random.choice((OK, UNKNOWN)))
        self.script.fetch(self.group_offset)

    def finish(self, left_out: tuple[int, Seen] | None = None) -> None:
        for partition in range(PARTITIONS):
            seen = [one for one in self.visible[partition] if (partition, one) != left_out]
            self.script.read_all(*seen, end=self.ends[partition], partition=partition)


def lived(seed: int) -> Log:
    random = Random(seed)
    log = Log(random)
    for _ in range(random.randrange(80)):
        random.choice((log.write, log.write, log.transact, log.poll, log.poll, log.commit))()
    return log


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_log_that_behaves_is_clean(seed: int) -> None:
    log = lived(seed)
    log.finish()
    assert check_history(log.script.history()) == []


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_an_acknowledged_record_that_is_missing_at_the_end_is_noticed(seed: int) -> None:
    log = lived(seed)
    acknowledged = {
        (one.partition, (one.offset, one.key, one.sequence))
        for one in log.script.operations
        if one.offset is not None and one.key and not one.transaction
    }
    candidates = [
        (partition, record)
        for partition in range(PARTITIONS)
        for record in log.visible[partition]
        if (partition, record) in acknowledged
    ]
    if candidates:
        log.finish(left_out=log.random.choice(candidates))
        assert [one.kind for one in check_history(log.script.history())] == [Kind.LOST_WRITE]
