"""What the machine itself can do: the bounds that no log on it can pass.

Each figure is what a record pays at least once: a copy in memory, a checksum, a way through the
loopback device, a system call, a write and a sync of the disk. The last is what it costs a Python
program to take up an event at all.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import crc32c
import uvloop

from bench.peers.experiments import percentile
from bench.table import Row

MIB: Final = 1 << 20
_SECONDS: Final = 1.0


def measure_limits() -> Iterator[Row]:
    yield Row("memory copy, blocks of 64 MiB", _copy_gb(64 * MIB), "GB/s")
    yield Row("memory copy, blocks of 1 MiB", _copy_gb(MIB), "GB/s")
    yield Row("CRC-32C", _checksum_gb(), "GB/s")
    yield Row("loopback TCP, one connection, 1 MiB at a time", _loopback_gb(), "GB/s")
    yield Row("system call (1 byte to a pipe and back)", _pipe_us(), "µs")
    yield Row("task switch of uvloop", _task_switch_us(), "µs")
    with tempfile.TemporaryDirectory() as folder:
        yield Row("disk, 256 MiB and one sync", _disk_mb(Path(folder), 256, 256), "MB/s")
        yield Row("disk, 4 GiB, a sync every 16 MiB", _disk_mb(Path(folder), 4096, 16), "MB/s")
        for name, size in (("4 KiB", 4 << 10), ("1 MiB", MIB)):
            taken = _sync_ms(Path(folder), size)
            yield Row(f"append {name} and fdatasync, p50", percentile(taken, 0.5), "ms")
            yield Row(f"append {name} and fdatasync, p99", percentile(taken, 0.99), "ms")


def _rate(step: Callable[[], object]) -> float:
    """Calls per second."""
    count, start = 0, time.perf_counter()
    while (took := time.perf_counter() - start) < _SECONDS:
        step()
        count += 1
    return count / took


def _copy_gb(size: int) -> float:
    source, target = memoryview(bytes(size)), memoryview(bytearray(size))

    def copy() -> None:
        target[:] = source

    return _rate(copy) * size / 1e9


def _checksum_gb() -> float:
    data = bytes(MIB)
    return _rate(lambda: crc32c.crc32c(data)) * MIB / 1e9


def _pipe_us() -> float:
    reader, writer = os.pipe()
    try:
        rate = _rate(lambda: (os.write(writer, b"x"), os.read(reader, 1)))
    finally:
        os.close(reader)
        os.close(writer)
    return 1e6 / rate / 2


def _loopback_gb() -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    data, buffer, received = bytes(MIB), bytearray(MIB), 0

    def send() -> None:
        end = time.perf_counter() + _SECONDS
        with sender:
            while time.perf_counter() < end:
                sender.sendall(data)

    thread = threading.Thread(target=send)
    start = time.perf_counter()
    thread.start()
    with receiver:
        while count := receiver.recv_into(buffer):
            received += count
    took = time.perf_counter() - start
    thread.join()
    return received / took / 1e9


def _task_switch_us() -> float:
    count = 200_000

    async def switch() -> float:
        start = time.perf_counter()
        for _ in range(count):
            await asyncio.sleep(0)
        return time.perf_counter() - start

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(switch()) / count * 1e6


def _disk_mb(folder: Path, total: int, between_syncs: int) -> float:
    """A burst may fit into what the device remembers; gigabytes do not."""
    data = bytes(os.urandom(MIB))
    with (folder / f"sequential-{total}").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for number in range(1, total + 1):
            file.write(data)
            if number % between_syncs == 0:
                os.fdatasync(file.fileno())
        return total * MIB / 1e6 / (time.perf_counter() - start)


def _sync_ms(folder: Path, size: int) -> list[float]:
    data, taken = bytes(os.urandom(size)), list[float]()
    end = time.perf_counter() + 2 * _SECONDS
    with (folder / f"synced-{size}").open("wb", buffering=0) as file:
        while (start := time.perf_counter()) < end:
            file.write(data)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - start) * 1e3)
    return taken
