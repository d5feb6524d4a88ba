"""Why a group rebalanced, from every broker that coordinated it: behind ``tidelog group explain``.

A broker that is asked by whoever looks from outside asks the others in turn. A broker that does
not answer in time is named: what it remembers is missing from the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.coordinator.classic.history import Cause, CauseKind, Rebalance
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import CallContext, PeerError, Peers, PeerServer, Unary
from tidelog.v1 import coordinator_pb2 as pb

DESCRIBE_REBALANCES: Final = Unary(
    "/tidelog.v1.Coordinator/DescribeRebalances",
    pb.DescribeRebalancesRequest,
    pb.DescribeRebalancesResponse,
)
_TIMEOUT_MS: Final = 2_000.0


class GroupExplanation:
    def __init__(self, context: BrokerContext, groups: Groups, peers: Peers) -> None:
        self._context = context
        self._groups = groups
        self._peers = peers

    def serve_peers(self, server: PeerServer) -> None:
        server.on_unary(DESCRIBE_REBALANCES, self._serve)

    async def _serve(
        self, call: CallContext, request: pb.DescribeRebalancesRequest
    ) -> pb.DescribeRebalancesResponse:
        me = self._context.node_id
        rebalances = [
            rebalance_message(me, one) for one in self._groups.rebalances(request.group_id)
        ]
        silent: list[NodeId] = []
        if request.ask_others:
            others = [broker for broker in sorted(self._context.image.brokers) if broker != me]
            answers = await asyncio.gather(*(self._ask(one, request.group_id) for one in others))
            for broker, answer in zip(others, answers, strict=True):
                if answer is None:
                    silent.append(broker)
                else:
                    rebalances += answer.rebalances
        rebalances.sort(key=lambda one: one.started_ms)
        return pb.DescribeRebalancesResponse(rebalances=rebalances, silent_brokers=silent)

    async def _ask(self, broker: NodeId, group_id: str) -> pb.DescribeRebalancesResponse | None:
        request = pb.DescribeRebalancesRequest(group_id=group_id)
        try:
            return await self._peers.call(
                broker, DESCRIBE_REBALANCES, request, timeout_ms=_TIMEOUT_MS
            )
        except PeerError:
            return None


def rebalance_message(broker: NodeId, rebalance: Rebalance) -> pb.GroupRebalance:
    return pb.GroupRebalance(
        broker_id=broker,
        started_ms=rebalance.started_ms,
        causes=[
            pb.RebalanceCause(at_ms=one.at_ms, kind=one.kind.name, member_id=one.member_id)
            for one in rebalance.causes
        ],
        causes_left_out=rebalance.causes_left_out,
        generation=rebalance.generation,
        last_to_join=rebalance.last_to_join,
        dropped=rebalance.dropped,
        joined_ms=rebalance.joined_ms,
        ended_ms=rebalance.ended_ms,
    )


def rebalance_of(message: pb.GroupRebalance) -> Rebalance:
    return Rebalance(
        message.started_ms,
        list(_causes(message.causes)),
        message.causes_left_out,
        message.generation if message.HasField("generation") else None,
        message.last_to_join if message.HasField("last_to_join") else None,
        tuple(message.dropped),
        message.joined_ms if message.HasField("joined_ms") else None,
        message.ended_ms if message.HasField("ended_ms") else None,
    )


def _causes(messages: Iterable[pb.RebalanceCause]) -> Iterable[Cause]:
    """A kind that a newer release has made up is left out."""
    for one in messages:
        if one.kind in CauseKind.__members__:
            yield Cause(one.at_ms, CauseKind[one.kind], one.member_id)
