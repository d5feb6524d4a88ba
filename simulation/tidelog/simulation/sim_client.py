"""A small Kafka client for simulations: real frames over simulated connections.

``SimKafkaClient`` keeps one connection per broker and the newest metadata it was told.
Requests on one connection are pipelined, and answers come in the order of the requests, as the
protocol promises; a client that waits for too long hangs up, as Java's does, since it could not
tell later answers apart from late ones.

Owner: the tasks of one client, which all run in the client's own process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import ConnectionLost
from tidelog.simulation import kafka_messages
from tidelog.simulation.network import SimNetwork
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.sim_listener import SimByteStream, connect_client
from tidelog.wire.protocol.apis import APIS, Api
from tidelog.wire.protocol.frames import SIZE_BYTES, parse_response_header, read_frame_size
from tidelog.wire.protocol.requests import encode_request
from tidelog.wire.protocol.responses import decode_response


class NoAnswer(Exception):
    """A request got no answer; whether it had an effect is not known."""


class NotSent(NoAnswer):
    """A request did not leave the client, so it had no effect."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads a partition, as the client was told last."""

    topic_id: Any
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class _Asked:
    api: Api
    version: int
    correlation_id: int
    answer: asyncio.Future[Any]


class BrokerLink:
    """One connection. Over once anything goes wrong with it; the client then makes another."""

    def __init__(self, stream: SimByteStream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id
        self._asked: deque[_Asked] = deque()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._correlation_id = 0
        self.is_over = False
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._write())]

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Ask at once, behind what was asked before; the future has the answer or ``NoAnswer``."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_over:
            answer.set_exception(NotSent("the connection is over"))
            return answer
        self._correlation_id += 1
        api, version = APIS[request.__api_key__], int(request.__version__)
        self._asked.append(_Asked(api, version, self._correlation_id, answer))
        self._frames.put_nowait(encode_request(self._correlation_id, self._client_id, request))
        return answer

    async def call(self, request: Any, timeout_s: float) -> Any:
        return await self.answer_in_time(self.send(request), timeout_s)

    async def answer_in_time(self, answer: asyncio.Future[Any], timeout_s: float) -> Any:
        """The answer; ``NoAnswer`` if there is none in time, which ends the connection."""
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self.close("an answer took too long")
            raise NoAnswer(f"no answer in {timeout_s:g} s") from None

    def close(self, reason: str) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._stream.close()
        for asked in self._asked:
            if not asked.answer.done():
                asked.answer.set_exception(NoAnswer(reason))
                asked.answer.exception()
        self._asked.clear()
        for task in self._tasks:
            task.cancel()

    async def _write(self) -> None:
        try:
            while True:
                await self._stream.write([await self._frames.get()])
        except ConnectionLost as lost:
            self.close(str(lost))

    async def _read(self) -> None:
        try:
            while True:
                size = read_frame_size(await self._stream.read_exactly(SIZE_BYTES))
                self._take(await self._stream.read_exactly(size))
        except ConnectionLost as lost:
            self.close(str(lost))

    def _take(self, frame: bytearray) -> None:
        asked = self._asked.popleft()
        correlation_id, body = parse_response_header(asked.api, asked.version, frame)
        assert correlation_id == asked.correlation_id, "answers come in the order of the requests"
        if not asked.answer.done():
            asked.answer.set_result(decode_response(asked.api.key, asked.version, body))


class SimKafkaClient:
    """See the module. All its methods are to be called from tasks of its process."""

    def __init__(
        self, network: SimNetwork, process: SimProcess, bootstrap: Sequence[SocketAddress]
    ) -> None:
        self.name = process.host
        self.network = network
        self._process = process
        self._bootstrap = tuple(bootstrap)
        self._next_bootstrap = 0
        self._addresses: dict[int, SocketAddress] = {}
        self._coordinators: dict[int, SocketAddress] = {}
        self._links: dict[SocketAddress, BrokerLink] = {}
        self._dialling: dict[SocketAddress, asyncio.Lock] = {}
        self.leaders: dict[tuple[str, int], Leadership] = {}
        self.connect_timeout_s = 2.0

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something as part of the client's process."""
        return self._process.start(work, self.name)

    async def call(self, node: int, request: Any, timeout_s: float) -> Any:
        """Ask one broker."""
        return await (await self.link(node)).call(request, timeout_s)

    async def link(self, node: int) -> BrokerLink:
        """A connection to one broker; ``NotSent`` if there is none to be had."""
        address = self._addresses.get(node) or self._coordinators.get(node)
        if address is None:
            raise NotSent(f"the address of broker {node} is not known")
        return await self._link(address)

    async def call_any(self, request: Any, timeout_s: float) -> Any:
        """Ask the brokers in turn, another one each time."""
        known = tuple(self._addresses[node] for node in sorted(self._addresses))
        choice = known or self._bootstrap
        if self._next_bootstrap % 3 == 2:
            choice = self._bootstrap  # what is known may be long gone
        self._next_bootstrap += 1
        link = await self._link(choice[self._next_bootstrap % len(choice)])
        return await link.call(request, timeout_s)

    async def refresh(self, topics: list[str], timeout_s: float = 2.0) -> None:
        """Learn who leads what; ``NoAnswer`` if nobody tells."""
        answer = await self.call_any(kafka_messages.metadata(topics), timeout_s)
        for broker in answer.brokers:
            self._addresses[int(broker.node_id)] = SocketAddress(broker.host, int(broker.port))
        for topic in answer.topics:
            for one in topic.partitions:
                self._learn(str(topic.name), topic.topic_id, one)

    def note_address(self, node: int, address: SocketAddress) -> None:
        """A broker told where a coordinator is. Metadata is asked for elsewhere, too."""
        self._coordinators[node] = address

    def _learn(self, topic: str, topic_id: Any, one: Any) -> None:
        key = (topic, int(one.partition_index))
        known, epoch = self.leaders.get(key), int(one.leader_epoch)
        # An answer of a broker that lags must not take us back (KIP-320).
        if known is None or known.topic_id != topic_id or epoch >= known.leader_epoch:
            self.leaders[key] = Leadership(topic_id, int(one.leader_id), epoch)

    def forget(self, topic: str) -> None:
        """Of a topic that was deleted, nothing that was known holds for the next one."""
        for key in [key for key in self.leaders if key[0] == topic]:
            del self.leaders[key]

    async def _link(self, address: SocketAddress) -> BrokerLink:
        lock = self._dialling.setdefault(address, asyncio.Lock())
        async with lock:
            link = self._links.get(address)
            if link is None or link.is_over:
                link = self._links[address] = await self._dial(address)
            return link

    async def _dial(self, address: SocketAddress) -> BrokerLink:
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                stream = await connect_client(self.network, self._process, address)
        except OSError as error:  # a TimeoutError too
            raise NotSent(f"{address}: {error}") from error
        return BrokerLink(stream, self.name)

    def close(self) -> None:
        for link in self._links.values():
            link.close("closed by this client")
