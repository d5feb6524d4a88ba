"""Changes of the voters, one at a time (thesis, chapter 4).

A voters entry is in force from the moment it is in a log, and is rolled back if it is cut off
again. Any majority of the old voters overlaps any majority of the new ones as long as they differ
by one, so a change waits until the previous one is committed, and until an entry of the leader's
own term is (the gap found in 2015: two leaders could otherwise change the same configuration).

A new voter first catches up as a learner, so that its vote never counts before its log does. A
leader that removes itself goes on without counting itself until the entry is committed.
"""

from __future__ import annotations

from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import (
    IgnoreReason,
    MembershipChanged,
    RejectReason,
    RequestRejected,
)
from tidelog.controller.raft.model import Entry, EntryKind, ReplicaKey, Voters
from tidelog.controller.raft.progress import Progress
from tidelog.controller.raft.roles import CatchingUp, ChangeAppended, Leader
from tidelog.kernel.ids import Offset


def take_on_observer(core: Core, leader: Leader, key: ReplicaKey) -> None:
    """A node that is no voter showed up: send it the log. It counts for nothing until added."""
    if key in leader.progress:
        return
    observers = len(leader.progress) - len([key for key in core.voters if key in leader.progress])
    if observers >= core.settings.max_observers:
        core.ignore(IgnoreReason.TOO_MANY_OBSERVERS, f"{key} finds {observers} observers")
        return
    leader.progress[key] = Progress(key, core.log.end, core.now_ms)


def drop_silent_observers(core: Core, leader: Leader) -> None:
    limit_ms = core.now_ms - core.settings.observer_timeout_ms
    for key in list(leader.progress):
        if key not in core.voters and leader.progress[key].last_contact_ms < limit_ms:
            del leader.progress[key]


def request_add(core: Core, leader: Leader, request_id: int, voter: ReplicaKey) -> None:
    reason = _obstacle(core, leader)
    if reason is None and voter in core.voters:
        reason = RejectReason.ALREADY_VOTER
    elif reason is None and core.voters.of_node(voter.node_id) is not None:
        reason = RejectReason.NODE_ALREADY_VOTES
    elif reason is None and voter not in leader.progress:
        reason = RejectReason.UNKNOWN_LEARNER
    if reason is not None:
        core.emit(RequestRejected(request_id, reason, core.leader_id))
        return
    deadline_ms = core.now_ms + core.settings.catch_up_timeout_ms
    leader.change = CatchingUp(request_id, voter, core.log.end, deadline_ms)
    admit_if_caught_up(core, leader)


def request_remove(core: Core, leader: Leader, request_id: int, voter: ReplicaKey) -> None:
    reason = _obstacle(core, leader)
    if reason is None and voter not in core.voters:
        reason = RejectReason.NOT_A_VOTER
    elif reason is None and len(core.voters) == 1:
        reason = RejectReason.LAST_VOTER
    if reason is not None:
        core.emit(RequestRejected(request_id, reason, core.leader_id))
        return
    _append_voters(core, leader, core.voters.minus(voter), request_id)


def admit_if_caught_up(core: Core, leader: Leader) -> None:
    change = leader.change
    if not isinstance(change, CatchingUp) or change.voter not in leader.progress:
        return
    if leader.progress[change.voter].match_end >= change.target_end:
        _append_voters(core, leader, core.voters.plus(change.voter), change.request_id)


def give_up_slow_learner(core: Core, leader: Leader) -> None:
    change = leader.change
    if isinstance(change, CatchingUp) and core.now_ms >= change.deadline_ms:
        leader.change = None
        reason = RejectReason.CATCH_UP_TIMED_OUT
        core.emit(RequestRejected(change.request_id, reason, core.leader_id))


def on_committed(core: Core, leader: Leader) -> None:
    change = leader.change
    if isinstance(change, ChangeAppended) and core.commit >= change.end_offset:
        leader.change = None
        if change.request_id is not None:
            core.emit(MembershipChanged(change.request_id, core.voters))


def founding_entry(core: Core, founding: Voters) -> Entry:
    """The first entry of all: from here on the log names the voters and their directories."""
    return Entry(Offset(0), Offset(0), core.term, EntryKind.VOTERS, voters=founding)


def _obstacle(core: Core, leader: Leader) -> RejectReason | None:
    if not leader.is_established:
        return RejectReason.NOT_ESTABLISHED
    if leader.handover is not None:
        return RejectReason.TRANSFERRING
    if leader.change is not None or core.log.voters_end > core.commit:
        return RejectReason.CHANGE_IN_PROGRESS
    return None


def _append_voters(core: Core, leader: Leader, voters: Voters, request_id: int) -> None:
    base = core.log.end
    core.write_log(None, (Entry(base, base, core.term, EntryKind.VOTERS, voters=voters),))
    leader.change = ChangeAppended(request_id, core.log.end)
    for key in voters:
        if key != core.key and key not in leader.progress:
            leader.progress[key] = Progress(key, base, core.now_ms)
