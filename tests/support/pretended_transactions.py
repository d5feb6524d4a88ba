"""Transaction and group coordinators of a few lines, with Kafka's rules, for tests of the sink."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tidelog.pipeline.decision import Transaction
from tidelog.pipeline.errors import Fenced, NotOngoing
from tidelog.pipeline.positions import Place

ONGOING, COMMITTED, ABORTED, EMPTY = "Ongoing", "CompleteCommit", "CompleteAbort", "Empty"


@dataclass
class _Producer:
    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    state: str = EMPTY
    rows: list[object] = field(default_factory=list)
    entries: dict[int, str] = field(default_factory=dict)
    group: str = ""


@dataclass
class PretendedTransactions:
    producers: dict[str, _Producer] = field(default_factory=dict)
    groups: dict[str, dict[int, str]] = field(default_factory=dict)
    visible: list[object] = field(default_factory=list)
    """What a consumer that reads committed records sees."""

    def begin(
        self, transactional_id: str, timeout_ms: int, after: Transaction | None = None
    ) -> Transaction:
        known = self.producers.get(transactional_id)
        if known is None:
            known = self.producers[transactional_id] = _Producer(1000 + len(self.producers))
            return Transaction(transactional_id, known.producer_id, 0)
        if known.state == ONGOING:
            # Kafka bumps the epoch, aborts, and bumps it again when it is asked again.
            known.epoch, known.last_epoch = known.epoch + 1, -1
            self._finish(known, commit=False)
        if after is not None and after.epoch == known.last_epoch:
            return Transaction(transactional_id, known.producer_id, known.epoch)
        if after is not None and (after.producer_id, after.epoch) != (
            known.producer_id,
            known.epoch,
        ):
            raise Fenced(transactional_id)
        known.last_epoch = -1 if after is None else known.epoch
        known.epoch += 1
        known.state = EMPTY
        return Transaction(transactional_id, known.producer_id, known.epoch)

    def add_partitions(self, transaction: Transaction, places: Collection[Place]) -> None:
        self._current(transaction).state = ONGOING

    def produce(self, transaction: Transaction, row: object) -> None:
        known = self._current(transaction)
        known.state = ONGOING
        known.rows.append(row)

    def commit_entries(
        self, transaction: Transaction, group: str, entries: Sequence[str], number: int
    ) -> None:
        known = self._current(transaction)
        known.state, known.group, known.entries = ONGOING, group, dict(enumerate(entries))

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        known = self._current(transaction)
        if known.state == ONGOING:
            self._finish(known, commit=commit)
        elif known.state != (COMMITTED if commit else ABORTED):
            raise NotOngoing(transaction.id)

    def entries(self, group: str) -> dict[int, str]:
        return dict(self.groups.get(group, {}))

    def describe(self, transactional_id: str) -> tuple[Transaction, bool]:
        known = self.producers[transactional_id]
        latest = Transaction(transactional_id, known.producer_id, known.epoch)
        return latest, known.state == ONGOING

    def open_transactions(self, prefix: str, *, or_about_to_be: bool = False) -> list[str]:
        states = (ONGOING, EMPTY) if or_about_to_be else (ONGOING,)
        return sorted(
            name
            for name, known in self.producers.items()
            if name.startswith(prefix) and known.state in states
        )

    def expire(self, transactional_id: str) -> None:
        """It was open for too long."""
        known = self.producers[transactional_id]
        known.epoch, known.last_epoch = known.epoch + 1, -1
        self._finish(known, commit=False)

    def _current(self, transaction: Transaction) -> _Producer:
        known = self.producers[transaction.id]
        if (known.producer_id, known.epoch) != (transaction.producer_id, transaction.epoch):
            raise Fenced(transaction.id)
        return known

    def _finish(self, known: _Producer, *, commit: bool) -> None:
        if commit:
            self.visible += known.rows
            if known.group:
                self.groups.setdefault(known.group, {}).update(known.entries)
        known.rows, known.entries, known.group = [], {}, ""
        known.state = COMMITTED if commit else ABORTED
