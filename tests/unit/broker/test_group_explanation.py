"""Why a group rebalanced: every broker's memories, merged by time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from tidelog.broker.context import BrokerContext
from tidelog.broker.group_explanation import (
    DESCRIBE_REBALANCES,
    GroupExplanation,
    rebalance_message,
    rebalance_of,
)
from tidelog.broker.groups import Groups
from tidelog.coordinator.classic.history import Cause, CauseKind, Rebalance
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import Peers, PeerServer, PeerUnavailable
from tidelog.v1 import coordinator_pb2 as pb


@dataclass
class Image:
    brokers: Mapping[NodeId, object]


@dataclass
class Context:
    node_id: NodeId
    image: Image


@dataclass
class Remembered:
    known: tuple[Rebalance, ...] = ()

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...]:
        return self.known if group_id == "g" else ()


@dataclass
class Wires:
    """Peers and peer servers of all brokers at once."""

    handlers: dict[NodeId, Any] = field(default_factory=dict)

    async def call(
        self, node: NodeId, method: object, request: Any, *, timeout_ms: float
    ) -> pb.DescribeRebalancesResponse:
        assert method is DESCRIBE_REBALANCES and not request.ask_others
        if node not in self.handlers:
            raise PeerUnavailable("it is down")
        answer: pb.DescribeRebalancesResponse = await self.handlers[node](None, request)
        return answer


@dataclass
class Server:
    wires: Wires
    node: NodeId

    def on_unary(self, method: object, handler: Any) -> None:
        self.wires.handlers[self.node] = handler


def rebalance(started_ms: int, *, kind: CauseKind = CauseKind.JOINED) -> Rebalance:
    return Rebalance(started_ms, [Cause(started_ms, kind, "m")], generation=1)


def cluster(memories: Mapping[int, tuple[Rebalance, ...]], down: int) -> Wires:
    wires = Wires()
    brokers = {NodeId(broker): object() for broker in (*memories, down)}
    for broker, known in memories.items():
        node = NodeId(broker)
        explanation = GroupExplanation(
            cast(BrokerContext, Context(node, Image(brokers))),
            cast(Groups, Remembered(known)),
            cast(Peers, wires),
        )
        explanation.serve_peers(cast(PeerServer, Server(wires, node)))
    return wires


def test_memories_are_merged_and_silent_brokers_named() -> None:
    wires = cluster({1: (rebalance(10), rebalance(30)), 2: (rebalance(20),)}, down=3)
    request = pb.DescribeRebalancesRequest(group_id="g", ask_others=True)
    answer = asyncio.run(wires.handlers[NodeId(1)](None, request))
    found = [(one.broker_id, one.started_ms) for one in answer.rebalances]
    assert found == [(1, 10), (2, 20), (1, 30)]
    assert list(answer.silent_brokers) == [3]


def test_a_broker_that_is_asked_by_another_speaks_for_itself() -> None:
    wires = cluster({1: (rebalance(10),), 2: (rebalance(20),)}, down=3)
    request = pb.DescribeRebalancesRequest(group_id="g")
    answer = asyncio.run(wires.handlers[NodeId(2)](None, request))
    assert [one.started_ms for one in answer.rebalances] == [20]
    other = asyncio.run(wires.handlers[NodeId(2)](None, pb.DescribeRebalancesRequest(group_id="x")))
    assert not other.rebalances


def test_a_rebalance_survives_the_journey() -> None:
    whole = Rebalance(5, [Cause(6, CauseKind.LEFT, "a")], 3, 7, "b", ("c", "d"), 8, 9)
    for one in (whole, rebalance(1), Rebalance(2, [])):
        assert rebalance_of(rebalance_message(NodeId(1), one)) == one
    message = rebalance_message(NodeId(1), whole)
    message.causes[0].kind = "OF_A_NEWER_RELEASE"
    assert rebalance_of(message).causes == []
