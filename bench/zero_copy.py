"""`make bench-zero_copy`: sending a part of a file, by sendfile and by reading and writing it.

Both go through the listener's connection to a reader in another process, in turns, so that the
ratio is of one moment. A ratio above 1 says that sendfile is the faster one.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import uvloop

from bench.table import Row, report
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.real.disk import OsDisk, OsFile
from tidelog.kernel.real.tcp_connection import TcpConnection

SIZES = (4 << 10, 64 << 10, 1 << 20, 10 << 20)
BYTES_PER_TURN = 400 << 20
TURNS = 5


def drain(port: int) -> None:
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv_into(buffer):
            pass


async def seconds(send: Callable[[int], Awaitable[None]], size: int) -> float:
    """Processor time of this process per turn: the reader's is the same for both."""
    start = time.process_time()
    for _ in range(min(BYTES_PER_TURN // size, 20_000)):
        await send(size)
    return time.process_time() - start


async def compare(connection: TcpConnection, file: OsFile, size: int) -> list[Row]:
    async def by_sendfile(length: int) -> None:
        await connection.send_file(file, 0, length)

    async def by_copying(length: int) -> None:
        await connection.write([file.pread(length, 0)])

    sent: list[float] = []
    copied: list[float] = []
    for _ in range(TURNS):
        sent.append(await seconds(by_sendfile, size))
        copied.append(await seconds(by_copying, size))
    megabytes = min(BYTES_PER_TURN // size, 20_000) * size / 1e6
    name = f"{size >> 10} KiB"
    return [
        Row(f"{name}: sendfile", megabytes / median(sent), "MB per processor second"),
        Row(f"{name}: pread and sendmsg", megabytes / median(copied), "MB per processor second"),
        Row(f"{name}: ratio", median(copied) / median(sent), "×", 1.0),
    ]


async def bench() -> list[Row]:
    server = socket.create_server(("127.0.0.1", 0))
    reader = multiprocessing.get_context("spawn").Process(
        target=drain, args=(server.getsockname()[1],), daemon=True
    )
    reader.start()
    sock, (host, port) = server.accept()
    sock.setblocking(False)
    connection = TcpConnection(sock, SocketAddress(host, port), "bench")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment"
        path.write_bytes(os.urandom(max(SIZES)))
        file = OsDisk().open(str(path), read_only=True)
        rows = [row for size in SIZES for row in await compare(connection, file, size)]
    connection.close()
    reader.join(10)
    return rows


def main() -> int:
    report("zero_copy", uvloop.run(bench()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
