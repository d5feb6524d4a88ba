"""Which batches of a log an application sees: no control batches, and no aborted transactions.

The rules are those of Kafka's consumer (KIP-98 §5.3): a fetch brings a list of the transactions
that were aborted in what it covers. From such a transaction's first offset on the producer's
transactional batches are hidden, until its abort marker ends that.

Owner: whoever walks the batches of one fetch, in order.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import BatchHeader
from tidelog.wire.control import ControlType, read_marker


class Visibility:
    """Start one for each fetch."""

    __slots__ = ("_aborted", "_hidden_producers")

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        """``aborted``: producer id and first offset of each aborted transaction."""
        self._aborted = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._hidden_producers: set[int] = set()

    def shows(self, header: BatchHeader, batch: ByteView) -> bool:
        """Ask of every batch in order, control batches included."""
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._hidden_producers.add(self._aborted.pop()[0])
        if header.is_control:
            if header.producer_id in self._hidden_producers:
                marker = read_marker(batch, header)
                if marker is not None and marker.type is ControlType.ABORT:
                    self._hidden_producers.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._hidden_producers)
