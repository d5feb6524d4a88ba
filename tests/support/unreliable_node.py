"""A node that lets one answer about a group fail, then is as ``tidelog server`` is.

python unreliable_node.py KIND --config FILE

``not-coordinator`` is told to the first who asks for offsets, as if the coordinator had just moved.
``late`` is the first answer that takes partitions from a member: its client no longer waits for it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

from tidelog.broker.calls import Begun, Call
from tidelog.broker.groups import Groups
from tidelog.broker.handlers import consumer_group_heartbeat
from tidelog.broker.handlers.offset_fetch import OffsetFetch
from tidelog.broker.process import main
from tidelog.coordinator.consumer.events import ConsumerHeartbeatResult
from tidelog.coordinator.runtime.group_shard import Answer
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.frames import ResponseFrame

NOT_COORDINATOR = "not-coordinator"
LATE = "late"
FAILED = "failed on purpose"
AFTER_ALL = "answered after all"
_LATE_S = 2.5


class Elsewhere:
    """In place of the groups of a broker."""

    def find(self, group_id: str) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR


def refuse_first_offset_fetch() -> None:
    begin = OffsetFetch.begin

    def refuse(self: OffsetFetch, call: Call) -> Begun:
        OffsetFetch.begin = begin  # type: ignore[method-assign]
        print(FAILED, flush=True)
        return OffsetFetch(self._context, cast(Groups, Elsewhere())).begin(call)

    OffsetFetch.begin = refuse  # type: ignore[method-assign]


def delay_first_loss() -> None:
    """Of a member that was there before: only it has something to lose at an epoch it has."""
    wait = consumer_group_heartbeat._wait

    async def delay(call: Call, answer: asyncio.Future[Answer]) -> ResponseFrame:
        result = await answer
        assert isinstance(result, ConsumerHeartbeatResult)
        asked: Any = call.request
        if result.assignment and result.member_epoch == asked.member_epoch:
            consumer_group_heartbeat._wait = wait
            print(FAILED, flush=True)
            await asyncio.sleep(_LATE_S)
            print(AFTER_ALL, flush=True)
        return await wait(call, answer)

    consumer_group_heartbeat._wait = delay


MISHAPS = {NOT_COORDINATOR: refuse_first_offset_fetch, LATE: delay_first_loss}

if __name__ == "__main__":
    MISHAPS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
