"""Where a node's time goes while it is written to and read from, seen by py-spy.

py-spy looks at the innermost Python function again and again; what C code and the kernel do for
that function counts as its time. Only threads that run are counted: one that waits for a sync of
the disk is not. Functions are put together by what they are for, or by the room they live in.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which
from typing import Final, TypeVar

from bench.peers import machine
from bench.peers.apart import YIELDING, apart
from bench.peers.kafka_speakers import Tidelog
from bench.peers.peer import PARTITIONS, Absence, Client, Durability, PeerFailed
from bench.table import Row

Result = TypeVar("Result")

_FRAME: Final = re.compile(r"^(?P<function>.+?) \((?P<file>[^()]*?)(?::\d+)?\)$")
_ROOM: Final = re.compile(r"tidelog/(?P<room>[a-z0-9_]+)/")
_GROUPS: Final = {
    "runners.Runner.run": "event loop (uvloop: sockets, timers, call-backs in C)",
    "kernel/real/peer": "gRPC",
    "kernel/real/http2": "gRPC",
    "kernel/http2": "gRPC",
    "/hpack/": "gRPC",
    "kernel/real/disk": "files",
    "kernel/real/tcp_connection": "client connections",
    "concurrent/futures": "thread pool",
    "/asyncio/": "asyncio",
}
"""Parts of a path, or a function under which C code hides; all else goes by its room."""
_RATE: Final = 200
_TOP: Final = 12


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares of the samples, largest first, and how busy the processes were."""

    what: str
    rooms: Mapping[str, float]
    functions: Mapping[str, float]
    node_cores: float
    client_cores: float

    def rows(self) -> list[Row]:
        rooms = [Row(f"{self.what}: {n}", s * 100, "% of samples") for n, s in self.rooms.items()]
        functions = [
            Row(f"{self.what}: in {name}", share * 100, "% of samples")
            for name, share in self.functions.items()
        ]
        cores = Row(f"{self.what}: a node's processor", self.node_cores, "cores")
        client = Row(f"{self.what}: the client's processor", self.client_cores, "cores")
        return [cores, client, *rooms, *functions]


def find_py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return os.environ.get("PY_SPY") or (str(beside) if beside.exists() else which("py-spy"))


def absence() -> Absence | None:
    if find_py_spy() is None:
        return Absence("py-spy is not installed", "make setup-peers, or set PY_SPY to its path")
    return None


def place_of(frame: str) -> tuple[str, str]:
    """The group of a frame, and its file and function."""
    found = _FRAME.match(frame)
    if found is None:
        return "other", frame
    file, function = found["file"], found["function"]
    name = f"{Path(file).stem}.{function}"
    for beginning, group in _GROUPS.items():
        if beginning in file or name == beginning:
            return group, name
    room = _ROOM.search(file)
    return ("other" if room is None else room["room"]), name


def fold(raw: str, what: str, node_cores: float, client_cores: float) -> Profile:
    """From py-spy's raw format: a stack with ``;`` between frames, and how often it was seen."""
    rooms: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        room, function = place_of(stack.rsplit(";", 1)[-1])
        rooms[room] += int(count)
        functions[function] += int(count)
    total = max(1, rooms.total())

    def shares(counts: Counter[str], most: int | None) -> dict[str, float]:
        return {name: count / total for name, count in counts.most_common(most)}

    return Profile(what, shares(rooms, None), shares(functions, _TOP), node_cores, client_cores)


def measure_profiles(seconds: float) -> Iterator[Profile]:
    for durability in Durability:
        peer = Tidelog()
        peer.prepare(durability)
        try:
            peer.start()
            for name, size in (("100 B", 100), ("10 KB", 10_000)):
                yield from _profile_size(peer, f"{name}, {durability.value}", size, seconds)
        finally:
            peer.stop()


def _profile_size(peer: Tidelog, of: str, size: int, seconds: float) -> Iterator[Profile]:
    topic = f"profile-{size}"
    peer.client.create(topic, PARTITIONS)
    produce = partial(peer.client.produce, topic, size, seconds)
    profile, produced = _watch(peer, f"produce {of}", produce, YIELDING)
    yield profile
    consume = partial(_read_again, peer.client, topic, produced.records)
    yield _watch(peer, f"consume {of}", consume)[0]
    peer.client.delete(topic)


def _read_again(client: Client, topic: str, records: int) -> None:
    """Often enough for a profile."""
    for _ in range(3):
        client.consume(topic, PARTITIONS, records)


def _watch(
    peer: Tidelog, what: str, load: Callable[[], Result], niceness: int = 0
) -> tuple[Profile, Result]:
    """Of one node, which leads one of three partitions and follows two."""
    py_spy = find_py_spy()
    if py_spy is None:
        raise PeerFailed("py-spy is not installed")
    pid = peer.pids()[0]
    with tempfile.NamedTemporaryFile(mode="r", suffix=".txt") as raw:
        spy = subprocess.Popen(
            [py_spy, "record", "-p", str(pid), "-d", "600", "-r", str(_RATE), "-f", "raw",
             "--full-filenames", "--nonblocking", "-o", raw.name],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        begun, node = time.monotonic(), machine.processor_seconds([pid])
        done = apart(load, niceness)
        took = time.monotonic() - begun
        node_cores = (machine.processor_seconds([pid]) - node) / took
        spy.send_signal(2)
        spy.wait(30)
        samples = Path(raw.name).read_text()
        return fold(samples, what, node_cores, done.processor_s / took), done.result


def print_profile(profile: Profile) -> None:
    print(f"{profile.what}: node {profile.node_cores:.2f} cores, client {profile.client_cores:.2f}")
    print("  rooms: " + ", ".join(f"{n} {s:.0%}" for n, s in profile.rooms.items() if s >= 0.01))
    for name, share in profile.functions.items():
        print(f"  {share:6.1%}  {name}")
