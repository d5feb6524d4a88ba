"""Calls to leaders that do not answer: given up when another one leads, not before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from replica_lab import Lab, in_lab

from tidelog.broker.leader_calls import CutOff, LeaderCalls, LeaderReplaced, Leadership
from tidelog.broker.transaction_messages import WRITE_TXN_MARKERS
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import LeaderEpoch, NodeId
from tidelog.kernel.peers import PeerUnavailable
from tidelog.v1 import coordinator_pb2 as pb

REQUEST = pb.WriteTxnMarkersRequest()
TIMEOUT_MS = 30_000


class Caller:
    """Node 1, which asks node 2 about the partition it leads; that answers when it is let."""

    def __init__(self, lab: Lab, ref: PartitionRef) -> None:
        self.lab = lab
        self.ref = ref
        self.is_cut_off = False
        self.may_answer = asyncio.Event()
        self.given_up = 0
        lab.network.servers[NodeId(2)][WRITE_TXN_MARKERS.path] = self._serve
        self.calls = LeaderCalls(
            lab.network.peers(NodeId(1)), lab.world.clock, lambda: self.is_cut_off
        )

    async def _serve(self, context: Any, request: Any) -> pb.WriteTxnMarkersResponse:
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return pb.WriteTxnMarkersResponse()

    def ask(self, *, is_awaited: bool = True) -> asyncio.Task[pb.WriteTxnMarkersResponse]:
        state = self.lab.controller.state(self.ref)
        leadership = Leadership(state.leader, {self.ref: state.leader_epoch})
        return asyncio.create_task(
            self.calls.call(
                leadership, WRITE_TXN_MARKERS, REQUEST, timeout_ms=TIMEOUT_MS, is_awaited=is_awaited
            )
        )

    async def hear(self) -> None:
        """Of all that changed in the metadata so far."""
        for delta in self.lab.controller.deltas:
            self.calls.follow(delta)
        await asyncio.sleep(0.01)


def with_caller(script: Callable[[Caller], Awaitable[None]]) -> None:
    async def main(lab: Lab) -> None:
        await script(Caller(lab, await lab.create("t", (2, 3, 1))))

    in_lab(main)


def test_who_answers_is_heard() -> None:
    async def script(caller: Caller) -> None:
        asked = caller.ask()
        await asyncio.sleep(5)
        caller.may_answer.set()
        assert await asked == pb.WriteTxnMarkersResponse()

    with_caller(script)


def test_a_leader_that_was_replaced_is_not_waited_for() -> None:
    async def script(caller: Caller) -> None:
        asked = caller.ask()
        await asyncio.sleep(1)
        caller.lab.controller.fence(2)
        await caller.hear()
        with pytest.raises(LeaderReplaced, match="node 2 was replaced"):
            await asked
        assert caller.given_up == 1

    with_caller(script)


def test_a_leader_that_leads_on_is_waited_for_whatever_else_changes() -> None:
    """Its in-sync replicas, say, or who leads another partition."""

    async def script(caller: Caller) -> None:
        await caller.lab.create("other", (3, 1, 2))
        asked = caller.ask()
        await asyncio.sleep(1)
        caller.lab.controller.fence(3)
        await caller.hear()
        assert not asked.done()
        caller.may_answer.set()
        await asked

    with_caller(script)


def test_an_epoch_that_is_over_counts_for_nothing() -> None:
    leadership = Leadership(NodeId(2), {})

    async def script(caller: Caller) -> None:
        image, ref = caller.lab.controller.image, caller.ref
        epoch = caller.lab.controller.state(ref).leader_epoch
        assert Leadership(leadership.node, {ref: epoch}).holds(ref, image)
        assert not Leadership(leadership.node, {ref: LeaderEpoch(epoch - 1)}).holds(ref, image)
        assert not Leadership(NodeId(3), {ref: epoch}).holds(ref, image)

    with_caller(script)


def test_a_broker_that_is_cut_off_keeps_no_client_waiting() -> None:
    async def script(caller: Caller) -> None:
        asked, marker = caller.ask(), caller.ask(is_awaited=False)
        await asyncio.sleep(2)
        assert not asked.done()
        caller.is_cut_off = True
        await asyncio.sleep(0.3)
        with pytest.raises(CutOff):
            await asked
        late = caller.ask()
        await asyncio.sleep(0.4)
        assert not late.done(), "it may still be answered"
        await asyncio.sleep(0.4)
        assert late.done() and isinstance(late.exception(), CutOff)
        assert not marker.done(), "for that nobody waits"
        caller.may_answer.set()
        await marker

    with_caller(script)


def test_a_node_that_is_not_there_is_found_out_as_ever() -> None:
    async def script(caller: Caller) -> None:
        caller.lab.network.cut(1, 2)
        with pytest.raises(PeerUnavailable):
            await caller.ask()

    with_caller(script)


def test_who_stops_waiting_leaves_nothing_behind() -> None:
    async def script(caller: Caller) -> None:
        asked = caller.ask()
        await asyncio.sleep(1)
        asked.cancel()
        await asyncio.wait([asked])
        await asyncio.sleep(0.01)
        assert asked.cancelled() and caller.given_up == 1
        await caller.hear()

    with_caller(script)
