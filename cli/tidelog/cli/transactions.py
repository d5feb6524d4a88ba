"""Transactions as their coordinators know them, and as partitions see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.cli.brokers import (
    TRANSACTION,
    Brokers,
    Place,
    by_leader,
    by_topic,
    error_text,
    fail_on,
    patiently,
)
from tidelog.cli.failures import CommandFailed
from tidelog.cli.partition_files import dashed
from tidelog.cli.questions import question
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import milliseconds, timestamp_ms

OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True)
class Listed:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as one partition knows it; ``start_offset`` is that of its open transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class Hanging:
    """A transaction that is open in a partition, and that no coordinator will ever end."""

    topic: str
    partition: int
    producer: ProducerState


def list_transactions(
    brokers: Brokers,
    states: Sequence[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = -1,
) -> list[Listed]:
    request = question(
        ApiKey.LIST_TRANSACTIONS,
        1,
        state_filters=states,
        producer_id_filters=sorted(producer_ids),
        duration_filter=duration_ms,
    )
    found = []
    for node in brokers.describe().live:
        connection = brokers.to(node)
        answer: Any = patiently(lambda connection=connection: connection.ask(request))  # type: ignore[misc]
        fail_on(answer, f"broker {node} does not list its transactions")
        if answer.unknown_state_filters:
            raise CommandFailed(f"there is no state {answer.unknown_state_filters[0]!r}")
        found += [
            Listed(
                str(one.transactional_id), node, int(one.producer_id), str(one.transaction_state)
            )
            for one in answer.transaction_states
        ]
    return sorted(found, key=lambda one: one.transactional_id)


def describe_transaction(brokers: Brokers, transactional_id: str) -> Transaction | None:
    """None if its coordinator does not know it."""
    node = brokers.coordinator_node(transactional_id, TRANSACTION)
    request = question(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id])
    one = brokers.ask_coordinator(
        transactional_id, request, lambda answer: answer.transaction_states[0], TRANSACTION
    )
    if int(one.error_code) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    fail_on(one, f"transactional id {transactional_id!r}")
    places = [(str(t.topic), int(index)) for t in one.topics for index in t.partitions]
    return Transaction(
        transactional_id,
        node.node_id,
        int(one.producer_id),
        int(one.producer_epoch),
        str(one.transaction_state),
        milliseconds(one.transaction_timeout),
        int(timestamp_ms(one.transaction_start_time)),
        tuple(sorted(places)),
    )


def describe_producers(
    brokers: Brokers, leaders: Mapping[Place, int]
) -> dict[Place, list[ProducerState]]:
    """Who writes to these partitions, as their leaders know it."""
    found: dict[Place, list[ProducerState]] = {}
    for leader, places in by_leader(leaders, leaders).items():
        topics = [
            {"name": topic, "partition_indexes": indexes}
            for topic, indexes in by_topic(places).items()
        ]
        request = question(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
        for topic in brokers.to(leader).ask(request).topics:
            for one in topic.partitions:
                place = str(topic.name), int(one.partition_index)
                if (text := error_text(one)) is not None:
                    raise CommandFailed(f"the producers of {dashed(place)}: {text}")
                found[place] = [_producer(state) for state in one.active_producers]
    return dict(sorted(found.items()))


def _producer(state: Any) -> ProducerState:
    start = int(state.current_txn_start_offset)
    return ProducerState(
        int(state.producer_id),
        int(state.producer_epoch),
        int(state.coordinator_epoch),
        int(state.last_sequence),
        int(state.last_timestamp),
        None if start < 0 else start,
    )


def candidates(
    producers: Mapping[Place, Iterable[ProducerState]], older_than_ms: int
) -> list[Hanging]:
    """Transactions that are open although nobody has written for longer than any may take."""
    return [
        Hanging(*place, one)
        for place, states in sorted(producers.items())
        for one in states
        if one.start_offset is not None and one.last_timestamp_ms < older_than_ms
    ]


def hanging(
    found: Sequence[Hanging],
    ids: Mapping[int, str],
    describe: Callable[[str], Transaction | None],
) -> list[Hanging]:
    """Those of the candidates that no coordinator has on its list.

    ``ids``: the transactional ids of producer ids, as far as coordinators know them.
    """
    known: dict[str, Transaction | None] = {}
    lost = []
    for one in found:
        name = ids.get(one.producer.producer_id)
        if name is not None and name not in known:
            known[name] = describe(name)
        transaction = known.get(name) if name is not None else None
        if transaction is None or not _is_cared_for(one, transaction):
            lost.append(one)
    return lost


def _is_cared_for(one: Hanging, transaction: Transaction) -> bool:
    return (
        transaction.state in OPEN_STATES
        and transaction.producer_id == one.producer.producer_id
        and transaction.producer_epoch >= one.producer.producer_epoch
        and (one.topic, one.partition) in transaction.partitions
    )
