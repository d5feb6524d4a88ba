"""A program that a launcher can take for a node: it reads the configuration and answers Metadata.

    python fake_node.py --config FILE

Alive is each sibling, known from the files beside its own, whose clients' port is open. How it
behaves a file says that lies next to its configuration, ``node-N.behaviour``: ``dies`` (last
words, exit code 3), ``deaf`` (takes no connections), ``garbage`` (answers nonsense), ``stubborn``
(SIGTERM is not heeded), ``foreign`` (belongs to another cluster).
"""

from __future__ import annotations

import signal
import socket
import struct
import sys
import time
from pathlib import Path

from tidelog.kernel.ids import NodeId
from tidelog.kernel.settings.properties import parse_properties
from tidelog.wire.protocol.hot_responses.leaders import NodeEndpoint
from tidelog.wire.protocol.hot_responses.metadata import MetadataResponse, encode_metadata

_VERSION = 9


def main(config: Path) -> None:
    behaviour_file = config.with_suffix(".behaviour")
    behaviour = behaviour_file.read_text(encoding="utf-8") if behaviour_file.exists() else ""
    if behaviour == "dies":
        print("it was a good life", flush=True)
        raise SystemExit(3)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: _leave())
    print(f"INFO serving from {config.name}", flush=True)
    print("DEBUG a detail", flush=True)
    if behaviour == "deaf":
        time.sleep(600)
    _serve(config, behaviour)


def _leave() -> None:
    print("INFO clean end", flush=True)
    raise SystemExit(0)


def _serve(config: Path, behaviour: str) -> None:
    host, port = _clients_port(config)
    with socket.create_server((host, port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                frame = _read_frame(connection)
                if frame is not None:
                    correlation_id = struct.unpack_from(">i", frame, 4)[0]
                    connection.sendall(_answer(config, behaviour, correlation_id))


def _read_frame(connection: socket.socket) -> bytes | None:
    prefix = connection.recv(4, socket.MSG_WAITALL)
    if len(prefix) < 4:
        return None  # somebody only looked whether the port is open
    return connection.recv(struct.unpack(">i", prefix)[0], socket.MSG_WAITALL)


def _answer(config: Path, behaviour: str, correlation_id: int) -> bytes:
    if behaviour == "garbage":
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"
    brokers = []
    for sibling in sorted(config.parent.glob("node-*.properties")):
        host, port = _clients_port(sibling)
        number = int(parse_properties(sibling.read_text(encoding="utf-8"))["node.id"])
        if sibling == config or _is_open(host, port):
            brokers.append(NodeEndpoint(NodeId(number), host, port))
    cluster_id = "another" if behaviour == "foreign" else _cluster_id(config)
    response = MetadataResponse(brokers, cluster_id, NodeId(1), topics=())
    (data,) = encode_metadata(_VERSION, correlation_id, response).segments
    assert isinstance(data, bytes)
    return data


def _clients_port(config: Path) -> tuple[str, int]:
    listeners = parse_properties(config.read_text(encoding="utf-8"))["listeners"]
    host, _, port = listeners.split(",")[0].removeprefix("PLAINTEXT://").rpartition(":")
    return host, int(port)


def _cluster_id(config: Path) -> str:
    directory = parse_properties(config.read_text(encoding="utf-8"))["log.dirs"]
    text = (Path(directory) / "meta.properties").read_text(encoding="utf-8")
    return parse_properties(text)["cluster.id"]


def _is_open(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


if __name__ == "__main__":
    main(Path(sys.argv[sys.argv.index("--config") + 1]))
