"""What a client may do, as a bit per operation (KIP-430). Nobody is refused anything yet."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    set(Operation) - {Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE}
)
CLUSTER_OPERATIONS: Final = _bits(
    set(Operation) - {Operation.READ, Operation.WRITE, Operation.DELETE}
)
GROUP_OPERATIONS: Final = _bits(
    {
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)
NOT_ASKED: Final = -(2**31)
