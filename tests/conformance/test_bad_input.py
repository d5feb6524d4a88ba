"""A node among clients that send nonsense, do not read, do not speak or send bombs.

Whatever they do, another client's requests are answered, memory stays bounded, and nothing that
nobody foresaw is in the log.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import differential_errors
import pytest
from differential import Ids
from fuzz_run import Worker, fuzz, produced_code, resident_bytes
from live_target import Target
from malformed import produce_request
from node_log import NodeLog
from raw_client import RawConnection
from waiting import until

from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.batch import Codec, assemble, read_header
from tidelog.wire.codecs import compress
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request
from tidelog.wire.records import Record, build_batch

pytestmark = pytest.mark.xdist_group("cluster")

MIB = 1 << 20
FUZZ_SEED, FUZZ_COUNT = 1, 10_000
IDLE_CONNECTIONS = 10_000
SPARE_DESCRIPTORS = 500


class Node(NamedTuple):
    address: SocketAddress
    pid: int
    ids: Ids
    log: NodeLog


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    log = NodeLog()
    with LocalCluster(1, on_line=log.add) as running:
        [one] = running.nodes.values()
        assert one.process is not None
        target = Target(running.bootstrap)
        target.create_topic("work")
        target.create_topic("compacted", configs={"cleanup.policy": "compact,delete"})
        ids = differential_errors.set_up(target)
        yield Node(one.kafka, one.process.pid, ids, log)
        assert one.is_running
        running.kill_all()


@pytest.fixture(autouse=True)
def _nothing_unforeseen(node: Node) -> Iterator[None]:
    """Another client works during every test here, and the log stays clean."""
    with Worker(node.address, "work") as worker:
        yield
        served = worker.requests + 10
        until(lambda: worker.failure or worker.requests >= served, "ten answers")
    assert worker.failure is None
    assert not (odd := node.log.unforeseen()), "\n".join(odd)


def test_malformed_frames_harm_nobody(node: Node) -> None:
    before = resident_bytes(node.pid)
    fuzzed = asyncio.run(fuzz(node.address, FUZZ_SEED, FUZZ_COUNT, "compacted", node.ids))
    assert sum(fuzzed.outcomes.values()) == FUZZ_COUNT
    assert fuzzed.outcomes["closed"] > FUZZ_COUNT // 4
    assert fuzzed.outcomes["answered"] > FUZZ_COUNT // 8
    assert resident_bytes(node.pid) - before < 100 * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_zip_bomb_is_refused_and_not_unpacked(node: Node, codec: Codec) -> None:
    """Much more than would ever be unpacked, in a batch that the topic must look into.

    Snappy cannot shrink zeros below a twentieth, so its bomb is over the size of a message.
    """
    packed = compress(codec, bytes(400 * MIB) if codec is not Codec.SNAPPY else bytes(20 * MIB))
    small = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")], codec=codec)
    bomb = assemble(read_header(small), packed)
    before = resident_bytes(node.pid)
    with RawConnection(node.address) as connection:
        answer = connection.exchange(produce_request("compacted", bomb))
    assert isinstance(answer, bytes)
    assert produced_code(answer) in (2, 10, 87)
    assert resident_bytes(node.pid) - before < 150 * MIB


TURNS = 500
FRAMES_AT_MOST = 20_000
"""160 MB of what the test below sends: more than the system's own buffers hold (up to 36 MB)."""


def test_clients_that_never_read_are_not_read_from(node: Node) -> None:
    """Each asks for more than any buffer holds; the node stops listening instead of piling up."""
    before = resident_bytes(node.pid)
    ask = frame_request(APIS[ApiKey.METADATA], 1, 1, "deaf" * 2000, struct.pack(">i", -1))
    deaf = [RawConnection(node.address) for _ in range(5)]
    try:
        sent = [_send_until_blocked(connection, ask) for connection in deaf]
        assert max(sent) < FRAMES_AT_MOST, "the node never stopped reading"
        with RawConnection(node.address) as other:  # the node has had turns enough to pile up in
            for _ in range(TURNS):
                other.ask(ApiKey.API_VERSIONS, 0)
        assert resident_bytes(node.pid) - before < 50 * MIB
    finally:
        for connection in deaf:
            connection.close()


def _send_until_blocked(connection: RawConnection, frame: bytes) -> int:
    """How many requests the other side took before it stopped."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.socket.settimeout(0.2)
    for sent in range(FRAMES_AT_MOST):
        try:
            connection.socket.sendall(frame)
        except TimeoutError:
            return sent
    return FRAMES_AT_MOST


def test_ten_thousand_idle_connections(node: Node) -> None:
    """As many as descriptors allow, on both sides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(IDLE_CONNECTIONS, hard - SPARE_DESCRIPTORS)
    if count < IDLE_CONNECTIONS:
        print(f"only {count} connections: the limit of open files is {hard}")
    before = resident_bytes(node.pid)
    idle: list[socket.socket] = []
    try:
        for _ in range(count):
            idle.append(socket.create_connection((node.address.host, node.address.port), 10))
        with RawConnection(node.address) as late:
            assert late.ask(ApiKey.API_VERSIONS, 0).api_keys
        per_connection = (resident_bytes(node.pid) - before) / count
        assert per_connection < 32 * 1024
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
