"""Replica lists that people write themselves."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import NodeIds, Partition
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId, PartitionIndex, TopicId


def check_assignment(
    image: MetadataImage, replicas: Sequence[NodeId], factor: int | None = None
) -> None:
    """Raises Refused unless these are distinct registered brokers, ``factor`` of them."""
    if not replicas:
        raise _bad("The manual partition assignment includes an empty replica list.")
    for broker in replicas:
        if broker not in image.brokers:
            raise _bad(
                f"The manual partition assignment includes broker {broker}, but no such broker is"
                " registered."
            )
    for broker in sorted(set(replicas)):
        if list(replicas).count(broker) > 1:
            raise _bad(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
    if factor is not None and len(replicas) != factor:
        raise _bad(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s),"
            f" but this is not consistent with previous partitions, which have {factor}"
            " replica(s)."
        )


def _bad(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def new_partition(
    image: MetadataImage, topic_id: TopicId, index: PartitionIndex, replicas: NodeIds
) -> Partition:
    """A partition as it begins: in sync are the active replicas, the first of them leads."""
    isr = tuple(broker for broker in replicas if image.brokers[broker].is_active)
    if not isr:
        raise _bad(
            "All brokers specified in the manual partition assignment for partition"
            f" {index} are fenced or in controlled shutdown."
        )
    return Partition(
        topic_id=topic_id,
        partition=index,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        directories=tuple(image.brokers[broker].only_directory for broker in replicas),
    )
