"""The state of one transactional id, and the small steps all parts of the machine share.

Owner: ``Transaction``, which sets ``now_ms`` and collects ``effects`` for the length of one step.

Invariants:

- ``value`` is what the log says: it changes only when the record of the change is replicated.
- At most one change is being written (``pending``); whoever asks for another meanwhile is told to
  come again.
- The state changes along the table in ``states``, and nowhere else.
- Once a Prepare record is replicated the outcome stands: markers are sent until every partition
  has one, by this coordinator or by the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.coordinator.transactions.events import Append, Effect, Request, Respond
from tidelog.coordinator.transactions.states import TransactionState, check_transition
from tidelog.coordinator.transactions.transaction_records import (
    TransactionRecord,
    TransactionValue,
)
from tidelog.kernel.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CoordinatorEpoch,
    ProducerEpoch,
    TopicPartition,
)

LAST_EPOCH: Final = 32766
"""The last epoch a client may have: one more is needed to fence it (KAFKA-6119)."""
HIGHEST_EPOCH: Final = 32767
EPOCH_BUMP_VERSION: Final = 2
"""From this transaction.version on every end of a transaction begins an epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3600 * 1000
    abort_retry_ms: int = 10_000
    """How long after a failed attempt to end an overdue transaction the next one is made."""
    removal_retry_ms: int = 3_600_000
    marker_retry_ms: int = 100
    """How long after a refusal a marker is sent again."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that is being written."""

    write_id: int
    target: TransactionValue | None
    """None: the id is forgotten."""
    last_producer_epoch: ProducerEpoch
    request: Request | None
    """Who asked for it; None: the coordinator itself."""
    answer: Respond | None


@dataclass(slots=True)
class TransactionCore:
    transactional_id: str
    settings: TransactionSettings
    coordinator_epoch: CoordinatorEpoch
    value: TransactionValue
    record_version: int = 1
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the present one, if its producer may repeat the request that ended it."""
    pending: Pending | None = None
    next_write_id: int = 0
    unmarked: set[TopicPartition] = field(default_factory=set)
    """Partitions that still need a marker."""
    on_the_way: set[TopicPartition] = field(default_factory=set)
    """Those of them whose leader was asked and has not answered."""
    decision: int = 1
    """Counts the ends of transactions that this coordinator has sent, or will send, markers of."""
    is_halted: bool = False
    """A newer coordinator writes markers for this id: we stop."""
    not_before_ms: int = 0
    """Nothing the coordinator does by itself is tried again before this time."""
    is_forgotten: bool = False
    now_ms: int = 0
    effects: list[Effect] = field(default_factory=list)

    @property
    def state(self) -> TransactionState:
        return self.value.state

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.value.producer_epoch >= LAST_EPOCH

    def respond(self, answer: Respond) -> None:
        self.effects.append(answer)

    def changed(self, state: TransactionState, **changes: object) -> TransactionValue:
        """The present value in another state, updated now.

        The producer id before the change is kept beside the new one, so that its holder is still
        recognised when it repeats a request (KIP-360).
        """
        return replace(
            self.value,
            state=state,
            last_update_ms=self.now_ms,
            previous_producer_id=self.value.producer_id,
            **changes,  # type: ignore[arg-type]
        )

    def write(
        self,
        target: TransactionValue | None,
        *,
        last_producer_epoch: ProducerEpoch | None = None,
        request: Request | None = None,
        answer: Respond | None = None,
    ) -> None:
        """Begin a change; nothing of it is visible before its record is replicated."""
        assert self.pending is None, "one change at a time"
        check_transition(
            self.transactional_id,
            self.state,
            TransactionState.DEAD if target is None else target.state,
        )
        last = self.last_producer_epoch if last_producer_epoch is None else last_producer_epoch
        self.pending = Pending(self.next_write_id, target, last, request, answer)
        self.next_write_id += 1
        record = TransactionRecord(self.transactional_id, target, self.record_version)
        self.effects.append(Append(self.transactional_id, self.pending.write_id, (record,)))

    def deadline_ms(self) -> int | None:
        """When the coordinator has to act by itself; None while it waits for an answer."""
        if self.pending is not None or self.is_halted:
            return None
        if self.state is TransactionState.ONGOING:
            due_ms = self.value.start_ms + self.value.timeout_ms + 1
        elif self.state.is_prepared:
            if self.unmarked and not self.unmarked - self.on_the_way:
                return None
            due_ms = self.not_before_ms
        elif self.value.producer_epoch == NO_PRODUCER_EPOCH:
            return None
        else:
            due_ms = self.value.last_update_ms + self.settings.id_expiration_ms
        return max(due_ms, self.not_before_ms)


def is_foreign_producer(core: TransactionCore, producer_id: int) -> bool:
    return core.value.producer_id != producer_id or producer_id == NO_PRODUCER_ID
