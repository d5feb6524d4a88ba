"""Snapshots: taken here, sent to a replica whose entries are gone, received from a leader.

A snapshot travels in chunks, one in flight. The follower's answer names the position it wants
next, so a lost or doubled chunk costs one round trip and a transfer resumes where it stopped; a new
leader begins anew, because the bytes of its snapshot may differ. The term of the last entry that a
snapshot covers travels with it: the first entry behind is matched against that term (Raft paper,
section 7), and so do the voters, because the entry that named them is gone.
"""

from __future__ import annotations

from tidelog.controller.raft import follower
from tidelog.controller.raft.core import Core
from tidelog.controller.raft.effects import (
    IgnoreReason,
    InstallSnapshot,
    MoveLogStart,
    SendSnapshotChunk,
    WriteSnapshotChunk,
)
from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.messages import Envelope, SnapshotAck, SnapshotChunk
from tidelog.controller.raft.model import SnapshotId
from tidelog.controller.raft.progress import OutgoingSnapshot, Progress
from tidelog.controller.raft.roles import Following, IncomingSnapshot, Leader

# --- taking --------------------------------------------------------------------------------------


def on_taken(core: Core, snapshot: SnapshotId) -> None:
    """The state machine has a snapshot on disk: the log may begin there."""
    end = snapshot.end_offset
    if end > core.commit:
        raise BrokenInvariant(f"a snapshot up to {end} holds more than the committed {core.commit}")
    if end <= core.log.start:
        core.ignore(IgnoreReason.BAD_SNAPSHOT, f"the log begins at {core.log.start} already")
    elif end > core.disk.durable_end or not core.log.is_boundary(end):
        core.ignore(IgnoreReason.BAD_SNAPSHOT, f"no entry that is on disk ends at {end}")
    elif core.log.term_before(end) != snapshot.term:
        raise BrokenInvariant(
            f"a snapshot of term {snapshot.term} covers an entry of {core.log.term_before(end)}"
        )
    else:
        core.log.compact(snapshot)
        core.emit(MoveLogStart(snapshot))


# --- sending -------------------------------------------------------------------------------------


def begin(core: Core, progress: Progress) -> None:
    snapshot, voters = core.log.snapshot, core.log.voters_at(core.log.start)
    if snapshot is None or voters is None:
        raise BrokenInvariant("the log begins above 0 without a snapshot")
    progress.send_snapshot(OutgoingSnapshot(snapshot, voters, 0, core.now_ms))
    _send_chunk(core, progress)


def resend_if_late(core: Core, progress: Progress) -> None:
    outgoing = progress.outgoing
    if outgoing and core.now_ms >= outgoing.sent_ms + core.settings.snapshot_retry_ms:
        _send_chunk(core, progress)


def on_chunk_failed(progress: Progress, snapshot: SnapshotId) -> None:
    """The file is gone, most likely replaced by a newer one: begin with that at the next beat."""
    if progress.outgoing and progress.outgoing.snapshot == snapshot:
        progress.probe_from(progress.match_end)
        progress.is_probe_out = True


def on_ack(core: Core, leader: Leader, envelope: Envelope, ack: SnapshotAck) -> bool:
    """True if the replica has all of it, and appends can go on behind the snapshot."""
    progress = leader.progress[envelope.source]
    outgoing = progress.outgoing
    if outgoing is None or outgoing.snapshot != ack.snapshot:
        core.ignore(IgnoreReason.NOT_EXPECTED, f"{envelope.source} confirms another snapshot")
        return False
    if not ack.is_installed:
        if ack.position != outgoing.position:
            outgoing.position = ack.position
            _send_chunk(core, progress)
        return False
    progress.probe_from(ack.snapshot.end_offset)
    progress.was_accepted(ack.snapshot.end_offset)
    return True


def _send_chunk(core: Core, progress: Progress) -> None:
    outgoing = progress.outgoing
    assert outgoing is not None, "only a snapshot that is being sent has chunks"
    outgoing.sent_ms = core.now_ms
    chunk = SnapshotChunk(outgoing.snapshot, outgoing.voters, outgoing.position, 0, b"")
    envelope = core.envelope(progress.key, chunk)
    core.emit(SendSnapshotChunk(envelope, chunk, core.settings.snapshot_chunk_bytes))


# --- receiving -----------------------------------------------------------------------------------


def on_chunk(core: Core, envelope: Envelope, chunk: SnapshotChunk) -> None:
    following = follower.follow(core, envelope)
    if following is None:
        return
    snapshot = chunk.snapshot
    if _is_covered(core, snapshot):
        # Our log holds the last entry that it covers: all before that agrees, keep the log.
        following.verified_end = max(following.verified_end, snapshot.end_offset)
        core.send_when_all_durable(envelope.source, SnapshotAck(snapshot, 0, is_installed=True))
        return
    incoming = following.incoming
    if incoming is None or incoming.snapshot != snapshot:
        incoming = following.incoming = IncomingSnapshot(snapshot, chunk.voters)
    if chunk.position == incoming.position:
        write = core.disk.number_write()
        core.emit(WriteSnapshotChunk(write, snapshot, chunk.position, chunk.data))
        incoming.position += len(chunk.data)
        if incoming.position == chunk.total_bytes:
            _install(core, following, incoming)
            core.send_when_all_durable(envelope.source, SnapshotAck(snapshot, 0, is_installed=True))
            return
    ack = SnapshotAck(snapshot, incoming.position, is_installed=False)
    core.send_when_all_durable(envelope.source, ack)


def _is_covered(core: Core, snapshot: SnapshotId) -> bool:
    end = snapshot.end_offset
    return end <= core.commit or core.log.term_before(end) == snapshot.term


def _install(core: Core, following: Following, incoming: IncomingSnapshot) -> None:
    """The log gives way to the snapshot. It counts as durable only when the disk says so."""
    snapshot = incoming.snapshot
    following.incoming = None
    core.disk.cut(core.commit)
    core.log.replace(snapshot, incoming.voters)
    write = core.disk.number_log_write(snapshot.end_offset)
    core.emit(InstallSnapshot(write, snapshot, incoming.voters))
    core.commit = snapshot.end_offset
    following.verified_end = snapshot.end_offset
    core.settle_voting_right()
