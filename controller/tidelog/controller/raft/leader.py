"""What a leader does: starts its term, answers clients, keeps its majority, hands over.

Each thing that may move a leader forward (an answer, its own disk, a request) ends in ``go_on``,
which commits, tells the clients, finishes what waited for the commit, and sends what can be sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from tidelog.controller.raft import membership, replication, snapshots
from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import (
    IgnoreReason,
    LeadershipEstablished,
    ProposalAccepted,
    ProposalRejected,
    RejectReason,
    RequestRejected,
)
from tidelog.controller.raft.events import Proposed, TransferRequested
from tidelog.controller.raft.messages import (
    AppendAccepted,
    AppendRejected,
    Envelope,
    SnapshotAck,
    TimeoutNow,
)
from tidelog.controller.raft.model import BATCH_OVERHEAD_BYTES, Entry, EntryKind
from tidelog.controller.raft.progress import Pace, Progress
from tidelog.controller.raft.roles import ChangeAppended, Handover, Leader, Learner, Resigned
from tidelog.kernel.ids import NodeId, Offset

# --- the start of a term -------------------------------------------------------------------------


def start_term(core: Core) -> None:
    """Won. The first entry of the term commits all earlier ones with it (Raft paper, 8)."""
    epoch_start = core.log.end
    entries: list[Entry] = []
    if core.log.is_empty and core.state.founding is not None:
        entries.append(membership.founding_entry(core, core.state.founding))
    base = Offset(epoch_start + len(entries))
    me = core.key.node_id
    entries.append(Entry(base, base, core.term, EntryKind.LEADER_CHANGE, leader_id=me))
    leader = Leader(core.term, epoch_start, Offset(base + 1), core.real_ms)
    core.rounds = 0
    core.become(leader)
    core.write_log(None, tuple(entries))
    if core.log.voters_end > core.commit:
        # A change that an earlier leader began; ours to finish before the next one.
        leader.change = ChangeAppended(None, core.log.voters_end)
    for voter in core.voters:
        if voter != core.key:
            leader.progress[voter] = Progress(voter, epoch_start, core.now_ms)
    leader.heartbeat_due_ms = core.real_ms + core.settings.heartbeat_interval_ms
    go_on(core, leader)


# --- time ----------------------------------------------------------------------------------------


def tick(core: Core, leader: Leader) -> None:
    if not _has_quorum(core, leader):
        core.become(Resigned(core.silence_deadline_ms()), "a majority has fallen silent")
        return
    membership.drop_silent_observers(core, leader)
    membership.give_up_slow_learner(core, leader)
    _give_up_slow_handover(core, leader)
    if core.real_ms >= leader.heartbeat_due_ms:
        leader.heartbeat_due_ms = core.real_ms + core.settings.heartbeat_interval_ms
        replication.send_heartbeats(core, leader)


def _has_quorum(core: Core, leader: Leader) -> bool:
    """Check-quorum (thesis, 6.2): who cannot reach a majority must not go on as if it led."""
    limit_ms = core.now_ms - core.settings.check_quorum_ms
    heard = [p.key for p in leader.progress.values() if p.last_contact_ms > limit_ms]
    return core.voters.are_majority([core.key, *heard])


# --- answers from replicas -----------------------------------------------------------------------


def on_answer(
    core: Core, envelope: Envelope, answer: AppendAccepted | AppendRejected | SnapshotAck
) -> None:
    leader = core.role
    if envelope.term > core.term:
        _on_higher_term(core, envelope)
        return
    if envelope.term < core.term or not isinstance(leader, Leader):
        core.ignore(IgnoreReason.STALE_TERM, f"answer of term {envelope.term}")
        return
    progress = leader.progress.get(envelope.source)
    if progress is None:
        core.ignore(IgnoreReason.UNKNOWN_REPLICA, f"answer of {envelope.source}")
        return
    progress.last_contact_ms = core.now_ms
    progress.has_answered = True
    match answer:
        case AppendAccepted():
            if replication.on_accepted(core, leader, envelope, answer):
                go_on(core, leader)
        case AppendRejected():
            replication.on_rejected(core, leader, envelope, answer)
        case SnapshotAck():
            if snapshots.on_ack(core, leader, envelope, answer):
                go_on(core, leader)
        case _:
            assert_never(answer)


def _on_higher_term(core: Core, envelope: Envelope) -> None:
    known = envelope.source in core.voters
    if isinstance(core.role, Leader):
        known = known or envelope.source in core.role.progress
    if known:
        core.adopt_term(envelope.term)
    else:
        core.ignore(IgnoreReason.UNKNOWN_REPLICA, f"answer of {envelope.source}")


def on_stream_reset(leader: Leader, node_id: NodeId) -> None:
    """What was in flight is probably lost: feel for its log again at the next heartbeat."""
    for progress in leader.progress.values():
        if progress.key.node_id == node_id and progress.pace is Pace.REPLICATE:
            progress.probe_from(progress.match_end)


def go_on(core: Core, leader: Leader) -> None:
    """Commit what can be committed, then send what can be sent."""
    has_moved = replication.advance_commit(core, leader)
    if has_moved:
        if not leader.is_established and core.commit >= leader.change_end:
            leader.is_established = True
            core.emit(LeadershipEstablished(core.term, leader.epoch_start))
        membership.on_committed(core, leader)
    membership.admit_if_caught_up(core, leader)
    replication.push_to_all(core, leader)
    if has_moved:
        replication.announce_commit(core, leader)
        if not core.is_voter and core.log.voters_end <= core.commit:
            _wake_successor(core, leader)
            core.become(Learner(None, core.now_ms), "removed from the voters")
            return
    _tell_successor(core, leader)


# --- clients -------------------------------------------------------------------------------------


def on_proposed(core: Core, proposed: Proposed) -> None:
    leader = core.role
    if not isinstance(leader, Leader):
        _reject(core, proposed, RejectReason.NOT_LEADER)
        return
    size = BATCH_OVERHEAD_BYTES + len(proposed.data)
    uncommitted = core.log.bytes_from(core.commit)
    if leader.handover is not None:
        _reject(core, proposed, RejectReason.TRANSFERRING)
    elif size > core.settings.max_entry_bytes or not (
        1 <= proposed.record_count <= core.settings.max_entry_records
    ):
        _reject(core, proposed, RejectReason.TOO_LARGE)
    elif uncommitted + size > core.settings.max_uncommitted_bytes:
        _reject(core, proposed, RejectReason.OVERLOADED)
    else:
        entry = replication.append_to_own_log(
            core, EntryKind.DATA, data=proposed.data, record_count=proposed.record_count
        )
        where = (entry.base_offset, entry.last_offset, entry.term)
        core.emit(ProposalAccepted(proposed.proposal_id, *where))
        go_on(core, leader)


def _reject(core: Core, proposed: Proposed, reason: RejectReason) -> None:
    core.emit(ProposalRejected(proposed.proposal_id, reason, core.leader_id))


# --- handing over (thesis, 3.10) -----------------------------------------------------------------


def on_transfer_requested(core: Core, leader: Leader, requested: TransferRequested) -> None:
    target = _best_successor(core, leader)
    if requested.target is not None:
        target = leader.progress.get(core.voters.of_node(requested.target) or core.key)
    if leader.handover is not None:
        reason = RejectReason.TRANSFERRING
    elif target is None:
        reason = RejectReason.NOT_A_VOTER
    else:
        deadline_ms = core.now_ms + core.settings.election_timeout_ms
        leader.handover = Handover(requested.request_id, target.key, deadline_ms)
        go_on(core, leader)
        return
    core.emit(RequestRejected(requested.request_id, reason, core.leader_id))


def on_resign_requested(core: Core, leader: Leader) -> None:
    _wake_successor(core, leader)
    core.become(Resigned(core.silence_deadline_ms()), "this node was told to resign")


def _tell_successor(core: Core, leader: Leader) -> None:
    """Only one that has the whole log can win at once."""
    handover = leader.handover
    if handover is None or handover.is_told or handover.target not in leader.progress:
        return
    if leader.progress[handover.target].match_end == core.log.end:
        leader.handover = replace(handover, is_told=True)
        core.send(handover.target, TimeoutNow())


def _give_up_slow_handover(core: Core, leader: Leader) -> None:
    handover = leader.handover
    if handover is not None and core.now_ms >= handover.deadline_ms:
        leader.handover = None
        reason = RejectReason.TRANSFER_TIMED_OUT
        core.emit(RequestRejected(handover.request_id, reason, core.leader_id))


def _wake_successor(core: Core, leader: Leader) -> None:
    successor = _best_successor(core, leader)
    if successor is not None:
        core.send(successor.key, TimeoutNow())


def _best_successor(core: Core, leader: Leader) -> Progress | None:
    candidates = [leader.progress[key] for key in core.voters if key in leader.progress]
    return max(candidates, key=lambda p: (p.match_end, p.last_contact_ms), default=None)
