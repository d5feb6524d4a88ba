"""What the coordinators of transactions and groups are asked, each question until it is answered.

The versions are those from before KIP-890's second part: partitions are added by the producer, and
the end of a transaction does not change its producer's epoch. So (transactional id, producer id,
epoch) names one transaction from its first record until its end is known everywhere, any process
may end it, and ending it again the same way does nothing.

Owner: whoever owns the cluster it asks through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline import describe_message
from tidelog.pipeline.cluster import Cluster, raise_on
from tidelog.pipeline.connection import NO_ANSWER, Connection
from tidelog.pipeline.decision import Transaction
from tidelog.pipeline.describe_message import Described
from tidelog.pipeline.errors import BrokerRefused, Fenced, NotOngoing
from tidelog.pipeline.positions import Place
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

T = TypeVar("T")

MARKER_TOPIC: Final = "__consumer_offsets"
"""Whose partitions a group's entries are kept under: it is there as soon as any group is."""
_ONGOING: Final = "Ongoing"
_EMPTY: Final = "Empty"
_GROUP: Final = 0
_TRANSACTION: Final = 1
_FENCED: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
_WRONG_BROKER: Final = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Coordinators:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[int, str], SocketAddress] = {}

    # --- producers ---------------------------------------------------------------------

    def idempotent_producer(self) -> tuple[int, int]:
        """A producer id and its epoch, for writing without transactions."""

        def ask() -> tuple[int, int]:
            answer = self._cluster.any_broker().ask(_init_producer_id(None, 1, -1, -1))
            raise_on(ErrorCode(int(answer.error_code)), "a producer id")
            return int(answer.producer_id), int(answer.producer_epoch)

        return self._cluster.patiently("InitProducerId", ask)

    def begin(
        self, transactional_id: str, timeout_ms: int, after: Transaction | None = None
    ) -> Transaction:
        """The next epoch of this id. What was open is aborted, what was being ended has ended.

        ``after``: only if that is still the latest (KIP-360), else ``Fenced``.
        """
        known = (-1, -1) if after is None else (after.producer_id, after.epoch)
        request = _init_producer_id(transactional_id, timeout_ms, *known)
        answer = self._ask(_TRANSACTION, transactional_id, request, lambda one: one.error_code)
        return Transaction(transactional_id, int(answer.producer_id), int(answer.producer_epoch))

    # --- within a transaction ----------------------------------------------------------

    def add_partitions(self, transaction: Transaction, places: Collection[Place]) -> None:
        from kio.schema.add_partitions_to_txn.v3 import request as v3

        by_topic: dict[str, list[Any]] = {}
        for topic, partition in sorted(places):
            by_topic.setdefault(topic, []).append(partition)
        names: list[Any] = list(by_topic)
        who = _fields(transaction)
        request = v3.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who["transactional_id"],
            v3_and_below_producer_id=who["producer_id"],
            v3_and_below_producer_epoch=who["producer_epoch"],
            v3_and_below_topics=tuple(
                v3.AddPartitionsToTxnTopic(name=name, partitions=tuple(by_topic[name]))
                for name in names
            ),
        )
        self._ask(_TRANSACTION, transaction.id, request, _worst_added)

    def commit_entries(
        self, transaction: Transaction, group: str, entries: Sequence[str], number: int
    ) -> None:
        """Texts that the group keeps if the transaction is committed, at partitions 0, 1, …"""
        from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
        from kio.schema.txn_offset_commit.v3 import request as v3

        if len(entries) > 1 and len(entries) > self._cluster.partition_count(MARKER_TOPIC):
            raise BrokerRefused(
                f"the list of this batch's transactions needs {len(entries)} partitions of "
                f"{MARKER_TOPIC}, and there are fewer; write fewer partitions (coalesce)"
            )
        group_id: Any = group
        who = _fields(transaction)
        self._ask(
            _TRANSACTION,
            transaction.id,
            AddOffsetsToTxnRequest(**who, group_id=group_id),
            lambda one: one.error_code,
        )
        offset: Any = number
        topic: Any = MARKER_TOPIC
        no_generation: Any = -1
        partitions: list[Any] = list(range(len(entries)))
        request = v3.TxnOffsetCommitRequest(
            **who,
            group_id=group_id,
            generation_id=no_generation,
            member_id="",
            topics=(
                v3.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        v3.TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=text,
                        )
                        for partition, text in zip(partitions, entries, strict=True)
                    ),
                ),
            ),
        )
        self._ask(_GROUP, group, request, _worst_committed)

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """``NotOngoing`` if it ended the other way or never began; ``Fenced`` if others did it."""
        from kio.schema.end_txn.v3.request import EndTxnRequest

        request = EndTxnRequest(**_fields(transaction), committed=commit)
        self._ask(_TRANSACTION, transaction.id, request, lambda one: one.error_code)

    # --- what there is -----------------------------------------------------------------

    def entries(self, group: str) -> dict[int, str]:
        """What ``commit_entries`` left, once no open transaction is about to change it."""
        from kio.schema.offset_fetch.v7.request import OffsetFetchRequest

        group_id: Any = group
        request = OffsetFetchRequest(group_id=group_id, topics=None, require_stable=True)
        answer = self._ask(_GROUP, group, request, _worst_fetched)
        return {
            int(one.partition_index): str(one.metadata)
            for topic in answer.topics
            for one in topic.partitions
            if topic.name == MARKER_TOPIC and int(one.committed_offset) >= 0
        }

    def describe(self, transactional_id: str) -> tuple[Transaction, bool]:
        """The latest producer of this id, and whether it has a transaction open."""

        def talk(connection: Connection) -> Described:
            connection.require(ApiKey.DESCRIBE_TRANSACTIONS, describe_message.VERSION)
            body = describe_message.describe_body(transactional_id)
            connection.send(ApiKey.DESCRIBE_TRANSACTIONS, describe_message.VERSION, body)
            return describe_message.read_described(connection.receive())

        what = f"DescribeTransactions of {transactional_id!r}"
        one = self._talk(_TRANSACTION, transactional_id, what, talk, lambda found: found.error)
        found = Transaction(transactional_id, one.producer_id, one.epoch)
        return found, one.state == _ONGOING

    def open_transactions(self, prefix: str, *, or_about_to_be: bool = False) -> list[str]:
        """Transactional ids that begin so and have a transaction open, on all brokers; or those
        with a producer that has not opened one yet, too."""
        from kio.schema.list_transactions.v0.request import ListTransactionsRequest

        states = (_ONGOING, _EMPTY) if or_about_to_be else (_ONGOING,)
        request = ListTransactionsRequest(state_filters=states, producer_id_filters=())

        def ask() -> list[str]:
            found: set[str] = set()
            for address in self._cluster.layout_now([]).brokers.values():
                answer = self._cluster.connection(address).ask(request)
                raise_on(ErrorCode(int(answer.error_code)), "ListTransactions")
                found.update(str(one.transactional_id) for one in answer.transaction_states)
            return sorted(name for name in found if name.startswith(prefix))

        return self._cluster.patiently("ListTransactions", ask)

    # --- asking ------------------------------------------------------------------------

    def _ask(
        self, kind: int, key: str, request: RequestPayload, code_of: Callable[[Any], Any]
    ) -> Any:
        what = f"{type(request).__name__.removesuffix('Request')} of {key!r}"
        return self._talk(kind, key, what, lambda connection: connection.ask(request), code_of)

    def _talk(
        self,
        kind: int,
        key: str,
        what: str,
        talk: Callable[[Connection], T],
        code_of: Callable[[T], Any],
    ) -> T:
        def ask() -> T:
            address = self._known.get((kind, key)) or self._find(kind, key)
            try:
                answer = talk(self._cluster.connection(address))
            except NO_ANSWER:
                self._known.pop((kind, key), None)
                raise
            code = ErrorCode(int(code_of(answer)))
            if code in _WRONG_BROKER:
                self._known.pop((kind, key), None)
            if code in _FENCED:
                raise Fenced(f"{what}: {code.message} ({code.name})")
            if code is ErrorCode.INVALID_TXN_STATE:
                raise NotOngoing(f"{what}: {code.message} ({code.name})")
            raise_on(code, what)
            return answer

        return self._cluster.patiently(what, ask)

    def _find(self, kind: int, key: str) -> SocketAddress:
        from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest

        key_type: Any = kind
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        answer = self._cluster.any_broker().ask(request)
        raise_on(ErrorCode(int(answer.error_code)), f"the coordinator of {key!r}")
        found = SocketAddress(answer.host, int(answer.port))
        self._known[kind, key] = found
        return found


def _fields(transaction: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": transaction.id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
    }


def _init_producer_id(
    transactional_id: str | None, timeout_ms: int, producer_id: int, epoch: int
) -> RequestPayload:
    from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

    name: Any = transactional_id
    known_id: Any = producer_id
    known_epoch: Any = epoch
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout=duration_i32(timeout_ms),
        producer_id=known_id,
        producer_epoch=known_epoch,
    )


def _worst(codes: Collection[Any]) -> ErrorCode:
    """An error that trying again does not mend tells more than one that it may."""
    found = [code for code in map(_code, codes) if code is not ErrorCode.NONE]
    return min(found, key=lambda code: code.retriable, default=ErrorCode.NONE)


def _code(code: Any) -> ErrorCode:
    return ErrorCode(int(code))


def _worst_added(answer: Any) -> ErrorCode:
    return _worst(
        [
            one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
            # Those that were not tried because of the others say nothing.
            if _code(one.partition_error_code) is not ErrorCode.OPERATION_NOT_ATTEMPTED
        ]
    )


def _worst_committed(answer: Any) -> ErrorCode:
    return _worst([one.error_code for topic in answer.topics for one in topic.partitions])


def _worst_fetched(answer: Any) -> ErrorCode:
    of_partitions = [one.error_code for topic in answer.topics for one in topic.partitions]
    return _worst([answer.error_code, *of_partitions])
