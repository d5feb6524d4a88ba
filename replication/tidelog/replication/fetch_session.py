"""The leader's end of a fetch stream: what one follower asked for, and whose turn it is. Pure.

Theory. A follower names each partition once and then only what changes, so an idle partition
costs nothing. A partition is *open* while the follower waits for its records; it is closed by an
answer that carries records, an error or a divergence, and opened again by the follower's next
request for it. A request can also merely report progress (``max_bytes`` 0), which neither opens
nor closes anything: so the flushed end travels as soon as it moves, while the next fetch is
already parked here.

Open partitions with something to say are served in turn: who was served goes to the end, so that
a busy partition does not starve the others. The records sent between two requests are bounded by
the request's ``max_bytes``; the follower answers every message that carries records, so this
always gets on.

Invariant: an answer names the newest request that was read before it was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import NO_OFFSET, BrokerEpoch, NodeId, Offset
from tidelog.replication.remote_replica import FollowerFetch


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """One partition of a request, as it came."""

    ref: PartitionRef
    fetch: FollowerFetch
    max_bytes: int

    @property
    def opens(self) -> bool:
        return self.max_bytes > 0


@dataclass(slots=True)
class SessionPartition:
    """What the stream's follower last asked of a partition."""

    ref: PartitionRef
    fetch: FollowerFetch
    max_bytes: int = 0
    is_open: bool = False
    is_unsettled: bool = False
    """Refused because this node may not know the newest metadata yet; judged again later."""
    told_high_watermark: Offset = NO_OFFSET
    told_cleaning: tuple[Offset, Offset] = (Offset(0), Offset(0))

    def close(self) -> None:
        self.is_open = self.is_unsettled = False

    def forget_told(self) -> None:
        self.told_high_watermark = NO_OFFSET
        self.told_cleaning = (Offset(0), Offset(0))


class FetchSession:
    """See the module. Its shell reads the log and writes the stream."""

    def __init__(self, follower: NodeId) -> None:
        self.follower = follower
        self.correlation_id = 0
        self.broker_epoch = BrokerEpoch(-1)
        self.max_wait_ms = 0
        self.budget_bytes = 0
        self.partitions: dict[PartitionRef, SessionPartition] = {}
        self._ready: dict[PartitionRef, None] = {}
        self._news: dict[PartitionRef, None] = {}

    def requested(
        self, correlation_id: int, broker_epoch: BrokerEpoch, max_wait_ms: int, max_bytes: int
    ) -> bool:
        """Note the head of a request; False if it does not follow the one before."""
        if correlation_id <= self.correlation_id or broker_epoch < self.broker_epoch:
            return False
        self.correlation_id = correlation_id
        self.broker_epoch = broker_epoch
        self.max_wait_ms = max_wait_ms
        self.budget_bytes = max_bytes
        return True

    def replace(self, kept: Iterable[PartitionRef]) -> list[PartitionRef]:
        """A full request: everything else is forgotten; what that was."""
        keep = set(kept)
        gone = [ref for ref in self.partitions if ref not in keep]
        for ref in gone:
            self.forget(ref)
        return gone

    def forget(self, ref: PartitionRef) -> None:
        self.partitions.pop(ref, None)
        self._ready.pop(ref, None)
        self._news.pop(ref, None)

    def take(self, asked: PartitionFetch) -> SessionPartition:
        """Note what is asked of a partition, before it is judged."""
        entry = self.partitions.get(asked.ref)
        if entry is None:
            entry = self.partitions[asked.ref] = SessionPartition(asked.ref, asked.fetch)
        if entry.fetch.leader_epoch != asked.fetch.leader_epoch:
            # In its new epoch a follower drops what was on its way to it in the one before.
            entry.forget_told()
        entry.fetch = asked.fetch
        if asked.opens:
            entry.max_bytes = asked.max_bytes
            entry.is_open = True
            entry.is_unsettled = False
        return entry

    # --- whose turn it is --------------------------------------------------------------

    def mark_ready(self, ref: PartitionRef) -> bool:
        """There is something to say about an open partition; True if that is new."""
        entry = self.partitions.get(ref)
        if entry is None or not entry.is_open or entry.is_unsettled or ref in self._ready:
            return False
        self._ready[ref] = None
        self._news.pop(ref, None)
        return True

    def mark_news(self, ref: PartitionRef) -> bool:
        """The high watermark or a clean point moved: worth a word, but no message at once."""
        entry = self.partitions.get(ref)
        if entry is None or not entry.is_open or ref in self._ready or ref in self._news:
            return False
        self._news[ref] = None
        return True

    @property
    def has_ready(self) -> bool:
        return bool(self._ready) and self.budget_bytes > 0

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def next_ready(self) -> SessionPartition | None:
        """The next one to be served; None if there is none or the budget is used up."""
        while self._ready and self.budget_bytes > 0:
            ref = next(iter(self._ready))
            del self._ready[ref]
            entry = self.partitions.get(ref)
            if entry is not None and entry.is_open:
                return entry
        return None

    def take_news(self) -> list[SessionPartition]:
        """Open partitions whose high watermark moved since the follower was told."""
        refs, self._news = self._news, {}
        entries = (self.partitions.get(ref) for ref in refs)
        return [entry for entry in entries if entry is not None and entry.is_open]

    def sent(self, entry: SessionPartition, size: int) -> None:
        """An answer with records, an error or a divergence is on its way."""
        entry.close()
        self.budget_bytes -= size

    def open_partitions(self) -> list[PartitionRef]:
        return [ref for ref, entry in self.partitions.items() if entry.is_open]
