"""Elections: when a node stands, whom it votes for, and when it may not (Raft paper, 5.2 and 5.4).

Added to the paper: *pre-vote* (thesis, 9.6), so that a node that was cut off does not raise the
term when it returns; the *lease*, by which a node that hears from a leader grants nothing; and the
stream reset, which ends the lease long before silence would (DESIGN, 2.3).
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.controller.raft import founding
from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import IgnoreReason
from tidelog.controller.raft.messages import Envelope, TimeoutNow, VoteRequest, VoteResponse
from tidelog.controller.raft.model import ReplicaKey, Term
from tidelog.controller.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Learner,
    PreCandidate,
    Resigned,
    Unattached,
)
from tidelog.kernel.ids import NodeId

# --- standing for election -----------------------------------------------------------------------


def tick_voter(
    core: Core, role: Unattached | Follower | PreCandidate | Candidate | Resigned
) -> None:
    if core.now_ms < role.deadline_ms:
        return
    if isinstance(role, PreCandidate | Candidate):
        core.rounds += 1
    if core.may_stand:
        _ask_for_pre_votes(core)
    elif isinstance(role, Follower):
        # A founder that lost its leader before it had an entry; see ``founding``.
        core.become(Unattached(core.silence_deadline_ms()))
    else:
        role.deadline_ms = core.silence_deadline_ms()


def on_stream_reset(core: Core, node_id: NodeId) -> None:
    """The leader's process has probably died: its lease ends, and we ask the others soon."""
    following = core.following
    if following is None or following.leader.node_id != node_id:
        return
    following.lease_until_ms = core.now_ms
    if isinstance(core.role, Follower):
        core.role.deadline_ms = core.short_deadline_ms()


def on_timeout_now(core: Core, envelope: Envelope, _: TimeoutNow) -> None:
    """The leader hands over: no pre-vote, and the voters need not wait for the lease to end."""
    follows = core.following is not None and core.following.leader == envelope.source
    if envelope.term == core.term and follows and isinstance(core.role, Follower):
        _stand(core, is_leadership_transfer=True)
    else:
        core.ignore(IgnoreReason.NOT_EXPECTED, "asked to stand for election, but not a follower")


def _ask_for_pre_votes(core: Core) -> None:
    deadline_ms = core.round_deadline_ms()
    if isinstance(core.role, PreCandidate):
        core.role.deadline_ms = deadline_ms
        core.role.granted = {core.key}
    else:
        core.become(PreCandidate(deadline_ms, {core.key}))
    if core.voters.are_majority([core.key]):
        _stand(core, is_leadership_transfer=False)
        return
    for voter in core.voters:
        if voter != core.key:
            core.send_when_state_durable(voter, _request(core, is_pre_vote=True))


def _stand(core: Core, *, is_leadership_transfer: bool) -> None:
    """Raise the term and vote for oneself; that must be on disk before anybody hears of it."""
    core.persist(replace(core.state, term=Term(core.term + 1), voted_for=core.key))
    core.become(Candidate(core.round_deadline_ms()))
    request = _request(core, is_pre_vote=False, is_leadership_transfer=is_leadership_transfer)
    for voter in core.voters:
        if voter != core.key:
            core.send_when_state_durable(voter, request)
    core.vote_for_self_when_durable()


def _request(core: Core, *, is_pre_vote: bool, is_leadership_transfer: bool = False) -> VoteRequest:
    return VoteRequest(core.log.last_term, core.log.end, is_pre_vote, is_leadership_transfer)


# --- voting --------------------------------------------------------------------------------------


def on_vote_request(core: Core, envelope: Envelope, request: VoteRequest) -> None:
    granted = (
        _grants_pre_vote(core, envelope, request)
        if request.is_pre_vote
        else _grants_vote(core, envelope, request)
    )
    response = VoteResponse(granted, request.is_pre_vote, envelope.term, core.leader_id)
    core.send_when_state_durable(envelope.source, response)


def _grants_pre_vote(core: Core, envelope: Envelope, request: VoteRequest) -> bool:
    return (
        not _is_in_lease(core)
        and envelope.term >= core.term
        and _is_up_to_date(core, request)
        and _may_vote(core)
    )


def _grants_vote(core: Core, envelope: Envelope, request: VoteRequest) -> bool:
    if envelope.term < core.term:
        return False
    if envelope.term > core.term:
        if _is_in_lease(core) and not request.is_leadership_transfer:
            return False
        core.adopt_term(envelope.term)
    has_vote_left = core.state.voted_for in (None, envelope.source) and core.leader_id is None
    if not (has_vote_left and _is_up_to_date(core, request) and _may_vote(core)):
        return False
    if core.state.voted_for is None:
        core.persist(replace(core.state, voted_for=envelope.source))
    if isinstance(core.role, Unattached):
        core.role.deadline_ms = core.silence_deadline_ms()
    return True


def _is_in_lease(core: Core) -> bool:
    """A leader's own lease lasts as long as it leads: check-quorum ends it."""
    if isinstance(core.role, Leader):
        return True
    return core.following is not None and core.now_ms < core.following.lease_until_ms


def _is_up_to_date(core: Core, request: VoteRequest) -> bool:
    """Raft paper, 5.4.1: the later last term wins, then the longer log."""
    return (request.last_term, request.end_offset) >= (core.log.last_term, core.log.end)


def _may_vote(core: Core) -> bool:
    """A log may vote; an empty log only if it is a founder's (see ``founding``).

    A learner with a log may vote: it was asked by its directory, so the candidate's log has
    admitted it, and perhaps only the news has not arrived. Refusing could leave a quorum that is
    complete without a leader (thesis, 4.2.1; etcd/raft does the same).
    """
    return not core.log.is_empty or core.state.founding is not None


# --- counting ------------------------------------------------------------------------------------


def on_vote_response(core: Core, envelope: Envelope, response: VoteResponse) -> bool:
    """True if this node has won."""
    if envelope.term > core.term:
        if envelope.source not in core.voters:
            core.ignore(IgnoreReason.UNKNOWN_REPLICA, f"vote of {envelope.source}")
        else:
            core.adopt_term(envelope.term)
        return False
    if response.asked_in_term != core.term:
        core.ignore(IgnoreReason.STALE_TERM, f"vote of term {response.asked_in_term}")
        return False
    if not response.is_granted:
        _look_for_leader(core, response)
        return False
    match core.role:
        case PreCandidate() as asking if response.is_pre_vote:
            if _count(core, asking.granted, envelope.source):
                _stand(core, is_leadership_transfer=False)
            return False
        case Candidate() as standing if not response.is_pre_vote:
            if not core.disk.is_durable(core.disk.state_write):
                core.ignore(IgnoreReason.NOT_EXPECTED, f"{envelope.source} was not asked yet")
                return False
            return _count(core, standing.granted, envelope.source)
        case Learner() | Follower() | Leader() | Unattached() | Resigned() | _:
            return False


def _look_for_leader(core: Core, response: VoteResponse) -> None:
    """A voter that was removed while away asks those it knows; the leader may not be one of them,
    and takes this node on when it hears of it."""
    leader_id = response.leader_id
    if leader_id in (None, core.key.node_id) or not isinstance(core.role, PreCandidate):
        return
    if leader_id is not None and core.voters.of_node(leader_id) is None:
        founding.say_hello(core, leader_id)


def on_own_vote(core: Core, term: Term) -> bool:
    """The vote for oneself is on disk; true if that was the last one needed."""
    if isinstance(core.role, Candidate) and core.term == term and core.is_voter:
        return _count(core, core.role.granted, core.key)
    return False


def _count(core: Core, granted: set[ReplicaKey], voter: ReplicaKey) -> bool:
    if voter not in core.voters:
        core.ignore(IgnoreReason.UNKNOWN_REPLICA, f"vote of {voter}")
        return False
    granted.add(voter)
    return core.voters.are_majority(granted)
