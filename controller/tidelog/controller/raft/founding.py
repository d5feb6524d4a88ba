"""The very first election, and why a node with an empty log does not vote otherwise (hazard 40).

A voter that lost its disk has forgotten which entries it acknowledged. If it voted, it could help
to elect a leader without them. So a voter is a node *with its directory*, votes are asked of a
directory, and the log names the directories that vote. That leaves the beginning, when there is
no log yet and the configuration names nodes only:

- A node with an empty log is a learner and says ``Hello`` to all configured voters.
- Only when *every one of them* has told *this directory* that its log is empty does it become a
  founder: the voters are those nodes with the directories they named. It writes them down.
- A founder may vote. It may stand when all other founders have said that they have written it
  down too; otherwise the first leader could be lost together with what it committed, next to a
  voter that restarted empty and cannot tell that from having been wiped.
- A wiped node never gets there, because somebody reports a log. It stays a learner; the leader
  sees its ``Hello``, catches it up, and an operator's membership change admits its new directory.

One more trap: a node votes in term 3, is wiped, and the new directory knows nothing of that vote.
Whoever asked for it had reached term 3 by then, and must answer the ``Hello`` of the new directory
before that can found. So a founder takes its vote in the highest term it was told of as spent.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import IgnoreReason
from tidelog.controller.raft.messages import Envelope, Hello, HelloBack
from tidelog.controller.raft.model import ReplicaKey, Voters
from tidelog.controller.raft.roles import EmptyReport, Learner, Unattached
from tidelog.kernel.ids import NodeId


def tick_learner(core: Core, learner: Learner) -> None:
    """Look for a leader, or for the other founders, until one of them is found."""
    following = learner.following
    if following is not None and core.now_ms >= following.lease_until_ms:
        learner.following = None
    if learner.following is None and core.now_ms >= learner.hello_due_ms:
        learner.hello_due_ms = core.now_ms + core.settings.hello_interval_ms
        # The leader may be a node that this one's configuration does not name.
        hint = [] if learner.leader_hint is None else [learner.leader_hint]
        _say_hello_to_all(core, hint)
        _found_if_complete(core, learner)


def tick_founder(core: Core, role: Unattached) -> None:
    """Ask until all founders are known to be ready; then the first election may begin."""
    _confirm_if_complete(core)
    if not core.may_stand and core.now_ms >= role.hello_due_ms:
        role.hello_due_ms = core.now_ms + core.settings.hello_interval_ms
        _say_hello_to_all(core, [])


def on_hello(core: Core, envelope: Envelope, hello: Hello) -> None:
    _note_founder(core, envelope.source, hello.is_founder)
    back = HelloBack(
        core.log.is_empty,
        core.state.founding is not None,
        core.identity.configured_voters,
        core.leader_id,
    )
    core.send_when_state_durable(envelope.source, back)
    if isinstance(core.role, Learner) and hello.is_log_empty and core.log.is_empty:
        node_id = envelope.source.node_id
        report = core.role.reports.get(node_id)
        if report is None or report.directory_id != envelope.source.directory_id:
            # It has just started; ask at once instead of at the next interval.
            core.role.reports.pop(node_id, None)
            say_hello(core, node_id)


def on_hello_back(core: Core, envelope: Envelope, back: HelloBack) -> None:
    _note_founder(core, envelope.source, back.is_founder)
    learner = core.role
    if not isinstance(learner, Learner) or learner.following is not None:
        return
    node_id = envelope.source.node_id
    learner.leader_hint = back.leader_id
    if not core.log.is_empty:
        return
    if not back.is_log_empty:
        learner.reports.pop(node_id, None)
    elif back.configured_voters != core.identity.configured_voters:
        core.ignore(
            IgnoreReason.VOTER_LIST_DIFFERS,
            f"node {node_id} is configured with voters {list(back.configured_voters)}, "
            f"this node with {list(core.identity.configured_voters)}",
        )
    else:
        learner.reports[node_id] = EmptyReport(envelope.source.directory_id)
        learner.reported_term = max(learner.reported_term, envelope.term)
        _found_if_complete(core, learner)


def say_hello(core: Core, node_id: NodeId) -> None:
    """Goes out when the state is durable, because it may say that this node is a founder."""
    is_founder = core.state.founding is not None
    hello = Hello(core.log.is_empty, is_founder, core.identity.configured_voters)
    core.send_to_node_when_state_durable(node_id, hello)


def _say_hello_to_all(core: Core, more: list[NodeId]) -> None:
    voters = [key.node_id for key in core.voters]
    known = {*core.identity.configured_voters, *voters, *more}
    for node_id in sorted(known - {core.key.node_id}):
        say_hello(core, node_id)


def _found_if_complete(core: Core, learner: Learner) -> None:
    configured = core.identity.configured_voters
    others = [node_id for node_id in configured if node_id != core.key.node_id]
    if not core.log.is_empty or len(others) == len(configured):
        return
    if any(node_id not in learner.reports for node_id in others):
        return
    keys = [ReplicaKey(node_id, learner.reports[node_id].directory_id) for node_id in others]
    state = replace(core.state, founding=Voters.of([core.key, *keys]))
    reported = learner.reported_term
    if reported > core.term:
        state = replace(state, term=reported, voted_for=core.key)
    elif reported == core.term > 0 and state.voted_for is None:
        state = replace(state, voted_for=core.key)
    core.persist(state)
    core.become(Unattached(core.short_deadline_ms(), core.now_ms + core.settings.hello_interval_ms))
    _say_hello_to_all(core, [])


def _note_founder(core: Core, key: ReplicaKey, is_founder: bool) -> None:
    """To have founded is a fact about a directory that does not become untrue."""
    if is_founder and key.node_id in core.identity.configured_voters:
        core.founders[key.node_id] = key
        _confirm_if_complete(core)


def _confirm_if_complete(core: Core) -> None:
    founding = core.state.founding
    if founding is None or core.state.is_founding_confirmed or not core.log.is_empty:
        return
    if all(core.founders.get(key.node_id) == key or key == core.key for key in founding):
        core.persist(replace(core.state, is_founding_confirmed=True))
        if isinstance(core.role, Unattached):
            core.role.deadline_ms = core.short_deadline_ms()
