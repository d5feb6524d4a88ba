"""Blocking calls to a node: what comes back, and what is said when nothing sensible does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from kio.schema.describe_cluster.v0.request import DescribeClusterRequest

from tidelog.cli.ask import Connection, parse_bootstrap
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import RequestFrame, frame_response, parse_request
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import response_structs

QUESTION = DescribeClusterRequest(include_cluster_authorized_operations=False)
Serve = Callable[[Callable[[RequestFrame], bytes | None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Listens and answers each frame with what the function makes of it; None hangs up."""
    servers: list[socket.socket] = []

    def start(answer: Callable[[RequestFrame], bytes | None]) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threading.Thread(target=_answer_all, args=(server, answer), daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


def _answer_all(server: socket.socket, answer: Callable[[RequestFrame], bytes | None]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return  # the test is over
        with connection, suppress(ConnectionError):
            while prefix := connection.recv(4, socket.MSG_WAITALL):
                frame = parse_request(
                    connection.recv(struct.unpack(">i", prefix)[0], socket.MSG_WAITALL)
                )
                assert isinstance(frame, RequestFrame)
                answered = answer(frame)
                if answered is None:
                    break
                connection.sendall(answered)


def framed(frame: RequestFrame, body: bytes, correlation_id: int | None = None) -> bytes:
    number = frame.correlation_id if correlation_id is None else correlation_id
    (data,) = frame_response(frame.api, frame.version, number, body).segments
    assert isinstance(data, bytes)
    return data


def greeting(frame: RequestFrame, served: dict[ApiKey, tuple[int, int]]) -> bytes:
    structs = response_structs(ApiKey.API_VERSIONS, 0)
    lines = tuple(
        structs.struct("ApiVersion", api_key=int(key), min_version=least, max_version=most)
        for key, (least, most) in served.items()
    )
    return framed(frame, kio_bytes(structs.response(error_code=ErrorCode.NONE, api_keys=lines)))


def cluster_answer(frame: RequestFrame, correlation_id: int | None = None) -> bytes:
    answer = response_structs(ApiKey.DESCRIBE_CLUSTER, 0).response(
        throttle_time=duration_i32(0),
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id="tide",
        controller_id=1,
        brokers=(),
        cluster_authorized_operations=0,
    )
    return framed(frame, kio_bytes(answer), correlation_id)


def healthy(frame: RequestFrame) -> bytes:
    if frame.api.key == ApiKey.API_VERSIONS:
        return greeting(frame, {ApiKey.DESCRIBE_CLUSTER: (0, 1)})
    return cluster_answer(frame)


def test_questions_are_answered_one_after_the_other(serve: Serve) -> None:
    with Connection(serve(healthy)) as connection:
        assert [connection.ask(QUESTION).cluster_id for _ in range(3)] == ["tide"] * 3


def test_the_next_address_is_tried(serve: Serve) -> None:
    deaf = serve(lambda frame: None)
    good = serve(healthy)
    with Connection(f"127.0.0.1:1,{deaf},{good}") as connection:
        assert str(connection.address) == good


def test_what_a_node_does_not_serve_is_named(serve: Serve) -> None:
    def without(frame: RequestFrame) -> bytes:
        return greeting(frame, {ApiKey.DESCRIBE_CLUSTER: (1, 2)})

    with Connection(serve(without)) as connection:
        assert connection.serves(ApiKey.DESCRIBE_CLUSTER, 1)
        assert not connection.serves(ApiKey.DESCRIBE_QUORUM, 0)
        with pytest.raises(CommandFailed, match="does not serve DescribeCluster v0"):
            connection.ask(QUESTION)


def test_nobody_there_is_said_with_every_reason(serve: Serve) -> None:
    deaf = serve(lambda frame: None)
    with pytest.raises(CommandFailed, match=f"127.0.0.1:1: .*refused; {deaf}: .*hung up.*log up"):
        Connection(f"127.0.0.1:1,{deaf}")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda frame: None, "hung up"),
        (lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n", "none of the Kafka protocol"),
        (lambda frame: struct.pack(">i", -1), "none of the Kafka protocol"),
        (lambda frame: struct.pack(">ii", 4, frame.correlation_id), "gave no answer"),
        (lambda frame: cluster_answer(frame, correlation_id=77), "answer to question 77"),
    ],
)
def test_nonsense_is_an_error_and_not_a_crash(
    serve: Serve, answer: Callable[[RequestFrame], bytes | None], said: str
) -> None:
    def misbehave(frame: RequestFrame) -> bytes | None:
        return healthy(frame) if frame.api.key == ApiKey.API_VERSIONS else answer(frame)

    with (
        Connection(serve(misbehave), timeout_s=5) as connection,
        pytest.raises(CommandFailed, match=said),
    ):
        connection.ask(QUESTION)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [SocketAddress("a", 1)]),
        (" a:1 , [::1]:2,", [SocketAddress("a", 1), SocketAddress("::1", 2)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[SocketAddress]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text", ["", ",", "a", "a:", ":1", "a:0", "a:70000", "a:1,b", "http://a:1"]
)
def test_bootstrap_addresses_that_are_none(text: str) -> None:
    with pytest.raises(WrongUse, match="--bootstrap-server"):
        parse_bootstrap(text)
