"""A consumer of a simulation: reads one partition from its first record, for as long as it may.

It is shown only what is committed, so whatever it was shown must stay: it remembers every record in
the ``History``, asks with the epoch of the last record it has (KIP-320), and takes an answer that
its position diverges, or lies behind the log's end, for what it is: committed data was lost.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import kafka_messages
from tidelog.simulation.history import History, PartitionName, Violation
from tidelog.simulation.sim_client import Leadership, NoAnswer, SimKafkaClient
from tidelog.wire.batch import check_batch
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import decode_records

_RETRY_S = 0.050
_MAX_BYTES = 20_000


class SimConsumer:
    def __init__(
        self,
        client: SimKafkaClient,
        name: str,
        partition: PartitionName,
        history: History,
        *,
        may_be_damaged: bool,
        position: int = 0,
        max_wait_ms: int = 500,
    ) -> None:
        """``may_be_damaged``: a leader's disk may show what was never written there."""
        self.name = name
        self.position = position
        self.high_watermark = -1
        """As the last answer had it."""
        self._client = client
        self._partition = partition
        self._history = history
        self._may_be_damaged = may_be_damaged
        self._max_wait_ms = max_wait_ms
        self._last_epoch = -1
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    @property
    def is_at_end(self) -> bool:
        return self.position == self.high_watermark

    async def run(self) -> None:
        while not self._is_stopping:
            if not await self.read_some():
                await asyncio.sleep(_RETRY_S)
                await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self._client.refresh([self._partition[0]])
        except NoAnswer:
            await asyncio.sleep(_RETRY_S)

    async def read_some(self) -> bool:
        """One fetch; False if the leader must be looked for."""
        known = self._client.leaders.get(self._partition)
        if known is None or known.leader < 0:
            return False
        request = kafka_messages.fetch(
            known.topic_id,
            self._partition[1],
            self.position,
            leader_epoch=known.leader_epoch,
            last_epoch=self._last_epoch,
            max_wait_ms=self._max_wait_ms,
            max_bytes=_MAX_BYTES,
        )
        try:
            answer = await self._client.call(known.leader, request, 3.0)
        except NoAnswer:
            return False
        return self._take(known, answer)

    def _take(self, known: Leadership, answer: Any) -> bool:
        if int(answer.error_code) != ErrorCode.NONE:
            return False
        (row,) = answer.responses[0].partitions
        code = ErrorCode(int(row.error_code))
        where = f"{self.name} at offset {self.position} (epoch {self._last_epoch})"
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Violation(f"{where}: node {known.leader} says that this is out of range")
        if code is not ErrorCode.NONE:
            return False
        if int(row.diverging_epoch.end_offset) >= 0:
            raise Violation(f"{where}: node {known.leader} diverges at {row.diverging_epoch}")
        self.high_watermark = int(row.high_watermark)
        records = bytes(row.records or b"")
        if int(row.last_stable_offset) > self.high_watermark:
            raise Violation(f"{where}: the last stable offset is above the high watermark")
        return self._decode(records)

    def _decode(self, data: bytes) -> bool:
        position = 0
        while position < len(data):
            try:
                header = check_batch(data, position)
            except MalformedBatch as error:
                if position == 0 and not self._may_be_damaged:
                    raise Violation(f"{self.name} at {self.position}: {error}") from error
                return position > 0  # the rest of a batch that did not fit, or damage
            if header.last_offset >= self.high_watermark:
                if self._may_be_damaged:
                    return position > 0  # no checksum covers the base offset
                raise Violation(
                    f"{self.name} was shown offset {header.last_offset} although the high"
                    f" watermark is {self.high_watermark}"
                )
            # No checksum covers the epoch either.
            if header.leader_epoch < self._last_epoch and not self._may_be_damaged:
                raise Violation(
                    f"{self.name}: epoch {header.leader_epoch} after {self._last_epoch}"
                )
            batch = data[position : position + header.size]
            for record in decode_records(batch, header):
                if record.offset >= self.position:
                    self._history.saw(
                        self.name, self._partition, record.offset, record.value or b""
                    )
            self.position = header.last_offset + 1
            self._last_epoch = header.leader_epoch
            position += header.size
        return True
