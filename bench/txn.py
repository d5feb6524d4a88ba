"""`make bench-txn`: transactions per second, how long commits take, what read_committed costs.

Three nodes on this machine, replication factor 3. Transactions are those of librdkafka: one record
to each partition, then the commit; its latency is that of the call, with everything before it
acknowledged. Reading is measured over a plain connection, so that the client costs little: the
same topic, a hundredth of whose transactions were aborted, is fetched from its beginning to its
end under either isolation level in turn.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from statistics import median, quantiles
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.table import Row, report
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import SIZE_BYTES, parse_response_header, read_frame_size
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.requests import encode_request
from tidelog.wire.protocol.responses import decode_response

PARTITIONS: Final = (1, 10, 100)
SECONDS: Final = 4.0
AT_ONCE: Final = 8
CALL_S: Final = 60.0

READ_TOPIC: Final = "read"
WRITERS: Final = 10
TRANSACTIONS: Final = 100
"""Of each writer; one of them is aborted."""
RECORDS: Final = 50
RECORD_BYTES: Final = 500
FETCH_BYTES: Final = 1 << 20
ROUNDS: Final = 30
GOAL: Final = 1.2
_FETCH_VERSION: Final = 11
_UNCOMMITTED, _COMMITTED = 0, 1


# --- writing ---------------------------------------------------------------------------


def create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(CALL_S)


def begun_producer(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(CALL_S)
    return producer


def commit_for(bootstrap: str, topic: str, partitions: int, name: str) -> list[float]:
    """How long each commit took, in seconds, of transactions made for some seconds."""
    producer = begun_producer(bootstrap, name)
    took: list[float] = []
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, b"x" * 100, partition=partition)
        producer.flush(CALL_S)
        began = time.perf_counter()
        producer.commit_transaction(CALL_S)
        took.append(time.perf_counter() - began)
    return took


def writing(bootstrap: str, partitions: int) -> list[Row]:
    topic = f"written-{partitions}"
    create(bootstrap, topic, partitions)
    commit_s = commit_for(bootstrap, topic, partitions, f"one of {topic}")[1:]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = [f"{number} of {topic}" for number in range(AT_ONCE)]
        done = list(pool.map(lambda name: commit_for(bootstrap, topic, partitions, name), names))
    cuts_ms = [cut * 1000 for cut in quantiles(commit_s, n=100, method="inclusive")]
    what = f"{partitions} partition{'s' if partitions > 1 else ''}"
    return [
        Row(f"{what}: one producer", len(commit_s) / SECONDS, "transactions/s"),
        Row(f"{what}: commit, p50", cuts_ms[49], "ms"),
        Row(f"{what}: commit, p99", cuts_ms[98], "ms"),
        Row(f"{what}: {AT_ONCE} producers", sum(map(len, done)) / SECONDS, "transactions/s"),
    ]


# --- reading ---------------------------------------------------------------------------


def write_one_in_a_hundred_aborted(bootstrap: str) -> None:
    """Several producers at once, so that transactions overlap."""
    create(bootstrap, READ_TOPIC, 1)

    def write(writer: int) -> None:
        producer = begun_producer(bootstrap, f"writer {writer}")
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(READ_TOPIC, b"x" * RECORD_BYTES, partition=0)
            if number == TRANSACTIONS - 1 - 10 * writer:
                producer.abort_transaction(CALL_S)
            else:
                producer.commit_transaction(CALL_S)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))


@dataclass(slots=True)
class Link:
    """A connection that waits for each answer."""

    socket: socket.socket

    def exchange(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self._read(read_frame_size(self._read(SIZE_BYTES)))

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.socket.recv_into(view)
            if got == 0:
                raise ConnectionError("the node hung up")
            view = view[got:]
        return bytes(data)


def fetch_request(offset: int, isolation: int) -> bytes:
    s: Any = import_module(APIS[ApiKey.FETCH].load_request_type(_FETCH_VERSION).__module__)
    partition = s.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES,
    )
    return encode_request(
        1,
        "bench",
        s.FetchRequest(
            replica_id=-1,
            max_wait=duration_i32(0),
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=(s.FetchTopic(topic=READ_TOPIC, partitions=(partition,)),),
            forgotten_topics_data=(),
            rack_id="",
        ),
    )


def offsets_to_fetch(link: Link) -> list[int]:
    """Where the fetches of a pass begin."""
    api = APIS[ApiKey.FETCH]
    offsets: list[int] = []
    offset = 0
    while True:
        frame = link.exchange(fetch_request(offset, _COMMITTED))
        _, body = parse_response_header(api, _FETCH_VERSION, frame)
        answer: Any = decode_response(api.key, _FETCH_VERSION, body)
        row = answer.responses[0].partitions[0]
        if not row.records:
            return offsets
        offsets.append(offset)
        offset = _behind(row.records)


def _behind(records: bytes) -> int:
    """The offset behind the last complete batch (KIP-98: base offset, length, …, last delta)."""
    at, behind = 0, 0
    while at + 61 <= len(records):
        size = 12 + int.from_bytes(records[at + 8 : at + 12])
        if at + size > len(records):
            break
        base = int.from_bytes(records[at : at + 8])
        behind = base + int.from_bytes(records[at + 23 : at + 27]) + 1
        at += size
    return behind


def leader_of(bootstrap: str) -> SocketAddress:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.list_topics(READ_TOPIC, timeout=CALL_S)
    leader: Any = found.brokers[found.topics[READ_TOPIC].partitions[0].leader]
    return SocketAddress(leader.host, leader.port)


def pass_s(link: Link, requests: Sequence[bytes]) -> tuple[float, int]:
    began, size = time.perf_counter(), 0
    for request in requests:
        size += len(link.exchange(request))
    return time.perf_counter() - began, size


def reading(bootstrap: str) -> list[Row]:
    write_one_in_a_hundred_aborted(bootstrap)
    address = leader_of(bootstrap)
    with socket.create_connection((address.host, address.port), CALL_S) as connection:
        link = Link(connection)
        offsets = offsets_to_fetch(link)
        passes = {
            level: [fetch_request(offset, level) for offset in offsets]
            for level in (_UNCOMMITTED, _COMMITTED)
        }
        took: dict[int, list[float]] = {_UNCOMMITTED: [], _COMMITTED: []}
        size = 0
        for number in range(2 * ROUNDS):  # which of the two comes first alternates, too
            for level in sorted(passes, reverse=bool(number % 2)):
                seconds, size = pass_s(link, passes[level])
                took[level].append(seconds)
    uncommitted, committed = median(took[_UNCOMMITTED]), median(took[_COMMITTED])
    return [
        Row("read_uncommitted", size / uncommitted / 1e6, "MB/s"),
        Row("read_committed, 1 % aborted", size / committed / 1e6, "MB/s"),
        Row("cost of read_committed", committed / uncommitted, "×", GOAL, "lower"),
    ]


def main() -> int:
    rows: list[Row] = []
    with LocalCluster(3) as cluster:
        for partitions in PARTITIONS:
            rows += writing(cluster.bootstrap, partitions)
        rows += reading(cluster.bootstrap)
        cluster.kill_all()
    report("txn", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
