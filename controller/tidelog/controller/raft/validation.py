"""Messages that no honest peer sends. They are counted and dropped; they never stop a node.

What is checked here can be seen from the message alone. Whether it is stale or comes from an
unknown replica depends on the state, and is judged where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from tidelog.controller.raft.effects import IgnoreReason
from tidelog.controller.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Envelope,
    Hello,
    HelloBack,
    SnapshotAck,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.controller.raft.model import MAX_TERM, Entry, EntryKind, Identity, Settings, Term

MAX_CONFIGURED_VOTERS = 1000


@dataclass(frozen=True, slots=True)
class Fault:
    reason: IgnoreReason
    detail: str


def find_fault(envelope: Envelope, identity: Identity, settings: Settings) -> Fault | None:
    """The first thing that is wrong with a message, or None."""
    return _fault_of_address(envelope, identity) or _fault_of_body(envelope, settings)


def _fault_of_address(envelope: Envelope, identity: Identity) -> Fault | None:
    if envelope.cluster_id != identity.cluster_id:
        detail = f"{envelope.source} belongs to cluster {envelope.cluster_id!r:.60}"
        return Fault(IgnoreReason.FOREIGN_CLUSTER, detail)
    if envelope.target_id != identity.key.node_id:
        return Fault(IgnoreReason.NOT_FOR_US, f"meant for node {envelope.target_id}")
    if envelope.target_directory not in (None, identity.key.directory_id):
        return Fault(IgnoreReason.NOT_FOR_US, f"meant for directory {envelope.target_directory}")
    if envelope.source.node_id == identity.key.node_id:
        detail = f"{envelope.source} uses the id of this node"
        return Fault(IgnoreReason.FROM_OURSELVES, detail)
    if not 0 <= envelope.term <= MAX_TERM or envelope.source.node_id < 0:
        return _bad(f"{envelope.source} in term {envelope.term}")
    return None


def _fault_of_body(envelope: Envelope, settings: Settings) -> Fault | None:
    match envelope.body:
        case Hello(configured_voters=voters) | HelloBack(configured_voters=voters):
            too_many = len(voters) > MAX_CONFIGURED_VOTERS
            return _large(f"{len(voters)} configured voters") if too_many else None
        case VoteRequest() as request:
            return _fault_of_vote_request(envelope.term, request)
        case AppendRequest() as request:
            return _fault_of_append(envelope.term, request, settings)
        case AppendAccepted(match_end=end):
            return _bad(f"match end {end}") if end < 0 else None
        case AppendRejected(prev_end=end, conflict_start=start, conflict_term=term):
            is_good = end >= 0 and start >= 0 and (term is None or 0 <= term <= MAX_TERM)
            return None if is_good else _bad(f"conflict at {end}, start {start}, term {term}")
        case SnapshotChunk() as chunk:
            return _fault_of_chunk(envelope.term, chunk, settings)
        case SnapshotAck(position=position):
            return _bad(f"position {position}") if position < 0 else None
        case VoteResponse() | TimeoutNow():
            return None
        case body:
            assert_never(body)


def _fault_of_vote_request(term: Term, request: VoteRequest) -> Fault | None:
    is_good = 0 <= request.last_term <= term and request.end_offset >= 0
    if not is_good or (request.end_offset == 0) != (request.last_term == 0):
        return _bad(f"log ends at {request.end_offset} in term {request.last_term}")
    return None


def _fault_of_append(term: Term, request: AppendRequest, settings: Settings) -> Fault | None:
    if request.prev_end < 0 or request.commit < 0 or not 0 <= request.prev_term <= term:
        return _bad(f"previous {request.prev_end}@{request.prev_term}, commit {request.commit}")
    if (request.prev_end == 0) != (request.prev_term == 0):
        return _bad(f"previous {request.prev_end}@{request.prev_term}")
    end, last_term, size = request.prev_end, request.prev_term, 0
    for entry in request.entries:
        if entry.base_offset != end or not last_term <= entry.term <= term or entry.term == 0:
            return _bad(f"entry {entry.base_offset}@{entry.term} after {end}@{last_term}")
        fault = _fault_of_entry(entry, settings)
        if fault is not None:
            return fault
        end, last_term, size = entry.end_offset, entry.term, size + entry.size_bytes
    if size > settings.max_append_bytes + settings.max_entry_bytes:
        return _large(f"{size} bytes in one append")
    return None


def _fault_of_entry(entry: Entry, settings: Settings) -> Fault | None:
    record_count = entry.last_offset - entry.base_offset + 1
    if record_count < 1 or (entry.kind is EntryKind.VOTERS) != bool(entry.voters):
        return _bad(f"{entry.kind.value} entry {entry.base_offset}-{entry.last_offset}")
    if record_count > settings.max_entry_records or entry.size_bytes > settings.max_entry_bytes:
        return _large(f"an entry of {record_count} records, {entry.size_bytes} bytes")
    return None


def _fault_of_chunk(term: Term, chunk: SnapshotChunk, settings: Settings) -> Fault | None:
    snapshot = chunk.snapshot
    if snapshot.end_offset <= 0 or not 0 < snapshot.term <= term or not chunk.voters:
        return _bad(f"snapshot {snapshot.end_offset}@{snapshot.term}")
    if chunk.total_bytes > settings.max_snapshot_bytes:
        return _large(f"a snapshot of {chunk.total_bytes} bytes")
    if len(chunk.data) > settings.snapshot_chunk_bytes:
        return _large(f"a chunk of {len(chunk.data)} bytes")
    end = chunk.position + len(chunk.data)
    if chunk.position < 0 or not chunk.data or end > chunk.total_bytes:
        return _bad(f"chunk {chunk.position}-{end} of {chunk.total_bytes}")
    return None


def _bad(detail: str) -> Fault:
    return Fault(IgnoreReason.BAD_FIELD, detail)


def _large(detail: str) -> Fault:
    return Fault(IgnoreReason.TOO_LARGE, detail)
