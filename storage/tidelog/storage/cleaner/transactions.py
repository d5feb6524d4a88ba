"""Which batches belong to aborted transactions, and when a marker has nothing left to end.

Theory (KIP-98, KIP-534): data of an aborted transaction goes at once. The marker must stay until
no batch of its transaction is left in the log, because whoever replays the log without it would
take the rest for an open transaction. An empty batch, kept for its producer's sequence, is a batch
of its transaction too. So the walk over the log notes which transactions it has met a batch of;
when it then comes to the marker of one it has met nothing of, that marker may go, after the time
that tombstones get as well.

A batch counts as aborted only between the first offset and the marker of a transaction in the
index. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from tidelog.kernel.ids import Offset, ProducerId
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader
from tidelog.wire.control import ControlType


class TransactionWalk:
    """Give it the batches in log order."""

    __slots__ = ("_aborted", "_committed", "_met")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        by_producer: defaultdict[ProducerId, dict[Offset, AbortedTxn]] = defaultdict(dict)
        for txn in aborted:
            by_producer[txn.producer_id][txn.last_offset] = txn
        self._aborted = {
            producer: [txns[last] for last in sorted(txns)]
            for producer, txns in by_producer.items()
        }
        self._met: set[tuple[ProducerId, Offset]] = set()
        self._committed: set[ProducerId] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch; whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        txn = self._txn_of(header.producer_id, header.base_offset)
        if txn is None or txn.first_offset > header.base_offset:
            self._committed.add(header.producer_id)
            return False
        self._met.add((txn.producer_id, txn.last_offset))
        return True

    def _txn_of(self, producer_id: ProducerId, offset: Offset) -> AbortedTxn | None:
        """The first aborted transaction of the producer whose marker is at or behind ``offset``."""
        txns = self._aborted.get(producer_id)
        if txns is None:
            return None
        at = bisect_left(txns, offset, key=lambda txn: txn.last_offset)
        return txns[at] if at < len(txns) else None

    def is_needless(self, header: BatchHeader, marker: ControlType | None) -> bool:
        """Take note of a control batch; whether nothing that it ends was met.

        An empty one was cleaned before; ``marker`` None is a type that is not known here.
        """
        if header.records_count == 0:
            return True
        match marker:
            case ControlType.ABORT:
                return (header.producer_id, header.base_offset) not in self._met
            case ControlType.COMMIT:
                was_met = header.producer_id in self._committed
                self._committed.discard(header.producer_id)
                return not was_met
            case _:
                return False

    def needed_entry(self, header: BatchHeader) -> AbortedTxn | None:
        """What the new index must say of the abort marker in this batch, if anything."""
        if (header.producer_id, header.base_offset) not in self._met:
            return None
        txn = self._txn_of(header.producer_id, header.base_offset)
        return txn if txn is not None and txn.last_offset == header.base_offset else None
