"""One task's rows to the brokers: while they store what was sent, the next batches are made.

``Delivery`` decides what goes out and what an answer means; here are the sockets. A broker that
hangs up, or leads no more, costs another look at who leads; what it had not answered goes out
again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.pipeline.cluster import AskAgain, Cluster
from tidelog.pipeline.connection import NO_ANSWER, Connection
from tidelog.pipeline.delivery import MAX_IN_FLIGHT, Delivery, Parcel
from tidelog.pipeline.outgoing_rows import Rows, build_batch
from tidelog.pipeline.positions import Place
from tidelog.pipeline.produce_message import VERSION, produce_body, read_produced
from tidelog.pipeline.routing import Gathering, Router
from tidelog.pipeline.sink_options import SinkOptions
from tidelog.wire.batch import Codec
from tidelog.wire.protocol.apis import ApiKey

_PAUSE_S: Final = 0.1
_ENOUGH_WAITING: Final = 32
"""Batches that may wait for a broker before no more are made."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Under which a task writes; a transactional id makes it a transaction."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None
    join: Callable[[Collection[Place]], None] = field(default=lambda places: None)
    """Called before the first batch for a place is sent."""


class Producer:
    """Owner: the task, which closes it. ``write`` once.

    Batches have connections of their own: on those of the cluster a question waits for its answer.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        identity: Identity,
        task: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._identity = identity
        self._monotonic = monotonic
        self._sleep = sleep
        self._now_ms = now_ms
        self._codec = Codec[options.compression.upper()]
        self._counts: dict[str, int] = {}
        self._router = Router(options.topic, self._count_of, task)
        self._gathering = Gathering(
            options.batch_bytes, options.linger_ms, options.max_request_bytes
        )
        self._delivery = Delivery(options.delivery_timeout_ms)
        self._joined: set[Place] = set()
        self._leaders: dict[Place, SocketAddress] = {}
        self._connections: dict[SocketAddress, Connection] = {}
        self._under_way: deque[tuple[Connection, list[Parcel]]] = deque()
        self.rows = 0

    def write(self, batches: Iterable[Any]) -> None:
        """Every row of these ``pa.RecordBatch`` objects is stored when this returns."""
        for batch in batches:
            now_ms = self._now_ms()
            for place, rows in self._router.route(batch, now_ms):
                self._gathering.add(place, rows, now_ms)
            self.rows += batch.num_rows
            for place, rows in self._gathering.full(now_ms):
                self._send_batch(place, rows)
        for place, rows in self._gathering.rest():
            self._send_batch(place, rows)
        while self._delivery.waiting or self._under_way:
            self._pump()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- making batches ----------------------------------------------------------------

    def _count_of(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._cluster.partition_count(topic)
        return self._counts[topic]

    def _send_batch(self, place: Place, rows: Rows) -> None:
        batch = build_batch(
            rows,
            codec=self._codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._delivery.next_sequence(place, len(rows)),
            is_transactional=self._identity.transactional_id is not None,
        )
        self._delivery.add(place, batch, self._monotonic())
        self._router.advance(place)
        self._send_what_can_go()
        while self._delivery.waiting >= _ENOUGH_WAITING:
            self._pump()

    # --- sending -----------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what can go, and take one answer."""
        self._send_what_can_go()
        if self._under_way:
            self._receive_one()
        elif self._delivery.waiting:
            self._delivery.give_up_if_late(self._monotonic(), "no broker leads it")
            self._sleep(_PAUSE_S)

    def _send_what_can_go(self) -> None:
        self._join_new_places()
        by_leader: dict[SocketAddress, list[Place]] = {}
        for place in self._delivery.places:
            leader = self._leader_of(place)
            if leader is not None:
                by_leader.setdefault(leader, []).append(place)
        for address, places in by_leader.items():
            while self._requests_to(address) < MAX_IN_FLIGHT:
                parcels = self._delivery.take(places)
                if not parcels or not self._send(address, parcels):
                    break

    def _join_new_places(self) -> None:
        new = [place for place in self._delivery.places if place not in self._joined]
        if new:
            self._identity.join(new)
            self._joined.update(new)

    def _leader_of(self, place: Place) -> SocketAddress | None:
        if place not in self._leaders:
            try:
                layout = self._cluster.layout_now([place[0]])
            except (*NO_ANSWER, AskAgain) as error:
                self._delivery.give_up_if_late(self._monotonic(), str(error))
                return None
            for other, node in layout.leaders.items():
                if node in layout.brokers:
                    self._leaders[other] = layout.brokers[node]
        return self._leaders.get(place)

    def _requests_to(self, address: SocketAddress) -> int:
        return sum(1 for connection, _ in self._under_way if connection.address == address)

    def _send(self, address: SocketAddress, parcels: list[Parcel]) -> bool:
        body = produce_body(
            self._identity.transactional_id,
            self._options.request_timeout_ms,
            [(parcel.place, parcel.batch) for parcel in parcels],
        )
        try:
            connection = self._connection(address)
            connection.require(ApiKey.PRODUCE, VERSION)
            connection.send(ApiKey.PRODUCE, VERSION, body)
        except NO_ANSWER as error:
            self._delivery.lost(parcels, str(error), self._monotonic())
            self._hang_up(address, str(error))
            return False
        self._under_way.append((connection, parcels))
        return True

    def _receive_one(self) -> None:
        connection, parcels = self._under_way[0]
        try:
            results = read_produced(connection.receive())
        except NO_ANSWER as error:
            self._hang_up(connection.address, str(error))
            self._sleep(_PAUSE_S)
            return
        self._under_way.popleft()
        if self._delivery.answered(parcels, results, self._monotonic()):
            for parcel in parcels:
                self._leaders.pop(parcel.place, None)
            self._sleep(_PAUSE_S)

    def _connection(self, address: SocketAddress) -> Connection:
        if address not in self._connections:
            self._connections[address] = self._cluster.new_connection(address)
        return self._connections[address]

    def _hang_up(self, address: SocketAddress, why: str) -> None:
        """All that this broker has not answered goes out again, wherever its leader is then."""
        unanswered = [one for one in self._under_way if one[0].address == address]
        self._under_way = deque(one for one in self._under_way if one[0].address != address)
        if address in self._connections:
            self._connections.pop(address).close()
        for _, parcels in unanswered:
            self._delivery.lost(parcels, why, self._monotonic())
        self._leaders = {
            place: leader for place, leader in self._leaders.items() if leader != address
        }
