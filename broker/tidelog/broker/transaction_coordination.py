"""The transaction coordinator of a broker and all that uses it, put together."""

from __future__ import annotations

from tidelog.broker.calls import Handler
from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.add_offsets_to_txn import AddOffsetsToTxn
from tidelog.broker.handlers.add_partitions_to_txn import AddPartitionsToTxn
from tidelog.broker.handlers.administration import Administration
from tidelog.broker.handlers.describe_producers import DescribeProducers
from tidelog.broker.handlers.describe_transactions import DescribeTransactions
from tidelog.broker.handlers.end_txn import EndTxn
from tidelog.broker.handlers.list_transactions import ListTransactions
from tidelog.broker.handlers.parked_produces import ParkedProduces
from tidelog.broker.handlers.produce import Produce
from tidelog.broker.handlers.txn_offset_commit import TxnOffsetCommit
from tidelog.broker.handlers.write_txn_markers import WriteTxnMarkers
from tidelog.broker.leader_calls import LeaderCalls
from tidelog.broker.ports import NodePorts
from tidelog.broker.transaction_gate import TransactionGate
from tidelog.broker.transaction_markers import MarkerSender, MarkerWriter
from tidelog.broker.transaction_messages import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from tidelog.broker.transactions import Transactions
from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.kernel.peers import PeerServer
from tidelog.replication.replicas import ReplicaSet


class TransactionCoordination:
    """Owner: the broker role."""

    def __init__(
        self,
        context: BrokerContext,
        replicas: ReplicaSet,
        ports: NodePorts,
        groups: Groups,
        administration: Administration,
    ) -> None:
        self._writer = MarkerWriter(replicas, groups)
        is_cut_off = context.cluster.is_cut_off
        self._calls = LeaderCalls(ports.peers, ports.clock, is_cut_off)
        self._sender = MarkerSender(context, self._calls, self._writer)
        self.transactions = Transactions(
            context, replicas, ports, administration.producer_ids, self._sender, self._calls
        )
        administration.init_producer_id.transactions = self.transactions
        self._gate = TransactionGate(
            lambda: context.settings, self.transactions, ports.clock, is_cut_off
        )
        self.handlers: tuple[Handler, ...] = (
            Produce(
                context,
                replicas,
                self._gate,
                ParkedProduces(ports.clock, is_cut_off),
                acknowledges_early=ports.acknowledges_early,
            ),
            AddPartitionsToTxn(context, self.transactions),
            AddOffsetsToTxn(context, self.transactions),
            TxnOffsetCommit(context, replicas, groups, self._gate),
            EndTxn(self.transactions),
            WriteTxnMarkers(context, self._writer),
            DescribeProducers(context, replicas),
            DescribeTransactions(self.transactions),
            ListTransactions(self.transactions),
        )

    def serve_peers(self, server: PeerServer) -> None:
        """Register what coordinators and partition leaders ask each other."""
        server.on_unary(WRITE_TXN_MARKERS, self._writer.serve)
        server.on_unary(ADD_PARTITIONS_TO_TXN, self.transactions.serve)

    def follow(self, delta: MetadataDelta) -> None:
        self._calls.follow(delta)

    async def close(self) -> None:
        self.transactions.close()
        await self._gate.close()
        await self._sender.close()
