"""A node from Kafka's own configuration file, and one from the environment alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from client_kits import Confluent, Sent
from raw_client import CLOSED, SILENT, RawConnection
from stock_properties import STOCK_SERVER_PROPERTIES
from waiting import until

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.storage.format import format_directories
from tidelog.testing.ports import Ports
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request

pytestmark = pytest.mark.xdist_group("cluster")

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SERVER = (sys.executable, "-m", "tidelog.broker")
CLI = (str(Path(sys.executable).parent / "tidelog"),)


@contextmanager
def served(command: Sequence[str], address: SocketAddress, **variables: str) -> Iterator[str]:
    """A node's process, once it answers; its bootstrap address."""
    node = subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, env=os.environ | variables
    )
    try:
        wait_until_serving(address, node)
        yield str(address)
    finally:
        node.terminate()
        printed, _ = node.communicate(timeout=30)
    assert node.returncode == 0
    assert b"Traceback" not in printed, printed.decode()


def wait_until_serving(address: SocketAddress, node: subprocess.Popen[bytes]) -> None:
    def is_serving() -> bool:
        assert node.poll() is None, "the node ended"
        try:
            with RawConnection(address, 1.0) as connection:
                connection.ask(ApiKey.API_VERSIONS, 0)
        except OSError:
            return False
        return True

    until(is_serving, "the node serves", within_s=30)


def use(bootstrap: str) -> None:
    kit = Confluent(bootstrap)
    assert kit.produce("first", [Sent(b"k", b"v")]) == [0]
    assert kit.consume("first", {0: 1})[0][0].value == b"v"


def test_kafkas_stock_file_starts_a_node(tmp_path: Path) -> None:
    """Only ports and directories are changed; the directory is formatted first, as for Kafka."""
    ports = Ports()
    clients, controllers = ports.draw("127.0.0.1"), ports.draw("127.0.0.1")
    text = STOCK_SERVER_PROPERTIES.replace(":9092", f":{clients.port}").replace(
        ":9093", f":{controllers.port}"
    )
    config = tmp_path / "server.properties"
    config.write_text(text.replace("/tmp/kraft-combined-logs", str(tmp_path / "logs")))
    formatted = subprocess.run(
        [*CLI, "storage", "format", "--cluster-id", CLUSTER_ID, "--config", str(config)],
        capture_output=True,
        timeout=60,
    )
    assert formatted.returncode == 0, formatted.stderr.decode()
    with served([*SERVER, "--config", str(config)], clients) as bootstrap:
        use(bootstrap)


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    ports = Ports()
    clients, controllers = ports.draw("127.0.0.1"), ports.draw("127.0.0.1")
    format_directories(
        OsDisk(), [str(tmp_path)], SystemRandom(), cluster_id=CLUSTER_ID, node_id=NodeId(1)
    )
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://{clients},CONTROLLER://{controllers}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{clients}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@{controllers}",
        "KAFKA_LOG_DIRS": str(tmp_path),
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_CONNECTIONS_MAX_IDLE_MS": "600000",
        "TIDELOG_CONNECTIONS_MAX_IDLE_MS": "1000",
    }


def test_the_environment_alone_starts_a_node(environment: Mapping[str, str]) -> None:
    """And one of its settings is seen at work: who speaks too slowly is let go."""
    listener = environment["KAFKA_ADVERTISED_LISTENERS"]
    address = SocketAddress.parse(listener.removeprefix("PLAINTEXT://"))
    with served(SERVER, address, **environment) as bootstrap:
        use(bootstrap)
        with RawConnection(address) as slow:
            assert seconds_until_let_go(slow) < 12  # all of it takes 20


def seconds_until_let_go(connection: RawConnection) -> float:
    """Send a request one byte at a time (a slow-loris)."""
    frame = frame_request(APIS[ApiKey.API_VERSIONS], 0, 1, "slow" * 100, b"")
    started = time.monotonic()
    for byte in frame:
        if not connection.send(bytes([byte])):
            break
        if (answer := connection.receive(timeout_s=0.05)) != SILENT:
            assert answer == CLOSED
            break
    return time.monotonic() - started
