"""What ``tidelog txn`` does: shows transactions, finds lost ones, and ends them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidelog.cli.brokers import NO_LEADER, Brokers, Place, chosen_places, error_text
from tidelog.cli.failures import CommandFailed
from tidelog.cli.partition_files import dashed
from tidelog.cli.questions import question
from tidelog.cli.tables import or_dash, table
from tidelog.cli.transactions import (
    Hanging,
    ProducerState,
    Transaction,
    candidates,
    describe_producers,
    describe_transaction,
    hanging,
    list_transactions,
)
from tidelog.wire.protocol.apis import ApiKey

_MINUTE_MS = 60_000


def print_list(
    bootstrap: str, states: Sequence[str], duration_ms: int | None, *, as_json: bool
) -> None:
    with Brokers(bootstrap) as brokers:
        found = list_transactions(
            brokers, states, duration_ms=-1 if duration_ms is None else duration_ms
        )
    if as_json:
        print(json.dumps([asdict(one) for one in found]))
        return
    header = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
    rows = [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found]
    print(table(header, rows))


def print_description(bootstrap: str, transactional_id: str, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        one = describe_transaction(brokers, transactional_id)
    if one is None:
        raise CommandFailed(f"there is no transactional id {transactional_id!r}; tidelog txn list")
    started = one.started_ms if one.started_ms >= 0 else None
    duration = None if started is None else max(0, now_ms() - started)
    if as_json:
        print(json.dumps(_as_object(one, started, duration)))
        return
    header = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
        "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs",
        "TopicPartitions",
    )  # fmt: skip
    row = (
        one.coordinator, one.transactional_id, one.producer_id, one.producer_epoch, one.state,
        one.timeout_ms, or_dash(started), or_dash(duration),
        or_dash(",".join(map(dashed, one.partitions))),
    )  # fmt: skip
    print(table(header, [row]))


def _as_object(one: Transaction, started: int | None, duration: int | None) -> dict[str, Any]:
    return asdict(one) | {
        "started_ms": started,
        "duration_ms": duration,
        "partitions": [{"topic": topic, "partition": index} for topic, index in one.partitions],
    }


def print_producers(bootstrap: str, topic: str, partition: int, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        ((_, states),) = describe_producers(brokers, _led(brokers, topic, partition)).items()
    if as_json:
        print(json.dumps([asdict(one) for one in states]))
        return
    header = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    rows = [
        (
            one.producer_id, one.producer_epoch, one.coordinator_epoch, one.last_sequence,
            one.last_timestamp_ms, "None" if one.start_offset is None else one.start_offset,
        )
        for one in states
    ]  # fmt: skip
    print(table(header, rows))


def _led(brokers: Brokers, topic: str, partition: int) -> dict[Place, int]:
    places = chosen_places(brokers, {topic: [partition]})
    if NO_LEADER in places.values():
        raise CommandFailed(f"{topic}-{partition} has no leader")
    return places


def find_hanging(
    bootstrap: str,
    wanted: Mapping[str, Sequence[int]] | None,
    broker_id: int | None,
    max_timeout_minutes: int,
    *,
    as_json: bool,
) -> None:
    with Brokers(bootstrap) as brokers:
        leaders = brokers.leaders() if wanted is None else chosen_places(brokers, wanted)
        if broker_id is not None:
            leaders = {place: node for place, node in leaders.items() if node == broker_id}
        oldest_ms = now_ms() - max_timeout_minutes * _MINUTE_MS
        open_long = candidates(describe_producers(brokers, leaders), oldest_ms)
        producer_ids = {one.producer.producer_id for one in open_long}
        listed = list_transactions(brokers, producer_ids=producer_ids) if open_long else []
        ids = {one.producer_id: one.transactional_id for one in listed}
        lost = hanging(open_long, ids, lambda name: describe_transaction(brokers, name))
    if as_json:
        print(json.dumps([asdict(one) for one in lost]))
        return
    header = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
        "LastTimestamp", "Duration(min)",
    )  # fmt: skip
    print(table(header, [_hanging_row(one) for one in lost]))


def _hanging_row(one: Hanging) -> tuple[object, ...]:
    producer = one.producer
    minutes = (now_ms() - producer.last_timestamp_ms) // _MINUTE_MS
    return (
        one.topic, one.partition, producer.producer_id, producer.producer_epoch,
        producer.coordinator_epoch, producer.start_offset, producer.last_timestamp_ms, minutes,
    )  # fmt: skip


def abort(
    bootstrap: str,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer: tuple[int, int, int] | None,
    *,
    as_json: bool,
) -> None:
    """``producer``: id, epoch and coordinator epoch; otherwise found by the start offset."""
    with Brokers(bootstrap) as brokers:
        leaders = _led(brokers, topic, partition)
        if producer is None:
            states = describe_producers(brokers, leaders)[topic, partition]
            producer = producer_of(states, start_offset, f"{topic}-{partition}")
        producer_id, epoch, coordinator_epoch = producer
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
            "coordinator_epoch": coordinator_epoch,
        }
        request = question(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        answer = brokers.to(leaders[topic, partition]).ask(request)
    rows = [one for result in answer.markers for named in result.topics for one in named.partitions]
    problem = error_text(rows[0]) if rows else "the broker took no marker"
    if problem is not None:
        raise CommandFailed(f"the transaction in {topic}-{partition} was not aborted: {problem}")
    if as_json:
        print(
            json.dumps({"aborted": {"topic": topic, "partition": partition} | marker_id(producer)})
        )
    else:
        print(f"The transaction of producer {producer_id} in {topic}-{partition} was aborted.")


def marker_id(producer: tuple[int, int, int]) -> dict[str, int]:
    names = ("producer_id", "producer_epoch", "coordinator_epoch")
    return dict(zip(names, producer, strict=True))


def producer_of(
    states: Sequence[ProducerState], start_offset: int | None, where: str
) -> tuple[int, int, int]:
    for one in states:
        if one.start_offset is not None and one.start_offset == start_offset:
            # A partition that never had a marker of this producer knows no coordinator epoch.
            return one.producer_id, one.producer_epoch, max(0, one.coordinator_epoch)
    there = ", ".join(str(one.start_offset) for one in states if one.start_offset is not None)
    raise CommandFailed(
        f"no open transaction of {where} starts at {start_offset}; "
        f"{f'there are those at {there}' if there else 'none is open'}"
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
