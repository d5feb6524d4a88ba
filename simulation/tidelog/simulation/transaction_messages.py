"""Requests of transactions for simulated clients, as old and as new clients send them.

``is_new``: the way of ``transaction.version=2`` (KIP-890): partitions and offsets are added by
writing to them, and every end of a transaction gives the next one an epoch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelog.simulation.kafka_messages import Structs
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32


@dataclass(frozen=True, slots=True)
class Producer:
    """Who acts: a transactional id, and what it was given for it."""

    name: str
    producer_id: int = -1
    epoch: int = -1


def init_producer_id(name: str, timeout_ms: int) -> Any:
    s = Structs(ApiKey.INIT_PRODUCER_ID, 4)
    return s.InitProducerIdRequest(
        transactional_id=name, transaction_timeout=duration_i32(timeout_ms)
    )


def add_partition(who: Producer, topic: str, partition: int) -> Any:
    s = Structs(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    return s.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=(s.AddPartitionsToTxnTopic(name=topic, partitions=(partition,)),),
    )


def produce(who: Producer, topic: str, partition: int, batch: bytes, *, is_new: bool) -> Any:
    s = Structs(ApiKey.PRODUCE, 12 if is_new else 11)
    data = s.PartitionProduceData(index=partition, records=batch)
    return s.ProduceRequest(
        transactional_id=who.name,
        acks=-1,
        timeout=duration_i32(3_000),
        topic_data=(s.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def add_offsets(who: Producer, group: str) -> Any:
    s = Structs(ApiKey.ADD_OFFSETS_TO_TXN, 3)
    return s.AddOffsetsToTxnRequest(
        transactional_id=who.name,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group,
    )


def commit_offset(
    who: Producer, group: str, topic: str, partition: int, offset: int, *, is_new: bool
) -> Any:
    s = Structs(ApiKey.TXN_OFFSET_COMMIT, 5 if is_new else 3)
    row = s.TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=str(offset)
    )
    return s.TxnOffsetCommitRequest(
        transactional_id=who.name,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        topics=(s.TxnOffsetCommitRequestTopic(name=topic, partitions=(row,)),),
    )


def end(who: Producer, *, commit: bool, is_new: bool) -> Any:
    s = Structs(ApiKey.END_TXN, 5 if is_new else 3)
    return s.EndTxnRequest(
        transactional_id=who.name,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commit,
    )
