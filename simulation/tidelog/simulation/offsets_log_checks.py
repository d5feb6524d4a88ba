"""The log of ``__consumer_offsets`` itself, read as it lies on its leaders' disks.

Committed offsets never go back in it, nor do generations and epochs of groups; and what it says
last of a partition is what members were told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.coordinator.records import GroupRecord, OffsetRecord, decode_record
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.final_checks import stored_batches
from tidelog.simulation.group_ledger import GroupLedger
from tidelog.simulation.history import Violation
from tidelog.simulation.partition_checks import newest_image
from tidelog.wire.records import decode_records

_TOPIC: Final = "__consumer_offsets"


def check_offsets_log(cluster: SimCluster, ledgers: Mapping[str, GroupLedger]) -> None:
    offsets: dict[tuple[str, int], int] = {}
    generations: dict[str, int] = {}
    for record in _records(cluster):
        match record:
            case OffsetRecord(key, value) if value is not None:
                place = (key.group, key.partition)
                if value.offset < offsets.get(place, -1):
                    raise Violation(f"{place}: {value.offset} is committed after {offsets[place]}")
                offsets[place] = value.offset
            case OffsetRecord(key, None):
                raise Violation(f"the offset of {key} was removed")
            case GroupRecord(key, value) if value is not None:
                if value.generation < generations.get(key.group, -1):
                    raise Violation(f"{key.group}: generation {value.generation} after a later one")
                generations[key.group] = value.generation
    for group, ledger in ledgers.items():
        for partition, offset in ledger.floor.items():
            if offset > 0 and offsets.get((group, partition)) != offset:
                found = offsets.get((group, partition))
                raise Violation(f"{group}/{partition}: {offset} was told, {found} is in the log")


def _records(cluster: SimCluster) -> Iterator[object]:
    image = newest_image(cluster)
    topic = None if image is None else image.topics.named(_TOPIC)
    if topic is None:
        raise Violation(f"there is no {_TOPIC}")
    for index, state in sorted(topic.partitions.items()):
        ref = PartitionRef(topic.topic_id, index)
        for batch in stored_batches(cluster, int(state.leader), ref):
            if batch.header.is_control:
                continue
            for record in decode_records(batch.data, batch.header):
                yield decode_record(record.key or b"", record.value)
