"""Kafka's own records of its transaction topic: understood, and written back byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction_records import (
    TransactionRecord,
    TransactionValue,
    by_topic,
    decode_transaction,
    encode_transaction,
)
from tidelog.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

FOLDERS = sorted(
    (Path(__file__).parents[3] / "data/golden/txn-topic").glob("__transaction_state-*")
)
KEY = bytes.fromhex("0000 0002 7478")


def stored(folder: Path) -> Iterator[tuple[int, bytes, bytes | None]]:
    data = (folder / "00000000000000000000.log").read_bytes()
    for position, _ in headers(data):
        for record in iterate(data, position):
            assert record.key is not None
            yield int(record.offset), record.key, record.value


def dumped(folder: Path) -> dict[int, tuple[str, dict[str, Any]]]:
    line = re.compile(r"^\| offset: (\d+) .*? key: (\{.*\}) payload: (\{.*)$", re.MULTILINE)
    text = (folder / "dump.txt").read_text(encoding="utf-8")
    return {
        int(match[1]): (
            json.loads(match[2])["data"]["transactionalId"],
            json.loads(match[3])["data"],
        )
        for match in line.finditer(text)
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kafkas_records_are_written_back_byte_for_byte(folder: Path) -> None:
    found = list(stored(folder))
    assert found
    for _, key, value in found:
        record = decode_transaction(key, value)
        assert record is not None
        assert encode_transaction(record) == (key, value)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_say_what_kafkas_own_decoder_says(folder: Path) -> None:
    dump = dumped(folder)
    for offset, key, value in stored(folder):
        record = decode_transaction(key, value)
        assert record is not None and record.value is not None
        transactional_id, told = dump[offset]
        assert record.transactional_id == transactional_id
        assert as_kafka_prints(record.value) == told


def as_kafka_prints(value: TransactionValue) -> dict[str, Any]:
    printed: dict[str, Any] = {
        "producerId": value.producer_id,
        "previousProducerId": value.previous_producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": value.state.number,
        "transactionPartitions": None
        if value.partitions is None
        else [{"topic": topic, "partitionIds": list(ids)} for topic, ids in value.partitions],
        "transactionLastUpdateTimestampMs": value.last_update_ms,
        "transactionStartTimestampMs": value.start_ms,
    }
    if value.client_version:
        printed["clientTransactionVersion"] = value.client_version
    return printed


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("partitions", [None, (), (("a", (0, 2)), ("b", (7,)))])
def test_both_versions_are_read_as_written(version: int, partitions: Any) -> None:
    value = TransactionValue(
        ProducerId(7), ProducerEpoch(32767), 60_000, TransactionState.PREPARE_COMMIT, partitions,
        5, 4,
    )  # fmt: skip
    record = TransactionRecord("tx", value, version)
    assert decode_transaction(*encode_transaction(record)) == record


def test_the_flexible_version_alone_has_room_for_other_producer_ids() -> None:
    value = TransactionValue(
        ProducerId(7), ProducerEpoch(1), 1, TransactionState.ONGOING, (), 5, 4,
        ProducerId(6), ProducerId(8), 2,
    )  # fmt: skip
    new = TransactionRecord("tx", value, 1)
    assert decode_transaction(*encode_transaction(new)) == new
    old = decode_transaction(*encode_transaction(TransactionRecord("tx", value, 0)))
    assert old is not None and old.value is not None
    assert old.value.next_producer_id == -1


def test_a_tombstone_has_no_value() -> None:
    assert encode_transaction(TransactionRecord("tx", None)) == (KEY, None)
    assert decode_transaction(KEY, None) == TransactionRecord("tx", None)


def test_unknown_keys_are_skipped() -> None:
    assert decode_transaction(bytes.fromhex("0001 0002 7478"), b"") is None


BAD_VALUES = {
    "empty": b"",
    "version 2": bytes.fromhex("0002") + bytes(40),
    "cut": bytes.fromhex("0001 0000000000000001 0000"),
    "state 6": bytes.fromhex("0001") + bytes(14) + b"\x06" + bytes(18),
    "state 7": bytes.fromhex("0001") + bytes(14) + b"\x07" + bytes(18),
    "state 9": bytes.fromhex("0001") + bytes(14) + b"\x09" + bytes(18),
    "too many topics": bytes.fromhex("0001") + bytes(15) + b"\x7f" + bytes(18),
}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_values_that_do_not_fit_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord, match="tx"):
        decode_transaction(KEY, value)


def test_partitions_are_listed_by_topic_in_order() -> None:
    places = [("b", 1), ("a", 2), ("b", 0)]
    listed = by_topic(TopicPartition(topic, PartitionIndex(index)) for topic, index in places)
    assert listed == (("a", (2,)), ("b", (0, 1)))
