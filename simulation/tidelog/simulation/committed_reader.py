"""A consumer under read_committed: it shows what clients of Kafka would show, and remembers it.

Aborted data is left out the way clients do it: by the list of aborted transactions that comes with
each answer, and the markers in the log. It must never be shown a record at or after the last stable
offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import kafka_messages
from tidelog.simulation.history import PartitionName, Violation
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.testing.checkers import Seen
from tidelog.wire.batch import check_batch
from tidelog.wire.control import read_marker
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import decode_records

_RETRY_S: Final = 0.050
_MAX_BYTES: Final = 20_000


class CommittedReader:
    """Reads one partition from its first record on, until ``stop``."""

    def __init__(
        self,
        client: SimKafkaClient,
        name: str,
        partition: PartitionName,
        *,
        may_be_damaged: bool = False,
    ) -> None:
        self.name = name
        self.partition = partition
        self.seen: list[Seen] = []
        self.position = 0
        self.stable_offset = self.high_watermark = -1
        """As the last answer had them."""
        self._client = client
        self._may_be_damaged = may_be_damaged
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    @property
    def is_at_end(self) -> bool:
        """Nothing is left to read, and nothing is open."""
        return self.position == self.stable_offset == self.high_watermark

    async def run(self) -> None:
        while not self._is_stopping:
            if not await self._read_some():
                await asyncio.sleep(_RETRY_S)
                try:
                    await self._client.refresh([self.partition[0]])
                except NoAnswer:
                    await asyncio.sleep(_RETRY_S)

    async def _read_some(self) -> bool:
        known = self._client.leaders.get(self.partition)
        if known is None or known.leader < 0:
            return False
        request = kafka_messages.fetch(
            known.topic_id,
            self.partition[1],
            self.position,
            leader_epoch=known.leader_epoch,
            last_epoch=-1,
            max_wait_ms=500,
            max_bytes=_MAX_BYTES,
            is_committed_only=True,
        )
        try:
            answer = await self._client.call(known.leader, request, 3.0)
        except NoAnswer:
            return False
        if int(answer.error_code) != ErrorCode.NONE:
            return False
        (row,) = answer.responses[0].partitions
        if int(row.error_code) == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Violation(f"{self.name}: {self.position} is out of range at {known.leader}")
        if int(row.error_code) != ErrorCode.NONE:
            return False
        self.high_watermark = int(row.high_watermark)
        self.stable_offset = int(row.last_stable_offset)
        for offset, value in self._shown(row):
            if value is not None and offset >= self.position:
                self.seen.append(Seen(self.partition, offset, value))
            self.position = max(self.position, offset + 1)
        return True

    def _shown(self, row: Any) -> Iterator[tuple[int, str | None]]:
        """Offsets, with the value where there is one to be shown."""
        data = bytes(row.records or b"")
        aborted = sorted(
            (int(one.first_offset), int(one.producer_id)) for one in row.aborted_transactions or ()
        )
        hidden: set[int] = set()
        at = 0
        while at < len(data):
            try:
                header = check_batch(data, at)
            except MalformedBatch as error:
                if at == 0 and not self._may_be_damaged:
                    raise Violation(f"{self.name} at {self.position}: {error}") from error
                return
            if header.last_offset >= self.stable_offset:
                if self._may_be_damaged:
                    return  # no checksum covers the base offset
                raise Violation(
                    f"{self.name} was shown {header.last_offset}, though only what is before"
                    f" {self.stable_offset} is stable"
                )
            batch = data[at : at + header.size]
            at += header.size
            while aborted and aborted[0][0] <= header.last_offset:
                hidden.add(aborted.pop(0)[1])
            if header.is_control:
                marker = read_marker(batch, header)
                if marker is not None and not marker.is_commit:
                    hidden.discard(header.producer_id)
                yield int(header.last_offset), None
                continue
            is_hidden = header.is_transactional and header.producer_id in hidden
            for record in decode_records(batch, header):
                yield record.offset, None if is_hidden else (record.value or b"").decode()
