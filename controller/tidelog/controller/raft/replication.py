"""The sending side of replication (Raft paper, 5.3 and 5.4.2): append, push, count, commit.

Entries are pushed while the leader's own fsync is under way; each replica's durable end counts, the
leader's own included. The high watermark moves to what a majority of the voters has on disk, but
only onto an entry of the present term: an older one could still be lost (figure 8).
"""

from __future__ import annotations

from tidelog.controller.raft import snapshots
from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import Committed, IgnoreReason
from tidelog.controller.raft.messages import AppendAccepted, AppendRejected, AppendRequest, Envelope
from tidelog.controller.raft.model import Entry, EntryKind
from tidelog.controller.raft.progress import Pace, Progress
from tidelog.controller.raft.roles import Leader
from tidelog.kernel.ids import Offset


def append_to_own_log(
    core: Core, kind: EntryKind, *, data: bytes = b"", record_count: int = 1
) -> Entry:
    """One DATA or LEADER_CHANGE entry of this term at the end of the leader's log."""
    base = core.log.end
    leader_id = core.key.node_id if kind is EntryKind.LEADER_CHANGE else None
    last = Offset(base + record_count - 1)
    entry = Entry(base, last, core.term, kind, data, leader_id=leader_id)
    core.write_log(None, (entry,))
    return entry


# --- sending -------------------------------------------------------------------------------------


def push_to_all(core: Core, leader: Leader) -> None:
    for progress in leader.progress.values():
        push(core, progress)


def push(core: Core, progress: Progress) -> None:
    """Send whatever the replica lacks and its pace allows."""
    if progress.next_offset < core.log.start and progress.pace is not Pace.SNAPSHOT:
        snapshots.begin(core, progress)
        return
    limit = core.settings.max_inflight_appends
    while progress.may_send(limit):
        entries = core.log.entries_from(progress.next_offset, core.settings.max_append_bytes)
        if not entries and progress.pace is Pace.REPLICATE:
            return
        _send_append(core, progress, entries)
        progress.has_sent(entries[-1].end_offset if entries else progress.next_offset)


def send_heartbeats(core: Core, leader: Leader) -> None:
    for progress in leader.progress.values():
        match progress.pace:
            case Pace.PROBE:
                progress.is_probe_out = False
                push(core, progress)
            case Pace.REPLICATE:
                # It names the end of all that was sent: a replica that missed some rejects it.
                _send_append(core, progress, ())
            case Pace.SNAPSHOT:
                _send_append(core, progress, ())
                snapshots.resend_if_late(core, progress)


def announce_commit(core: Core, leader: Leader) -> None:
    """Let followers apply without waiting for the next append or heartbeat."""
    for progress in leader.progress.values():
        if progress.pace is Pace.REPLICATE and progress.next_offset == core.log.end:
            _send_append(core, progress, (), is_announcement=True)


def _send_append(
    core: Core, progress: Progress, entries: tuple[Entry, ...], *, is_announcement: bool = False
) -> None:
    prev_end = max(progress.next_offset, core.log.start)
    prev_term = core.log.term_before(prev_end)
    assert prev_term is not None, "a leader's log reaches as far as it sends"
    request = AppendRequest(prev_end, prev_term, entries, core.commit, is_announcement)
    core.send(progress.key, request)


# --- answers -------------------------------------------------------------------------------------


def on_accepted(
    core: Core, leader: Leader, envelope: Envelope, accepted: AppendAccepted
) -> Progress | None:
    """The replica's progress if it tells something new."""
    progress = leader.progress[envelope.source]
    if accepted.match_end > core.log.end:
        core.ignore(
            IgnoreReason.ACKNOWLEDGED_TOO_MUCH,
            f"{envelope.source} has {accepted.match_end}, our log ends at {core.log.end}",
        )
        return None
    if progress.pace is Pace.SNAPSHOT and accepted.match_end < core.log.start:
        return None
    if progress.pace is Pace.SNAPSHOT:
        progress.probe_from(accepted.match_end)
    return progress if progress.was_accepted(accepted.match_end) else None


def on_rejected(core: Core, leader: Leader, envelope: Envelope, rejected: AppendRejected) -> None:
    """Back off by a whole term: to the end of the conflicting term in our log if we have it, else
    to its start in the follower's."""
    progress = leader.progress[envelope.source]
    if progress.is_stale_rejection(rejected.prev_end):
        return
    if rejected.prev_end <= progress.match_end:
        core.ignore(
            IgnoreReason.NOT_EXPECTED,
            f"{envelope.source} rejects {rejected.prev_end}, which it had acknowledged",
        )
        return
    hint = rejected.conflict_start
    if rejected.conflict_term is not None:
        ours = core.log.end_of_term(rejected.conflict_term)
        if ours is not None and ours < rejected.prev_end:
            hint = ours
    hint = min(hint, Offset(rejected.prev_end - 1))
    progress.probe_from(core.log.boundary_at_or_below(hint))
    push(core, progress)


# --- committing ----------------------------------------------------------------------------------


def advance_commit(core: Core, leader: Leader) -> bool:
    """Move the high watermark to what a majority has on disk; true if it moved."""
    voters = core.voters
    ends = sorted(
        core.disk.durable_end if voter == core.key else leader.progress[voter].match_end
        for voter in voters
    )
    end = ends[len(voters) - voters.majority]
    if end <= core.commit or core.log.term_before(end) != core.term:
        return False
    core.commit = end
    core.emit(Committed(end))
    return True
