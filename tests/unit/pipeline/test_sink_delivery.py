"""Batches on their way: what goes out again, in which order, and when it is given up."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.cluster import Layout
from tidelog.pipeline.delivery import MAX_IN_FLIGHT, Delivery, Parcel
from tidelog.pipeline.errors import BrokerRefused, BrokerUnavailable, Fenced
from tidelog.pipeline.produce_message import VERSION, Produced, produce_body, read_produced
from tidelog.pipeline.sink_options import parse_sink_options
from tidelog.wire.batch import MAX_SEQUENCE, check_batch
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.hot_requests.produce import decode_produce_request
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32, kio_error
from tidelog.wire.protocol.responses import response_structs
from tidelog.wire.records import iterate

PLACE = ("t", 0)
OK = Produced(ErrorCode.NONE, None)


def refused(code: ErrorCode) -> dict[tuple[str, int], Produced]:
    return {PLACE: Produced(code, None)}


def filled(count: int) -> Delivery:
    """Behind a first batch, which is stored."""
    delivery = Delivery(1000)
    delivery.add(PLACE, b"first", 0.0)
    delivery.answered(delivery.take([PLACE]), {PLACE: OK}, 0.0)
    for number in range(count):
        delivery.add(PLACE, b"%d" % number, 0.0)
    return delivery


def taken(delivery: Delivery, count: int) -> list[Parcel]:
    return [parcel for _ in range(count) for parcel in delivery.take([PLACE])]


def test_no_more_are_under_way_than_a_broker_remembers() -> None:
    delivery = filled(7)
    assert len(taken(delivery, 7)) == MAX_IN_FLIGHT == 5
    assert delivery.waiting == 2


def test_the_first_batch_of_a_place_goes_alone_until_it_is_stored() -> None:
    """A broker takes any number of a producer that it does not know, also that of the second."""
    delivery = Delivery(1000)
    for place in (PLACE, ("t", 1)):
        for number in range(3):
            delivery.add(place, b"%d" % number, 0.0)
    [first, other] = delivery.take([PLACE, ("t", 1)])
    assert (first.batch, other.batch) == (b"0", b"0")
    assert taken(delivery, 3) == []
    delivery.answered([first], refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.1)
    [again] = taken(delivery, 3)
    assert again == first
    delivery.answered([again], {PLACE: OK}, 0.2)
    assert [parcel.batch for parcel in taken(delivery, 3)] == [b"1", b"2"]
    assert delivery.take([("t", 1)]) == [], "that place's first is still under way"


def test_what_is_refused_goes_out_again_in_its_order_and_only_then() -> None:
    delivery = filled(4)
    first, second, third = taken(delivery, 3)
    assert delivery.answered([first], refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.1)
    assert taken(delivery, 1) == [], "others are still under way"
    delivery.answered([second], refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.2)
    delivery.lost([third], "hung up", 0.3)
    for number in range(3):
        [again] = taken(delivery, 4)
        assert again.batch == b"%d" % number, "alone, until all that was refused is stored"
        delivery.answered([again], {PLACE: OK}, 0.4)
    delivery.add(PLACE, b"4", 0.4)
    assert [parcel.batch for parcel in taken(delivery, 4)] == [b"3", b"4"]


def test_a_batch_that_was_stored_before_is_stored() -> None:
    delivery = filled(1)
    [parcel] = taken(delivery, 1)
    duplicate = refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert not delivery.answered([parcel], duplicate, 0.1)
    assert delivery.waiting == 0


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, BrokerRefused, "OUT_OF_ORDER"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Fenced, "another task or driver took over"),
        (ErrorCode.PRODUCER_FENCED, Fenced, "t-0"),
        (ErrorCode.MESSAGE_TOO_LARGE, BrokerRefused, "above the topic's max.message.bytes"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BrokerRefused, "TOPIC_AUTHORIZATION_FAILED"),
        (ErrorCode.INVALID_TXN_STATE, BrokerRefused, "INVALID_TXN_STATE"),
    ],
)
def test_what_trying_again_does_not_mend(
    code: ErrorCode, error: type[Exception], message: str
) -> None:
    delivery = filled(1)
    [parcel] = taken(delivery, 1)
    with pytest.raises(error, match=message):
        delivery.answered([parcel], refused(code), 0.1)


def test_it_is_given_up_when_the_time_is_over() -> None:
    delivery = filled(1)
    [parcel] = taken(delivery, 1)
    delivery.lost([parcel], "hung up", 0.9)
    delivery.give_up_if_late(0.9, "nobody leads it")
    with pytest.raises(BrokerUnavailable, match=r"within 1000 ms .*nobody leads it"):
        delivery.give_up_if_late(1.0, "nobody leads it")
    [parcel] = taken(delivery, 1)
    with pytest.raises(BrokerUnavailable, match=r"not stored within 1000 ms"):
        delivery.answered([parcel], refused(ErrorCode.NOT_ENOUGH_REPLICAS), 1.0)


def test_sequences_begin_anew_behind_the_last() -> None:
    delivery = Delivery(1000)
    assert delivery.next_sequence(PLACE, MAX_SEQUENCE) == 0
    assert delivery.next_sequence(PLACE, 3) == MAX_SEQUENCE
    assert delivery.next_sequence(PLACE, 1) == 2
    assert delivery.next_sequence(("t", 1), 1) == 0


def test_the_request_is_one_that_brokers_read() -> None:
    body = produce_body("id", 5000, [(("a", 0), b"x"), (("b", 2), b"yy"), (("a", 1), b"z")])
    request = decode_produce_request(VERSION, memoryview(body))
    assert (request.transactional_id, request.acks, request.timeout_ms) == ("id", -1, 5000)
    found = {
        (topic.name, one.partition): bytes(one.records or b"")
        for topic in request.topics
        for one in topic.partitions
    }
    assert found == {("a", 0): b"x", ("a", 1): b"z", ("b", 2): b"yy"}


# --- a whole producer, among brokers that fail at random ---------------------------------


@dataclass
class Brokers:
    """Two nodes and three partitions; stands for the cluster and for its connections."""

    rng: random.Random
    faults: float
    logs: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: [], 2: []})
    ends: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 2, 2: 1})
    recent: dict[int, deque[int]] = field(default_factory=dict)
    joined: set[Any] = field(default_factory=set)

    def partition_count(self, topic: str) -> int:
        return 3

    def layout_now(self, topics: Any) -> Layout:
        if self.rng.random() < self.faults:
            raise ConnectionError("no metadata just now")
        addresses = {node: SocketAddress("b", node) for node in (1, 2)}
        leaders = {("t", partition): leader for partition, leader in self.leaders.items()}
        return Layout(addresses, leaders, frozenset(), frozenset())

    def new_connection(self, address: SocketAddress) -> Any:
        if self.rng.random() < self.faults:
            raise ConnectionRefusedError("refused")
        return BrokerConnection(self, address)

    def join(self, places: Any) -> None:
        self.joined |= set(places)

    def store(self, node: int, partition: int, batch: bytes) -> ErrorCode:
        assert ("t", partition) in self.joined
        if self.rng.random() < self.faults / 2:
            self.leaders[partition] = 3 - self.leaders[partition]
        if self.leaders[partition] != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.rng.random() < self.faults:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        header = check_batch(batch)
        recent = self.recent.setdefault(partition, deque(maxlen=5))
        if header.base_sequence in recent:
            return ErrorCode.NONE
        # Of a producer that wrote nothing yet, any number is taken, as Kafka does.
        if header.base_sequence != self.ends.get(partition, header.base_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        recent.append(header.base_sequence)
        self.ends[partition] = header.base_sequence + header.records_count
        self.logs[partition].append(batch)
        after = self.rng.random() < self.faults
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if after else ErrorCode.NONE


class BrokerConnection:
    def __init__(self, brokers: Brokers, address: SocketAddress) -> None:
        self.brokers, self.address = brokers, address
        self.answers: deque[bytes] = deque()

    def require(self, key: ApiKey, version: int) -> None: ...
    def close(self) -> None: ...

    def send(self, key: ApiKey, version: int, body: bytes) -> None:
        rng, faults = self.brokers.rng, self.brokers.faults
        if rng.random() < faults:
            raise BrokenPipeError("before")
        structs = response_structs(key, version)
        request = decode_produce_request(version, memoryview(body))
        topics = []
        node = self.address.port
        for topic in request.topics:
            partitions = tuple(
                structs.struct(
                    "PartitionProduceResponse",
                    index=one.partition,
                    error_code=kio_error(
                        self.brokers.store(node, one.partition, bytes(one.records or b""))
                    ),
                    base_offset=0,
                    record_errors=(),
                )
                for one in topic.partitions
            )
            responses: Any = {"name": topic.name, "partition_responses": partitions}
            topics.append(structs.struct("TopicProduceResponse", **responses))
        answer = structs.response(responses=tuple(topics), throttle_time=duration_i32(0))
        if rng.random() < faults:
            raise BrokenPipeError("after")
        assert len(self.answers) < MAX_IN_FLIGHT
        self.answers.append(kio_bytes(answer))

    def receive(self) -> memoryview:
        if self.brokers.rng.random() < self.brokers.faults:
            raise ConnectionResetError("hung up")
        return memoryview(self.answers.popleft())


@pytest.mark.parametrize("seed", range(40))
def test_every_row_is_stored_once_and_in_order_whatever_fails(seed: int) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-spark installs it")
    from tidelog.pipeline.producing import Identity, Producer

    rng = random.Random(seed)
    brokers = Brokers(rng, faults=0.0 if seed == 0 else 0.1)
    given = {
        "kafka.bootstrap.servers": "b:1", "topic": "t", "kafka.batch.size": "300",
        "kafka.compression.type": rng.choice(("none", "lz4")),
    }  # fmt: skip
    options = parse_sink_options(given, "batch")
    passed = [0.0]
    cluster: Any = brokers
    producer = Producer(
        options, cluster, Identity(7, 0, "id", brokers.join), 0,
        monotonic=lambda: passed[0],
        sleep=lambda seconds: passed.__setitem__(0, passed[0] + seconds),
        now_ms=lambda: 0,
    )  # fmt: skip
    frames = []
    for start in range(0, 400, 50):
        values = [b"%d" % number for number in range(start, start + 50)]
        partitions = [number % 3 for number in range(start, start + 50)]
        columns = {"value": pa.array(values, pa.binary()), "partition": pa.array(partitions)}
        frames.append(pa.record_batch(columns))
    producer.write(iter(frames))
    assert producer.rows == 400
    for partition, log in brokers.logs.items():
        stored = [record.value for batch in log for record in iterate(batch)]
        assert stored == [b"%d" % number for number in range(400) if number % 3 == partition]


def test_an_answer_that_is_none_is_told() -> None:
    from tidelog.wire.protocol.errors import MalformedRequest

    with pytest.raises(MalformedRequest):
        read_produced(memoryview(b"nonsense"))
