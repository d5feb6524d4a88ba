"""``tidelog txn``: who is asked, which transactions are lost, and what ends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers, topics_metadata

from tidelog.cli.transactions import Hanging, ProducerState, Transaction, candidates, hanging
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import TimestampMs
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import exact_moment

Run = Callable[..., Any]
PLACE = ("t", 0)


def producer(start_offset: int | None = 5, last_ms: int = 100, epoch: int = 3) -> ProducerState:
    return ProducerState(7, epoch, 0, 9, last_ms, start_offset)


@pytest.mark.parametrize(
    ("state", "is_candidate"),
    [(producer(), True), (producer(start_offset=None), False), (producer(last_ms=200), False)],
)
def test_candidates(state: ProducerState, is_candidate: bool) -> None:
    assert bool(candidates({PLACE: [state]}, 200)) is is_candidate


def transaction(**changes: Any) -> Transaction:
    values = {
        "transactional_id": "x", "coordinator": 1, "producer_id": 7, "producer_epoch": 3,
        "state": "Ongoing", "timeout_ms": 1, "started_ms": 1, "partitions": (PLACE,),
    }  # fmt: skip
    return Transaction(**{**values, **changes})


@pytest.mark.parametrize(
    ("known", "is_lost"),
    [
        (transaction(), False),
        (transaction(state="PrepareAbort", producer_epoch=4), False),
        (transaction(state="CompleteCommit"), True),
        (transaction(partitions=(("t", 1),)), True),
        (transaction(producer_id=8), True),
        (transaction(producer_epoch=2), True),
        (None, True),
    ],
)
def test_lost_is_what_no_coordinator_will_end(known: Transaction | None, is_lost: bool) -> None:
    found = [Hanging(*PLACE, producer())]
    assert (hanging(found, {7: "x"}, lambda name: known) == found) is is_lost
    assert hanging(found, {}, lambda name: transaction()) == found


class Transactions(ScriptedBrokers):
    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.METADATA: topics_metadata({"t": {0: 1, 1: 2}, "dark": {0: -1}}),
                ApiKey.LIST_TRANSACTIONS: self.listed,
                ApiKey.DESCRIBE_TRANSACTIONS: self.describe,
                ApiKey.DESCRIBE_PRODUCERS: self.producers,
                ApiKey.WRITE_TXN_MARKERS: self.write,
            }
        )
        self.state = "Ongoing"
        self.error = ErrorCode.NONE

    def listed(self, request: Any) -> Mapping[str, Any]:
        address, _ = self.asked[-1]
        if address == "node-1:9092":
            return {}
        row = {"transactional_id": "mover", "producer_id": 7, "transaction_state": self.state}
        unknown = [name for name in request.state_filters if name == "Bogus"]
        return {"transaction_states": [row], "unknown_state_filters": unknown}

    def describe(self, request: Any) -> Mapping[str, Any]:
        (name,) = request.transactional_ids
        if name != "mover":
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            moment = exact_moment(TimestampMs(-1))
            return {"transaction_states": [{"error_code": code, "transaction_start_time": moment}]}
        row = {
            "transactional_id": name,
            "transaction_state": self.state,
            "transaction_timeout": 30_000,
            "transaction_start_time": exact_moment(TimestampMs(1_700_000_000_000)),
            "producer_id": 7,
            "producer_epoch": 3,
            "topics": [{"topic": "t", "partitions": [0, 1]}],
        }
        return {"transaction_states": [row]}

    def producers(self, request: Any) -> Mapping[str, Any]:
        state = {
            "producer_id": 7,
            "producer_epoch": 3,
            "last_sequence": 9,
            "last_timestamp": 1_700_000_000_000,
            "coordinator_epoch": -1,
            "current_txn_start_offset": 5,
        }
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": index,
                            "active_producers": [state] if index == 0 else [],
                        }
                        for index in topic.partition_indexes
                    ],
                }
                for topic in request.topics
            ]
        }

    def write(self, request: Any) -> Mapping[str, Any]:
        row = {"partition_index": 0, "error_code": self.error}
        topics = [{"name": "t", "partitions": [row]}]
        return {"markers": [{"producer_id": 7, "topics": topics}]}


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> Transactions:
    made = Transactions()
    made.install(monkeypatch)
    return made


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_list_asks_every_broker(tidelog: Run, transactions: Transactions) -> None:
    assert rows(tidelog("txn", "list").out) == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
        ["mover", "2", "7", "Ongoing"],
    ]
    tidelog("txn", "list", "--duration-filter", "5000", "--state", "Ongoing")
    asked = transactions.questions(ApiKey.LIST_TRANSACTIONS)[-1]
    assert (asked.duration_filter, asked.state_filters) == (5000, ("Ongoing",))
    ran = tidelog("txn", "list", "--state", "Bogus")
    assert (ran.code, ran.err) == (1, "there is no state 'Bogus'\n")


def test_describe(tidelog: Run, transactions: Transactions) -> None:
    row = rows(tidelog("txn", "describe", "mover").out)[1]
    assert row[:7] == ["2", "mover", "7", "3", "Ongoing", "30000", "1700000000000"]
    assert row[8] == "t-0,t-1"
    shown = json.loads(tidelog("txn", "describe", "mover", "--json").out)
    assert shown["partitions"][1] == {"topic": "t", "partition": 1}
    assert shown["duration_ms"] > timedelta(days=1).total_seconds()
    ran = tidelog("txn", "describe", "nope")
    assert (ran.code, "no transactional id 'nope'" in ran.err) == (1, True)
    (asked,) = {one.key_type for one in transactions.questions(ApiKey.FIND_COORDINATOR)}
    assert asked == 1


def test_producers(tidelog: Run, transactions: Transactions) -> None:
    given = ("txn", "describe-producers", "--topic", "t", "--partition")
    assert rows(tidelog(*given, "0").out)[1] == ["7", "3", "-1", "9", "1700000000000", "5"]
    assert json.loads(tidelog(*given, "1", "--json").out) == []
    assert tidelog(*given, "9").code == 1
    dark = tidelog("txn", "describe-producers", "--topic", "dark", "--partition", "0")
    assert (dark.code, "has no leader" in dark.err) == (1, True)


def test_find_hanging(tidelog: Run, transactions: Transactions) -> None:
    assert len(rows(tidelog("txn", "find-hanging").out)) == 1
    transactions.state = "CompleteAbort"
    row = rows(tidelog("txn", "find-hanging", "--topic", "t:0").out)[1]
    assert row[:6] == ["t", "0", "7", "3", "-1", "5"]
    asked = transactions.questions(ApiKey.LIST_TRANSACTIONS)[-1]
    assert asked.producer_id_filters == (7,)
    (shown,) = json.loads(tidelog("txn", "find-hanging", "--json").out)
    assert shown["producer"]["start_offset"] == 5
    assert json.loads(tidelog("txn", "find-hanging", "--broker-id", "2", "--json").out) == []


def test_abort(tidelog: Run, transactions: Transactions) -> None:
    given = ("txn", "abort", "--topic", "t", "--partition", "0")
    ran = tidelog(*given, "--start-offset", "5")
    assert (ran.code, ran.out) == (0, "The transaction of producer 7 in t-0 was aborted.\n")
    ((address, asked),) = [
        (a, q) for a, q in transactions.asked if q.__api_key__ == ApiKey.WRITE_TXN_MARKERS
    ]
    (marker,) = asked.markers
    assert address == "node-1:9092"
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert marker.transaction_result is False
    named = ("--producer-id", "8", "--producer-epoch", "1", "--coordinator-epoch", "2")
    shown = json.loads(tidelog(*given, *named, "--json").out)
    assert shown["aborted"]["producer_id"] == 8
    wrong = tidelog(*given, "--start-offset", "6")
    assert (wrong.code, "there are those at 5" in wrong.err) == (1, True)
    transactions.error = ErrorCode.INVALID_PRODUCER_EPOCH
    refused = tidelog(*given, "--start-offset", "5")
    assert (refused.code, "was not aborted" in refused.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("describe",),
        ("describe-producers", "--topic", "t"),
        ("abort", "--topic", "t", "--partition", "0"),
        ("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"),
        ("abort", "--topic", "t", "--partition", "0", "--start-offset", "1", "--producer-id", "1"),
        ("find-hanging", "--topic", "t:x"),
        ("list", "--duration-filter", "-1"),
    ],
)
def test_wrong_uses(tidelog: Run, transactions: Transactions, arguments: tuple[str, ...]) -> None:
    assert tidelog("txn", *arguments).code == 2
