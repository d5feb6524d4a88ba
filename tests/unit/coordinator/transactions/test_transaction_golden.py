"""Kafka's answers to good and bad transactional requests, and its records, made by our machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transaction_desk import TransactionDesk, place

from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.transaction import TransactionSettings
from tidelog.coordinator.transactions.transaction_records import (
    TransactionRecord,
    TransactionValue,
    decode_transaction,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

GOLDEN = Path(__file__).parents[3] / "data/golden"
Fields = dict[str, Any]
OFFSETS = "__consumer_offsets"
NO_FENCED_ERROR = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""Before these versions the old name of the error is used."""


def scenario(name: str) -> list[Fields]:
    lines = (GOLDEN / "errors/cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [case for line in lines if (case := json.loads(line))["scenario"] == name]


class Replay(TransactionDesk):
    """Answers a recorded call as the handlers would; None: it is not the coordinator's."""

    def call(self, case: Fields) -> Fields | None:
        api, version, request = case["api"], case["version"], case["request"]
        match api:
            case "InitProducerId":
                answer = self.init_answer(request)
            case "AddPartitionsToTxn" if version < 4:
                return self.old_add_answer(request, version)
            case "AddPartitionsToTxn":
                return self.new_add_answer(request)
            case "AddOffsetsToTxn":
                answer = self.offsets_answer(request)
            case "EndTxn":
                answer = self.end_answer(request, version)
            case _:
                return None
        if version < NO_FENCED_ERROR[api] and answer["errorCode"] == 90:
            answer["errorCode"] = 47
        return {"throttleTimeMs": 0, **answer}

    def init_answer(self, request: Fields) -> Fields:
        found = self.init(
            request["transactionalId"],
            request["transactionTimeoutMs"],
            request.get("producerId", -1),
            request.get("producerEpoch", -1),
        )
        return {
            "errorCode": int(found.error),
            "producerId": found.producer_id,
            "producerEpoch": found.producer_epoch,
        }

    def add_code(
        self, request: Fields, prefix: str, places: list[TopicPartition], version: int = 0
    ) -> e.PartitionsResult:
        def of(name: str) -> Any:
            return request[prefix + name if prefix else name[0].lower() + name[1:]]

        result = self.ask(
            of("TransactionalId"),
            e.AddPartitions(
                0,
                ProducerId(of("ProducerId")),
                ProducerEpoch(of("ProducerEpoch")),
                tuple(places),
                version,
                request.get("verifyOnly", False),
            ),
        )
        assert isinstance(result, e.PartitionsResult)
        return result

    def old_add_answer(self, request: Fields, version: int) -> Fields | None:
        topics = request["v3AndBelowTopics"]
        places = [place(t["name"], index) for t in topics for index in t["partitions"]]
        if any(each.topic not in ("t1", "t3") or each.partition > 2 for each in places):
            return None  # the handler refuses what does not exist
        code = int(self.add_code(request, "v3AndBelow", places).error)
        code = 47 if version < 2 and code == 90 else code
        return {"throttleTimeMs": 0, "resultsByTopicV3AndBelow": _rows(topics, lambda _: code)}

    def new_add_answer(self, request: Fields) -> Fields:
        answers = []
        for one in request["transactions"]:
            places = [place(t["name"], index) for t in one["topics"] for index in t["partitions"]]
            found = self.add_code(one, "", places, 2)
            codes = found.errors or (found.error,) * len(places)
            by_place = dict(zip(places, map(int, codes), strict=True))
            answers.append(
                {
                    "transactionalId": one["transactionalId"],
                    "topicResults": _rows(one["topics"], by_place.__getitem__),
                }
            )
        return {"throttleTimeMs": 0, "errorCode": 0, "resultsByTransaction": answers}

    def offsets_answer(self, request: Fields) -> Fields:
        index = coordinator_partition(request["groupId"], 50)
        return {"errorCode": int(self.add_code(request, "", [place(OFFSETS, index)]).error)}

    def end_answer(self, request: Fields, version: int) -> Fields:
        found = self.end(
            request["producerId"],
            request["producerEpoch"],
            commit=request["committed"],
            name=request["transactionalId"],
            version=2 if version >= 5 else 0,
        )
        answer: Fields = {"errorCode": int(found.error)}
        if version >= 5:
            answer["producerId"] = found.producer_id
            answer["producerEpoch"] = found.producer_epoch
        return answer

    def produce_in_new_way(self, case: Fields) -> None:
        """A partition leader adds the partition of a Produce 12 that it accepted."""
        request = case["request"]
        topic = case["response"]["responses"][0]
        if topic["partitionResponses"][0]["errorCode"] == 0 and "name" in topic:
            value = self.value(request["transactionalId"])
            places = (place(topic["name"], 0),)
            name = request["transactionalId"]
            self.add(value.producer_id, value.producer_epoch, *places, name=name, version=2)


def _rows(topics: list[Fields], code: Callable[[TopicPartition], int]) -> list[Fields]:
    return [
        {
            "name": topic["name"],
            "resultsByPartition": [
                {"partitionIndex": index, "partitionErrorCode": code(place(topic["name"], index))}
                for index in topic["partitions"]
            ],
        }
        for topic in topics
    ]


@pytest.mark.parametrize(
    ("name", "first_id", "at_least"), [("transactions-v1", 12, 25), ("transactions-v2", 13, 12)]
)
def test_the_recorded_answers_are_given(name: str, first_id: int, at_least: int) -> None:
    replay = Replay(first_producer_id=first_id)
    compared = 0
    for case in scenario(name):
        is_new_produce = case["api"] == "Produce" and case["version"] >= 12
        if is_new_produce and case["request"]["transactionalId"] == "tb":
            replay.produce_in_new_way(case)
        elif case["api"] == "TxnOffsetCommit" and case["version"] >= 5:
            offsets = place(OFFSETS, coordinator_partition("txg", 50))
            epoch = case["request"]["producerEpoch"]
            replay.add(13, epoch, offsets, name="tb", version=2)
        answer = replay.call(case)
        if answer is not None:
            assert answer == case["response"], f"{name} step {case['step']}"
            compared += 1
    assert compared >= at_least


def recorded_values(folder: str) -> list[TransactionRecord]:
    data = (GOLDEN / "txn-topic" / folder / "00000000000000000000.log").read_bytes()
    found = []
    for position, _ in headers(data):
        for record in iterate(data, position):
            assert record.key is not None
            decoded = decode_transaction(record.key, record.value)
            assert decoded is not None
            found.append(decoded)
    return found


T0, T1 = place("w-t", 0), place("w-t", 1)


def run_v1(desk: TransactionDesk) -> None:
    """raw-tx-1: AddPartitionsToTxn 3, AddOffsetsToTxn, EndTxn 3; committed, then aborted."""
    desk.init("raw-tx-1")
    desk.add(0, 0, T0, T1, name="raw-tx-1")
    desk.add(0, 0, place(OFFSETS, 21), name="raw-tx-1")
    desk.end(0, 0, commit=True, name="raw-tx-1")
    desk.add(0, 0, T0, name="raw-tx-1")
    desk.end(0, 0, commit=False, name="raw-tx-1")


def run_v2(desk: TransactionDesk) -> None:
    """raw-tx-2: Produce 12 and EndTxn 5; committed, aborted, fenced by another producer."""
    name = "raw-tx-2"
    desk.init(name)
    for places in ([T0], [T1], [place(OFFSETS, 21)]):
        desk.add(1, 0, *places, name=name, version=2)
    desk.end(1, 0, commit=True, name=name, version=2)
    desk.add(1, 1, T0, name=name, version=2)
    desk.add(1, 1, place(OFFSETS, 21), name=name, version=2)
    desk.end(1, 1, commit=False, name=name, version=2)
    desk.add(1, 2, T0, name=name, version=2)
    assert desk.init(name).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert desk.init(name).producer_epoch == 4


def run_left_open(desk: TransactionDesk) -> None:
    """raw-tx-3: an abort of nothing, then a transaction that times out."""
    name = "raw-tx-3"
    desk.init(name)
    desk.end(2, 0, commit=False, name=name, version=2)
    desk.add(2, 1, T0, name=name, version=2)
    desk.pass_time(70_000)


@pytest.mark.parametrize(
    ("folder", "first_id", "run"),
    [
        ("__transaction_state-49", 0, run_v1),
        ("__transaction_state-0", 1, run_v2),
        ("__transaction_state-1", 2, run_left_open),
    ],
    ids=["v1", "v2", "left-open"],
)
def test_the_same_requests_leave_the_same_records(folder: str, first_id: int, run: Any) -> None:
    desk = TransactionDesk(TransactionSettings(), first_producer_id=first_id)
    run(desk)
    kafkas = recorded_values(folder)
    assert [timeless(record) for record in desk.log] == [timeless(record) for record in kafkas]


def timeless(record: TransactionRecord) -> TransactionRecord:
    value = record.value
    assert isinstance(value, TransactionValue)
    started = -1 if value.start_ms < 0 else 0
    return replace(record, value=replace(value, last_update_ms=0, start_ms=started))


@pytest.mark.parametrize("folder", [0, 1, 9, 22, 49])
def test_kafkas_own_records_can_be_taken_over(folder: int) -> None:
    desk = TransactionDesk()
    desk.log = recorded_values(f"__transaction_state-{folder}")
    desk.fail_over()
    name = desk.log[-1].transactional_id
    assert desk.value(name) == desk.log[-1].value
    assert desk.init(name).error is ErrorCode.NONE
