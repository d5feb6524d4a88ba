"""Who may open a transaction on a partition (KIP-890, part 1).

A write that comes late, after its transaction has ended, would open one that nobody closes: the
last stable offset would stand still for ever (hazard 28, KAFKA-14402). So before a producer's first
write of a transaction the leader asks the coordinator whether the partition belongs to it. The
question takes time, and the answer must not outlive the transaction: the leader hands out a
*verification* before it asks, a marker takes it back, and only who still holds it may write.

Clients send several batches without waiting. If a later one is verified first, it would be taken
for the first; so the least sequence that asked is remembered, and a higher one must come again.

Memory only: a new leader verifies anew what is not open yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId, Sequence
from tidelog.wire.batch import BatchHeader

_NO_SEQUENCE: Final = -1
"""Of batches that a coordinator writes in a producer's name."""


@dataclass(eq=False, slots=True)
class Verification:
    """A permission on its way; one is another even if it says the same."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    lowest_sequence: Sequence
    begins_epoch: bool
    """Whether every transaction has an epoch of its own (transaction.version=2)."""
    begun_ms: int
    is_approved: bool = False
    """Set by who asked the coordinator, if the write comes later and from elsewhere."""


@dataclass(slots=True)
class Verifications:
    _held: dict[ProducerId, Verification] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._held)

    def begin(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: Sequence,
        now_ms: int,
        *,
        begins_epoch: bool,
    ) -> Verification:
        """Before the coordinator is asked; batches of one transaction share one."""
        held = self._held.get(producer_id)
        if held is not None and held.epoch == epoch:
            held.lowest_sequence = min(held.lowest_sequence, sequence)
            return held
        new = Verification(producer_id, epoch, sequence, begins_epoch, now_ms)
        if held is None or held.epoch < epoch:
            self._held[producer_id] = new
        return new

    def approved(self, producer_id: ProducerId) -> Verification | None:
        """For who writes later than it asked: what the coordinator agreed to and still holds."""
        held = self._held.get(producer_id)
        return held if held is not None and held.is_approved else None

    def refusal(
        self, header: BatchHeader, verification: Verification | None, *, is_known: bool
    ) -> ErrorCode | None:
        """Why a batch may not open a transaction here; ``is_known``: its producer's sequences are.

        A sequence above the lowest that asked would overtake it. With an epoch for every
        transaction the first sequence is known to be 0, so that even a producer of whom nothing is
        left must begin there.
        """
        if verification is None or self._held.get(header.producer_id) is not verification:
            return ErrorCode.INVALID_TXN_STATE
        sequence = header.base_sequence
        is_first = sequence in (0, _NO_SEQUENCE)
        if sequence > verification.lowest_sequence or (
            verification.begins_epoch and not is_known and not is_first
        ):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def opened(self, producer_id: ProducerId) -> None:
        """The transaction is open now."""
        self._held.pop(producer_id, None)

    def ended(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """A marker of this epoch came: what was asked for before it holds no more.

        Where a marker begins an epoch, whoever asks in that epoch asks for the next transaction.
        Its client need not wait for the markers of the one before.
        """
        held = self._held.get(producer_id)
        if held is not None and not (held.begins_epoch and held.epoch >= epoch):
            del self._held[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drop what was never used."""
        old = [
            held.producer_id
            for held in self._held.values()
            if now_ms - held.begun_ms >= expiration_ms
        ]
        for producer_id in old:
            del self._held[producer_id]
