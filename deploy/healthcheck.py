"""The image's health check: exit code 0 if ``/readyz`` says that the node is ready.

It runs every few seconds on every node, so it imports next to nothing: the address is found by
the rules of the entry point in small (environment, then the mounted file, then the default).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping

DEFAULT = ":9644"
FILE = "/etc/tidelog/server.properties"
TIMEOUT_S = 2.0


def http_listener(environment: Mapping[str, str], file_lines: Iterable[str]) -> str:
    for variable in ("TIDELOG_HTTP_LISTENER", "KAFKA_HTTP_LISTENER"):
        if variable in environment:
            return environment[variable].strip()
    found = DEFAULT
    for line in file_lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == "http.listener":
            found = value.strip()
    return found


def dialled(listener: str) -> tuple[str, int]:
    """Where a node that listens there is reached from inside its own container."""
    host, _, port = listener.rpartition(":")
    host = host.strip("[]")
    local = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
    return local.get(host, host), int(port)


def ask(address: tuple[str, int]) -> tuple[bool, str]:
    """Whether the node is ready, and what it said."""
    request = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n"
    answer = b""
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(request)
        while piece := connection.recv(4096):
            answer += piece
    status, _, body = answer.partition(b"\r\n\r\n")
    return b" 200 " in status.split(b"\r\n")[0], body.decode("utf-8", "replace").strip()


def main() -> int:
    lines: list[str] = []
    if os.path.exists(FILE):
        with open(FILE, encoding="utf-8") as file:
            lines = file.readlines()
    listener = http_listener(os.environ, lines)
    if not listener:
        print("http.listener is off: whether the node is ready cannot be told")
        return 0
    try:
        is_ready, words = ask(dialled(listener))
    except OSError as error:
        is_ready, words = False, f"{listener}: {error}"
    print(words)
    return 0 if is_ready else 1


if __name__ == "__main__":
    sys.exit(main())
