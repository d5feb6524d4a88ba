"""Producers of a simulation: what they promise each other is checked by what they are answered.

``IdempotentProducer`` writes one partition under acks=all. It sends a window of batches down one
connection, waits for all their answers and sends again, in order and with the same sequence
numbers, whatever was not acknowledged, until it is. So each batch must be in the log exactly once,
and the answers themselves can be judged: a producer that has all its earlier batches acknowledged
is never out of order (hazard 24), and its epoch is never stale, since nobody else has it.

``CarelessProducer`` writes under acks=1 without sequence numbers and never retries: nothing that it
was told counts. It leaves behind what leaders wrote and lost, which is what makes logs diverge.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ports import Clock
from tidelog.simulation import kafka_messages
from tidelog.simulation.history import History, Outcome, PartitionName, Send, Violation
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import BrokerLink, NoAnswer, NotSent, SimKafkaClient
from tidelog.wire.batch import Codec
from tidelog.wire.records import Record, build_batch

ACKS_ALL: Final = -1
RETRY_S: Final = 0.050

_NEVER_RIGHT: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""What no fault of the cluster is an excuse for: the requests are sound."""


class _Answer:
    __slots__ = ("base_offset", "code")

    def __init__(self, code: ErrorCode, base_offset: int) -> None:
        self.code = code
        self.base_offset = base_offset


class IdempotentProducer:
    """``run`` until ``stop``, then until everything sent is acknowledged."""

    def __init__(
        self,
        client: SimKafkaClient,
        name: str,
        partition: PartitionName,
        history: History,
        clock: Clock,
        random: SimRandom,
        *,
        window: int,
        pause_s: float,
        request_timeout_s: float,
    ) -> None:
        self.name = name
        self._client = client
        self._partition = partition
        self._history = history
        self._clock = clock
        self._random = random
        self._window = window
        self._pause_s = pause_s
        self._request_timeout_s = request_timeout_s
        self._producer_id = -1
        self._producer_epoch = -1
        self._next_sequence = 0
        self._next_number = 0
        self._unacknowledged: list[Send] = []
        self._has_history = False
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    @property
    def backlog(self) -> list[Send]:
        """Batches that are not acknowledged yet."""
        return list(self._unacknowledged)

    async def run(self) -> None:
        await self._begin()
        while not self._is_stopping or self._unacknowledged:
            if not self._is_stopping:
                self._write_more()
            if not await self._send_window():
                await asyncio.sleep(RETRY_S)
                await self._refresh()
            elif not self._is_stopping:
                await asyncio.sleep(self._pause_s * self._random.random())

    async def _begin(self) -> None:
        """Get a producer id; the topic exists by now, but not everybody knows it yet."""
        await self._refresh()
        while True:
            try:
                answer = await self._client.call_any(kafka_messages.init_producer_id(), 5.0)
            except NoAnswer:
                await asyncio.sleep(RETRY_S)
                continue
            if int(answer.error_code) == ErrorCode.NONE:
                self._producer_id = int(answer.producer_id)
                self._producer_epoch = int(answer.producer_epoch)
                return
            await asyncio.sleep(RETRY_S)

    async def _refresh(self) -> None:
        try:
            await self._client.refresh([self._partition[0]])
        except NoAnswer:
            await asyncio.sleep(RETRY_S)

    # --- batches -----------------------------------------------------------------------

    def _write_more(self) -> None:
        while len(self._unacknowledged) < self._window:
            count = self._random.choice((1, 1, 2, 5))
            values = tuple(self._value() for _ in range(count))
            now_ms = self._clock.monotonic_ms()
            send = Send(self.name, self._partition, self._next_sequence, values, now_ms, True)
            self._next_sequence += count
            self._unacknowledged.append(send)
            self._history.sent(send)

    def _value(self) -> bytes:
        self._next_number += 1
        padding = self._random.choice((0, 20, 200, 900))
        return f"{self.name}/{self._next_number}/".encode() + b"." * padding

    def _batch(self, send: Send) -> bytes:
        now_ms = self._clock.wall_ms()
        records = [Record(index, now_ms, None, value) for index, value in enumerate(send.values)]
        return build_batch(
            records,
            codec=Codec.GZIP if send.base_sequence % 7 == 0 else Codec.NONE,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=send.base_sequence,
        )

    # --- sending -----------------------------------------------------------------------

    async def _send_window(self) -> bool:
        """Send what is unacknowledged; True if all of it was acknowledged."""
        known = self._client.leaders.get(self._partition)
        if known is None or known.leader < 0 or not self._unacknowledged:
            return known is not None and not self._unacknowledged
        # A leader that knows nothing of a producer takes any sequence number from it, as Kafka's
        # does. If it began to lead between two batches of the first window, the earlier one would
        # be out of order for ever; so the first batch goes alone.
        window = self._unacknowledged[: self._window if self._has_history else 1]
        try:
            link = await self._client.link(known.leader)
        except NotSent:
            return False
        asked = [link.send(self._request(send)) for send in window]
        answers = [await self._answer(link, one) for one in asked]
        self._judge(window, answers)
        return not self._unacknowledged

    def _request(self, send: Send) -> Any:
        topic, index = self._partition
        send.attempts += 1
        timeout_ms = int(self._request_timeout_s * 800)
        return kafka_messages.produce(topic, index, self._batch(send), ACKS_ALL, timeout_ms)

    async def _answer(self, link: BrokerLink, asked: asyncio.Future[Any]) -> _Answer | None:
        try:
            answer = await link.answer_in_time(asked, self._request_timeout_s)
        except NoAnswer:
            return None
        (row,) = answer.responses[0].partition_responses
        return _Answer(ErrorCode(int(row.error_code)), int(row.base_offset))

    def _judge(self, window: list[Send], answers: list[_Answer | None]) -> None:
        """Acknowledged is only what all batches before are; a later success is told again."""
        is_first_missing = False
        for send, answer in zip(window, answers, strict=True):
            code = None if answer is None else answer.code
            if code in _NEVER_RIGHT:
                raise Violation(f"{send} was answered {code and code.name}")
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first_missing:
                raise Violation(f"{send} is out of order, but all before it are acknowledged")
            if answer is None or code is not ErrorCode.NONE:
                is_first_missing = True
            elif is_first_missing:
                # The log refuses a gap, so an earlier attempt of the missing one is in it.
                self._note(send, answer.base_offset)
            else:
                self._note(send, answer.base_offset)
                self._unacknowledged.remove(send)

    def _note(self, send: Send, base_offset: int) -> None:
        self._has_history = True
        if send.outcome is Outcome.OK and send.base_offset != base_offset:
            raise Violation(f"{send} was acknowledged again at {base_offset}")
        if send.outcome is not Outcome.OK:
            send.outcome = Outcome.OK
            send.base_offset = base_offset
            send.answered_ms = self._clock.monotonic_ms()


class CarelessProducer:
    """acks=1, no sequence numbers, no retries; what it writes may be lost or not."""

    def __init__(
        self,
        client: SimKafkaClient,
        name: str,
        partition: PartitionName,
        history: History,
        clock: Clock,
        random: SimRandom,
        *,
        pause_s: float,
    ) -> None:
        self.name = name
        self._client = client
        self._partition = partition
        self._history = history
        self._clock = clock
        self._random = random
        self._pause_s = pause_s
        self._number = 0
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            try:
                await self._send_one()
            except NoAnswer:
                await self._refresh()
            await asyncio.sleep(self._pause_s * self._random.random())

    async def _refresh(self) -> None:
        try:
            await self._client.refresh([self._partition[0]])
        except NoAnswer:
            await asyncio.sleep(RETRY_S)

    async def _send_one(self) -> None:
        known = self._client.leaders.get(self._partition)
        if known is None or known.leader < 0:
            raise NotSent("no leader is known")
        self._number += 1
        value = f"{self.name}/{self._number}".encode()
        now_ms = self._clock.monotonic_ms()
        send = Send(self.name, self._partition, self._number, (value,), now_ms, False)
        self._history.sent(send)
        batch = build_batch([Record(0, self._clock.wall_ms(), None, value)])
        topic, index = self._partition
        request = kafka_messages.produce(topic, index, batch, 1, 1000)
        answer = await self._client.call(known.leader, request, 2.0)
        (row,) = answer.responses[0].partition_responses
        code = ErrorCode(int(row.error_code))
        if code in _NEVER_RIGHT:
            raise Violation(f"{send} was answered {code.name}")
        if code is ErrorCode.NONE:
            send.outcome, send.base_offset = Outcome.OK, int(row.base_offset)
        else:
            raise NotSent(code.name)
