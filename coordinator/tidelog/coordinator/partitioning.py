"""Which partition of an internal topic a group or a transactional id belongs to.

The leader of that partition is the coordinator. All brokers and all clients of a cluster must
agree for ever, so the hash is Java's ``String.hashCode`` and its quirks are kept.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.ids import PartitionIndex

_SMALLEST: Final = -(2**31)


def java_hash(text: str) -> int:
    """``String.hashCode``: h = 31·h + unit over the UTF-16 code units, wrapped to 32 signed bits.

    Lone surrogates are units like any other.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def kafka_abs(value: int) -> int:
    """The absolute value, except that the one number without a positive twin becomes 0."""
    return 0 if value == _SMALLEST else abs(value)


def coordinator_partition(name: str, partitions: int) -> PartitionIndex:
    """The partition of ``__consumer_offsets`` (or ``__transaction_state``) that holds ``name``."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return PartitionIndex(kafka_abs(java_hash(name)) % partitions)
