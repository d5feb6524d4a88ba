"""The receiving side of replication (Raft paper, 5.3): check, cut, append, acknowledge.

Two ends matter. The log is *verified* up to where it is known to agree with the leader's, and it
is *durable* up to what was fsynced. A follower acknowledges, and lets the high watermark reach, no
more than both. It answers when the disk has what came, which is when there is something to tell;
a heartbeat it answers at once, so that a slow disk does not look like a dead node.
"""

from __future__ import annotations

from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import Committed, IgnoreReason
from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Envelope,
)
from tidelog.controller.raft.model import Entry, ReplicaKey, Term
from tidelog.controller.raft.roles import (
    Candidate,
    Follower,
    Following,
    Leader,
    Learner,
    PreCandidate,
    Resigned,
    Unattached,
)
from tidelog.kernel.ids import Offset


def follow(core: Core, envelope: Envelope) -> Following | None:
    """Heard from a leader: take it as ours and renew its lease; None if its term is over."""
    if envelope.term < core.term:
        core.ignore(IgnoreReason.STALE_TERM, f"{envelope.source} leads term {envelope.term}")
        # Our higher term makes it give up; otherwise it would wait for us for ever.
        rejection = AppendRejected(Offset(0), None, core.log.end)
        core.send_when_state_durable(envelope.source, rejection)
        return None
    if envelope.term > core.term:
        core.adopt_term(envelope.term)
    following = _attach(core, envelope.source)
    following.lease_until_ms = core.now_ms + core.settings.election_timeout_ms
    if isinstance(core.role, Follower):
        core.role.deadline_ms = core.silence_deadline_ms()
    core.rounds = 0
    return following


def on_append(core: Core, envelope: Envelope, request: AppendRequest) -> None:
    following = follow(core, envelope)
    if following is None:
        return
    prev_end, prev_term, entries = _above_log_start(core, request)
    if core.log.term_before(prev_end) != prev_term or not core.log.is_boundary(prev_end):
        _reject(core, envelope.source, request.prev_end, prev_end)
        return
    _append_what_is_new(core, entries)
    verified_end = entries[-1].end_offset if entries else prev_end
    following.verified_end = max(following.verified_end, verified_end)
    following.leader_commit = max(following.leader_commit, request.commit)
    _advance_commit(core, following)
    core.settle_voting_right()
    is_told_by_disk = entries and following.verified_end > core.disk.durable_end
    is_answer_due = not is_told_by_disk and not request.is_announcement
    if is_answer_due or _acknowledgeable_end(core, following) > following.acknowledged_end:
        acknowledge(core, following)


def _acknowledgeable_end(core: Core, following: Following) -> Offset:
    return min(following.verified_end, core.disk.durable_end)


def acknowledge(core: Core, following: Following) -> None:
    match_end = _acknowledgeable_end(core, following)
    following.acknowledged_end = match_end
    core.send_when_state_durable(following.leader, AppendAccepted(match_end))


def on_more_durable(core: Core, following: Following) -> None:
    """The disk has caught up: tell the leader if that is news."""
    _advance_commit(core, following)
    core.settle_voting_right()
    if _acknowledgeable_end(core, following) > following.acknowledged_end:
        acknowledge(core, following)


def _advance_commit(core: Core, following: Following) -> None:
    end = min(following.leader_commit, following.verified_end, core.disk.durable_end)
    if end > core.commit:
        core.commit = end
        core.emit(Committed(end))


def _attach(core: Core, leader: ReplicaKey) -> Following:
    fresh = Following(leader, lease_until_ms=core.now_ms, verified_end=core.commit)
    match core.role:
        case Unattached() | PreCandidate() | Candidate():
            core.become(Follower(fresh, core.silence_deadline_ms()))
            return fresh
        case Learner(following=None) as learner:
            learner.following = fresh
            return fresh
        case Follower(following=following) | Learner(following=Following() as following):
            if following.leader != leader:
                raise BrokenInvariant(
                    f"term {core.term} has two leaders: {following.leader} and {leader}"
                )
            return following
        case Leader() | Resigned() | Learner():
            raise BrokenInvariant(f"term {core.term} was led here, but also by {leader}")


def _above_log_start(
    core: Core, request: AppendRequest
) -> tuple[Offset, Term | None, tuple[Entry, ...]]:
    """Leave out what our snapshot covers: that is committed, so it agrees with any leader."""
    start = core.log.start
    if request.prev_end >= start:
        return request.prev_end, request.prev_term, request.entries
    entries = tuple(entry for entry in request.entries if entry.base_offset >= start)
    if entries and entries[0].base_offset != start:
        entries = ()
    return start, core.log.term_before(start), entries


def _reject(core: Core, leader: ReplicaKey, asked_end: Offset, prev_end: Offset) -> None:
    term = core.log.term_before(prev_end)
    start = core.log.end if term is None else core.log.start_of_term(term)
    core.send_when_state_durable(leader, AppendRejected(asked_end, term, start))


def _append_what_is_new(core: Core, entries: tuple[Entry, ...]) -> None:
    """Skip what we have; cut at the first entry of another term and take the rest."""
    for index, entry in enumerate(entries):
        mine = core.log.entry_at(entry.base_offset)
        if mine is None:
            core.write_log(None, entries[index:])
            return
        if mine.term != entry.term:
            core.write_log(entry.base_offset, entries[index:])
            return
        if mine != entry:
            raise BrokenInvariant(
                f"two different entries at {entry.base_offset} in term {entry.term}"
            )
