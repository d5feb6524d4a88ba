"""No message that promises something about the disk leaves before the disk has it for good.

Whenever a member posts a message, the power is cut on a copy of its disk, in several ways, and the
copy is opened: it must still keep what the message says. That the check can fail is shown by taking
the guards away one by one.
"""

from __future__ import annotations

import asyncio

import pytest
from quorum_cluster import CLUSTER_ID, METADATA_DIR, SMALL, Member, QuorumCluster

from tidelog.controller.quorum import RefusedToStart, quorum_state, store
from tidelog.controller.quorum.entry_log import EntryLog
from tidelog.controller.quorum.startup import Restored, open_store
from tidelog.controller.quorum.writer import DiskWriter
from tidelog.controller.raft import RaftNode
from tidelog.controller.raft.effects import MoveLogStart
from tidelog.controller.raft.events import Event, Persisted
from tidelog.controller.raft.messages import (
    AppendAccepted,
    Body,
    Envelope,
    SnapshotAck,
    VoteRequest,
    VoteResponse,
)
from tidelog.controller.raft.model import Identity, PersistentState
from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk, Steps, in_one_go
from tidelog.simulation import SimRandom, World, run_simulation

DRAWS = 2


class Watch:
    """Looks over the shoulder of every member that is started."""

    def __init__(self, cluster: QuorumCluster) -> None:
        self._cluster = cluster
        self._seen: set[object] = set()
        self.checked: set[str] = set()
        self.broken: list[str] = []

    def over(self, member: Member) -> None:
        assert member.quorum is not None
        links = member.quorum._links
        post = links.post

        def check_and_post(envelope: Envelope) -> None:
            self._check(member, envelope)
            post(envelope)

        links.post = check_and_post  # type: ignore[method-assign]

    def _check(self, member: Member, envelope: Envelope) -> None:
        body = envelope.body
        promise = (member.process, envelope.term, _kind_of_promise(body))
        if promise in self._seen or self.broken:
            return
        self._seen.add(promise)
        self.checked.add(type(body).__name__)
        for draw in range(DRAWS):
            broken = self._broken_promise(member, envelope, SimRandom(draw))
            if broken is not None:
                self.broken.append(f"node {member.node_id}: {broken} after {envelope}")

    def _broken_promise(self, member: Member, envelope: Envelope, draw: SimRandom) -> str | None:
        copy = member.disk.power_loss(draw)
        member.disk._ended_by = None  # it was only a question
        identity = Identity(member.key, CLUSTER_ID, self._cluster.configured)
        where = (copy, METADATA_DIR, identity, SMALL.store, self._cluster.world.clock)
        try:
            kept = in_one_go(open_store(*where, SimRandom(1)))
        except RefusedToStart as refused:
            return str(refused)
        return _broken_promise(kept, member, envelope)


def _kind_of_promise(body: Body) -> object:
    """Messages that promise the same about the disk need not be checked twice."""
    match body:
        case AppendAccepted() | SnapshotAck() | VoteResponse() | VoteRequest():
            return body
        case _:
            return type(body)


def _broken_promise(kept: Restored, member: Member, envelope: Envelope) -> str | None:
    state = kept.state or PersistentState()
    end = kept.log.entries[-1].end_offset if kept.log.entries else Offset(0)
    if kept.log.snapshot is not None:
        end = max(end, kept.log.snapshot.end_offset)
    if state.term < envelope.term:
        return f"term {state.term} instead of {envelope.term}"
    match envelope.body:
        case AppendAccepted(match_end=promised) if end < promised:
            return f"the log ends at {end}"
        case SnapshotAck(snapshot=snapshot, is_installed=True) if end < snapshot.end_offset:
            return f"the log ends at {end}"
        case VoteResponse(is_granted=True, is_pre_vote=False):
            if (state.voted_for or member.key).node_id != envelope.target_id:
                return f"the vote was for {state.voted_for}"
        case VoteRequest(is_pre_vote=False) if state.voted_for != member.key:
            return f"the vote was for {state.voted_for}"
        case _:
            pass
    return None


def watched_run(seed: int = 3) -> Watch:
    """Two elections, a catch-up by log and one by snapshot; ends at the first broken promise."""

    async def main(world: World) -> Watch:
        cluster = QuorumCluster(world)
        watch = Watch(cluster)

        async def start(*nodes: int) -> None:
            for node in nodes:
                await cluster.start(node)
                watch.over(cluster.member(node))

        async def work() -> None:
            await start(1, 2, 3)
            await cluster.propose(5)
            for _ in range(2):
                leader = await cluster.until_active()
                await cluster.kill(leader.node_id)
                for _ in range(6):
                    await cluster.propose(20)
                await start(leader.node_id)
                await cluster.converge()

        working = asyncio.create_task(work())
        await cluster.until(lambda: working.done() or watch.broken, 120.0)
        if not watch.broken:
            await working
        working.cancel()
        return watch

    return run_simulation(main, seed, time_limit_s=300)


def test_every_promise_is_kept_by_the_disk() -> None:
    watch = watched_run()
    assert watch.broken == []
    kinds = {"AppendAccepted", "VoteRequest", "VoteResponse", "SnapshotAck", "Hello"}
    assert kinds <= watch.checked


def _no_flush(self: EntryLog) -> Steps[None]:
    yield


def _no_sync(disk: Disk, directory: str, state: PersistentState) -> None:
    path = f"{directory}/{quorum_state.QUORUM_STATE}"
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwrite(quorum_state.encode_quorum_state(state), 0)
    file.close()


async def _confirm_first(self: DiskWriter) -> None:
    while True:
        if not self._queue:
            self._filled.clear()
            await self._filled.wait()
        work = list(self._queue)
        self._queue.clear()
        writes = [item.write for item in work if not isinstance(item, MoveLogStart)]
        self._on_performed(store.Performed(max(writes, default=None), None))
        await self._offload.run(self._store.perform(work))


GUARDS = {
    "entries are not synced": (EntryLog, "flush", _no_flush),
    "the vote is not synced": (store, "write_quorum_state", _no_sync),
    "writes are confirmed before they are made": (DiskWriter, "run", _confirm_first),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_promise_that_is_given_too_early_is_noticed(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, mutant = GUARDS[guard]
    monkeypatch.setattr(owner, name, mutant)
    assert watched_run().broken


def test_the_machine_is_told_of_writes_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, list[int]] = {}
    step = RaftNode.step

    def watch(self: RaftNode, now_ms: float, event: Event) -> object:
        if isinstance(event, Persisted):
            told.setdefault(id(self), []).append(event.write)
        return step(self, now_ms, event)

    monkeypatch.setattr(RaftNode, "step", watch)

    async def main(world: World) -> None:
        cluster = QuorumCluster(world)
        await cluster.start()
        for _ in range(20):
            await cluster.propose(3)
        await cluster.converge()

    run_simulation(main, 4)
    assert len(told) == 3
    for writes in told.values():
        assert writes == sorted(set(writes))
