"""Committed entries reach the state machine once and in order; one snapshot is taken at a time."""

from __future__ import annotations

import asyncio

import pytest
from quorum_cluster import HistoryMachine, Truth

from tidelog.controller.metadata.records import Config, MetadataRecord
from tidelog.controller.quorum import NotController, QuorumSettings
from tidelog.controller.quorum.applier import Applier, PendingProposal
from tidelog.controller.quorum.batches import records_to_data
from tidelog.controller.quorum.snapshot_work import SnapshotTaker
from tidelog.controller.quorum.snapshots import LoadedSnapshot, list_snapshots
from tidelog.controller.raft.model import Entry, EntryKind, ReplicaKey, SnapshotId, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, TimestampMs, Uuid
from tidelog.simulation import InlineOffload, SimDisk, World, run_simulation

VOTERS = Voters.of([ReplicaKey(NodeId(1), DirectoryId(Uuid(b"\x01" * 16)))])


def content(base: int, count: int) -> list[MetadataRecord]:
    return [Config(2, "topic", "name", str(base + number)) for number in range(count)]


def entry(base: int, count: int, term: int = 1) -> Entry:
    data = records_to_data(content(base, count), TimestampMs(0))
    last = Offset(base + count - 1)
    return Entry(Offset(base), last, Term(term), EntryKind.DATA, data)


FIRST = Entry(Offset(0), Offset(0), Term(1), EntryKind.VOTERS, voters=VOTERS)
ENTRIES = [FIRST, entry(1, 3), entry(4, 1), entry(5, 10), entry(15, 2)]


def new_applier() -> tuple[Applier, HistoryMachine]:
    machine = HistoryMachine(NodeId(1), Truth())
    return Applier(machine), machine


def nothing() -> None:
    """Called after each entry."""


def test_entries_are_applied_in_slices_that_end_between_entries() -> None:
    applier, machine = new_applier()
    applier.add(ENTRIES)
    seen: list[Offset] = []
    steps = []
    while applier.has_backlog:
        applier.apply_some(4, lambda: seen.append(applier.applied_end))
        steps.append(applier.applied_end)
    assert steps == [4, 15, 17]
    assert seen == [1, 4, 5, 15, 17]
    assert machine.history == content(1, 16)
    assert applier.voters == VOTERS
    assert applier.position == SnapshotId(Offset(17), Term(1))
    assert applier.bytes_since_snapshot == sum(each.size_bytes for each in ENTRIES)


def test_a_snapshot_takes_the_place_of_what_was_not_applied_yet() -> None:
    applier, machine = new_applier()
    applier.add(ENTRIES)
    applier.apply_some(1, nothing)
    records = tuple(content(1, 29))
    applier.load(LoadedSnapshot(SnapshotId(Offset(30), Term(2)), VOTERS, records))
    assert not applier.has_backlog
    assert (applier.applied_end, applier.queued_end) == (30, 30)
    applier.add([entry(30, 1, 2)])
    applier.apply_some(100, nothing)
    assert machine.history == content(1, 30)


def pending(base: int, count: int) -> PendingProposal:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    where = (Offset(base), Offset(base + count - 1), Term(1))
    return PendingProposal(*where, tuple(content(base, count)), future)


def test_a_proposal_is_answered_when_it_was_applied_and_not_before() -> None:
    async def main(_: World) -> None:
        applier, machine = new_applier()
        applier.add(ENTRIES[:1])
        applier.apply_some(1, nothing)
        first, second = pending(1, 3), pending(4, 1)
        applier.expect(first)
        applier.expect(second)
        applier.add(ENTRIES[1:2])
        assert not first.committed.done()
        applier.apply_some(1, nothing)
        assert first.committed.done() and not second.committed.done()
        assert machine.history == content(1, 3)

    run_simulation(main, 1)


def test_what_is_committed_is_answered_although_leadership_was_lost() -> None:
    async def main(_: World) -> None:
        applier, _machine = new_applier()
        proposals = [pending(1, 3), pending(4, 1), pending(5, 10)]
        for proposal in proposals:
            applier.expect(proposal)
        applier.add(ENTRIES[:3])
        applier.give_up(lambda: NotController(None, "lost"))
        assert [proposal.committed.done() for proposal in proposals] == [False, False, True]
        applier.apply_some(100, nothing)
        assert proposals[0].committed.result() is None
        assert proposals[1].committed.result() is None
        with pytest.raises(NotController):
            proposals[2].committed.result()

    run_simulation(main, 1)


# --- taking snapshots ----------------------------------------------------------------------------


def test_one_snapshot_is_taken_at_a_time_when_enough_is_new() -> None:
    async def main(world: World) -> None:
        applier, machine = new_applier()
        disk = SimDisk()
        disk.make_dirs("/d")
        settings = QuorumSettings(bytes_between_snapshots=200, snapshot_interval_ms=1000)
        where = (disk, "/d", world.clock, InlineOffload(), settings)
        taker = SnapshotTaker(*where, Offset(0))
        assert not taker.is_due(applier)
        applier.add(ENTRIES[:2])
        applier.apply_some(100, nothing)
        assert taker.is_due(applier) is (applier.bytes_since_snapshot >= 200)
        applier.add(ENTRIES[2:])
        applier.apply_some(100, nothing)
        assert taker.is_due(applier)
        writing = taker.begin(applier, machine)
        applier.bytes_since_snapshot = 10**6
        assert not taker.is_due(applier), "one is under way"
        applier.bytes_since_snapshot = 0
        assert await writing == SnapshotId(Offset(17), Term(1))
        assert [file.snapshot.end_offset for file in list_snapshots(disk, "/d")] == [17]
        assert not taker.is_due(applier)
        await asyncio.sleep(2)
        assert not taker.is_due(applier), "nothing is new"
        applier.add([entry(17, 1)])
        applier.apply_some(100, nothing)
        assert taker.is_due(applier), "the interval is over"

    run_simulation(main, 1)


def test_after_a_full_disk_the_snapshot_is_tried_again_later() -> None:
    async def main(world: World) -> None:
        applier, machine = new_applier()
        disk = SimDisk()
        disk.make_dirs("/d")
        settings = QuorumSettings(bytes_between_snapshots=1)
        taker = SnapshotTaker(disk, "/d", world.clock, InlineOffload(), settings, Offset(0))
        applier.add(ENTRIES)
        applier.apply_some(100, nothing)
        disk.faults.capacity_bytes = 10
        assert await taker.begin(applier, machine) is None
        assert not taker.is_due(applier)
        disk.faults.heal()
        await asyncio.sleep(11)
        assert taker.is_due(applier)
        assert await taker.begin(applier, machine) is not None

    run_simulation(main, 1)
