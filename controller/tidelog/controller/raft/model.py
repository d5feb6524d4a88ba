"""The nouns of the quorum: replicas, voters, entries, snapshots, what is on disk, the settings.

Positions are *ends*, as everywhere in Tidelog: an end offset is the first offset not covered, so
the end of one entry is the base of the next, the high watermark is the end of what is committed,
and "the log up to 7" holds the offsets 0 to 6.

An ``Entry`` is one record batch: it covers a range of offsets and is never split. Two logs that
hold the same offset with the same term hold the same batch around it, because one leader per term
makes each batch once; all of Raft's arguments about single indexes carry over to batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tidelog.kernel.ids import DirectoryId, LeaderEpoch, NodeId, Offset

Term: TypeAlias = LeaderEpoch
"""Raft's term is the leader epoch of the metadata log."""

NO_TERM: Final = Term(0)
"""Before the first election; also the term in front of offset 0."""

MAX_TERM: Final = 2**31 - 1
"""Terms are stored as 32-bit leader epochs."""

LOG_BEGIN: Final = Offset(0)

BATCH_OVERHEAD_BYTES: Final = 61


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """A voter is a node *and its directory*: a node that lost its disk is another voter."""

    node_id: NodeId
    directory_id: DirectoryId

    def __str__(self) -> str:
        return f"{self.node_id}/{self.directory_id}"


@dataclass(frozen=True, slots=True)
class Voters:
    """Who may vote, in the order of node ids; at most one directory per node."""

    keys: tuple[ReplicaKey, ...]

    @classmethod
    def of(cls, keys: Iterable[ReplicaKey]) -> Voters:
        ordered = tuple(sorted(set(keys)))
        if len({key.node_id for key in ordered}) != len(ordered):
            raise ValueError(f"a node may vote with one directory only: {list(map(str, ordered))}")
        return cls(ordered)

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[ReplicaKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def majority(self) -> int:
        return len(self.keys) // 2 + 1

    def of_node(self, node_id: NodeId) -> ReplicaKey | None:
        return next((key for key in self.keys if key.node_id == node_id), None)

    def are_majority(self, some: Iterable[ReplicaKey]) -> bool:
        return len(self.keys) > 0 and len(set(some) & set(self.keys)) >= self.majority

    def plus(self, key: ReplicaKey) -> Voters:
        return Voters.of((*self.keys, key))

    def minus(self, key: ReplicaKey) -> Voters:
        return Voters.of(other for other in self.keys if other != key)


NO_VOTERS: Final = Voters(())


class EntryKind(Enum):
    """Control entries are the quorum's own; ``DATA`` is opaque to it."""

    DATA = "data"
    LEADER_CHANGE = "leader-change"
    VOTERS = "voters"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record batch of the metadata log; the storage shell stamps ``term`` as leader epoch."""

    base_offset: Offset
    last_offset: Offset
    term: Term
    kind: EntryKind = EntryKind.DATA
    data: bytes = b""
    voters: Voters | None = None
    leader_id: NodeId | None = None

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)

    @property
    def size_bytes(self) -> int:
        return BATCH_OVERHEAD_BYTES + len(self.data)


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """A snapshot replaces the log up to ``end_offset``, whose last entry had ``term``."""

    end_offset: Offset
    term: Term


@dataclass(frozen=True, slots=True)
class PersistentState:
    """What must survive in ``quorum-state``.

    ``founding`` names the voters of the very first election once all of them have reported an
    empty log. It is how a founder whose log is still empty after a restart differs from a voter
    that lost its log: only the former may vote (hazard 40). ``is_founding_confirmed`` says that
    all the others have written the same down, so that the election may begin.
    """

    term: Term = NO_TERM
    voted_for: ReplicaKey | None = None
    founding: Voters | None = None
    is_founding_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """What recovery found. All of it is on stable storage: recovery syncs before it reports.

    ``entries`` may begin below the end of the snapshot, if a crash came before the log was cut.
    """

    snapshot: SnapshotId | None = None
    snapshot_voters: Voters | None = None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in milliseconds, sizes in bytes; the defaults are those of a production cluster."""

    tick_interval_ms: float = 20.0
    """The longest time between two ticks; a step that is later than two of these shows a stall."""
    heartbeat_interval_ms: float = 150.0
    election_timeout_ms: float = 1000.0
    """A follower waits one to two of these in silence; its lease lasts one."""
    check_quorum_ms: float = 1500.0
    """A leader without a majority for this long resigns: 1.5 election time-outs."""
    reset_delay_ms: float = 150.0
    """A pre-vote starts within this time after the leader's stream broke."""
    hello_interval_ms: float = 150.0
    observer_timeout_ms: float = 10_000.0
    catch_up_timeout_ms: float = 30_000.0
    snapshot_retry_ms: float = 1000.0
    max_append_bytes: int = 1 << 20
    max_inflight_appends: int = 32
    max_entry_bytes: int = 8 << 20
    max_entry_records: int = 10_000
    max_uncommitted_bytes: int = 64 << 20
    max_observers: int = 16
    snapshot_chunk_bytes: int = 1 << 20
    max_snapshot_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is, and which nodes its configuration names as the first voters."""

    key: ReplicaKey
    cluster_id: str
    configured_voters: tuple[NodeId, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(set(self.configured_voters)))
        if ordered != self.configured_voters:
            raise ValueError(
                f"configured voters must be sorted and distinct, not {self.configured_voters}"
            )
