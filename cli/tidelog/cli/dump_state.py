"""The small files around a log: aborted transactions, producers, checkpoints and identities.

Kafka's tool prints transaction indexes and producer snapshots; the text files it leaves to
``cat``. Here they are read by the code that a node uses, so that what is printed is what a node
would see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from tidelog.cli.dump_items import Item, Line, OptionalLong, Problem, Value
from tidelog.kernel.ids import TopicId
from tidelog.kernel.ports import Disk
from tidelog.storage import names, txn_index
from tidelog.storage.checkpoints import CorruptCheckpoint, decode_epochs, decode_offsets
from tidelog.storage.index import CorruptIndex
from tidelog.storage.node_files import (
    NO_DIRECTORY_ID,
    CorruptNodeFile,
    decode_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
)
from tidelog.storage.producer_snapshot import (
    CorruptSnapshot,
    ProducerSnapshotEntry,
    decode_snapshot,
)
from tidelog.wire.batch import MAX_SEQUENCE


def txn_index_items(disk: Disk, path: str) -> Iterator[Item]:
    try:
        txns = txn_index.decode_aborted_txns(disk.read(path), path)
    except CorruptIndex as error:
        yield Problem(str(error))
        return
    for txn in txns:
        yield Line(
            "txnindex",
            {
                "version": txn_index.VERSION,
                "producerId": txn.producer_id,
                "firstOffset": txn.first_offset,
                "lastOffset": txn.last_offset,
                "lastStableOffset": txn.last_stable_offset,
            },
        )


def snapshot_items(disk: Disk, path: str) -> Iterator[Item]:
    try:
        entries = decode_snapshot(disk.read(path))
    except CorruptSnapshot as error:
        yield Problem(f"{path}: {error}")
        return
    for entry in entries:
        yield Line("producer", _producer_fields(entry))


def _producer_fields(entry: ProducerSnapshotEntry) -> dict[str, Value]:
    txn_start = entry.current_txn_first_offset
    fields: dict[str, Value] = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": OptionalLong(None if txn_start < 0 else txn_start),
        "lastTimestamp": entry.timestamp,
    }
    if entry.last_offset >= 0:
        fields |= {
            "firstSequence": (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp,
        }
    return fields


def offset_checkpoint_items(disk: Disk, path: str) -> Iterator[Item]:
    try:
        offsets = decode_offsets(disk.read(path), path)
    except CorruptCheckpoint as error:
        yield Problem(str(error))
        return
    for tp, offset in offsets.items():
        fields: dict[str, Value] = {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": offset,
        }
        yield Line("checkpoint", fields)


def epoch_checkpoint_items(disk: Disk, path: str) -> Iterator[Item]:
    try:
        entries = decode_epochs(disk.read(path), path)
    except CorruptCheckpoint as error:
        yield Problem(str(error))
        return
    for entry in entries:
        yield Line("epoch", {"epoch": entry.epoch, "startOffset": entry.start_offset})
    rises = (a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
    if not all(rises):
        yield Problem(f"{path}: epochs and start offsets do not both increase")


def partition_metadata_items(disk: Disk, path: str) -> Iterator[Item]:
    try:
        metadata = read_partition_metadata(disk, path)
    except CorruptNodeFile as error:
        yield Problem(str(error))
        return
    yield Line("partition", {"topicId": str(metadata.topic_id)})


def topic_id(disk: Disk, path: str) -> TopicId | None:
    """The topic a partition's directory was made for; None if it cannot tell."""
    try:
        return read_partition_metadata(disk, path).topic_id
    except (CorruptNodeFile, FileNotFoundError):
        return None


def meta_properties_items(disk: Disk, path: str) -> Iterator[Item]:
    try:
        meta = read_meta_properties(disk, path)
    except CorruptNodeFile as error:
        yield Problem(str(error))
        return
    fields: dict[str, Value] = {
        "version": meta.version,
        "clusterId": meta.cluster_id,
        "nodeId": meta.node_id,
    }
    if meta.directory_id != NO_DIRECTORY_ID:
        fields["directoryId"] = str(meta.directory_id)
    yield Line("meta", fields)


def clean_shutdown_items(disk: Disk, path: str) -> Iterator[Item]:
    shutdown = decode_clean_shutdown(disk.read(path))
    yield Line("cleanshutdown", {"brokerEpoch": shutdown.broker_epoch})


READERS: Final[Mapping[str, Callable[[Disk, str], Iterator[Item]]]] = {
    names.RECOVERY_POINT_CHECKPOINT: offset_checkpoint_items,
    names.LOG_START_CHECKPOINT: offset_checkpoint_items,
    names.HIGH_WATERMARK_CHECKPOINT: offset_checkpoint_items,
    names.CLEANER_CHECKPOINT: offset_checkpoint_items,
    names.LEADER_EPOCH_CHECKPOINT: epoch_checkpoint_items,
    names.PARTITION_METADATA: partition_metadata_items,
    names.META_PROPERTIES: meta_properties_items,
    names.CLEAN_SHUTDOWN: clean_shutdown_items,
}
"""What reads a file that has one fixed name."""
