"""What `make bench-peers` reads off processes, files and profiles."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.peers import machine
from bench.peers.nodes import Nodes, listens
from bench.peers.peer import PeerFailed
from bench.peers.profile import fold, place_of


def test_this_process_has_memory_and_used_the_processor() -> None:
    pids = [os.getpid()]
    assert 0 < machine.proportional_mb(pids) <= machine.resident_mb(pids)
    assert machine.processor_seconds(pids) > 0
    assert int(machine.describe()["cores"]) >= 1


def test_only_what_is_written_counts_as_disk_space(tmp_path: Path) -> None:
    topic = tmp_path / "load-1-0"
    topic.mkdir()
    (topic / "log").write_bytes(bytes([1]) * 10_000)
    with (topic / "index").open("wb") as sparse:
        sparse.truncate(10 << 20)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "log").write_bytes(b"x" * 5_000)
    assert machine.disk_bytes([tmp_path], "load-1") == 10_000


class Memory:
    """``/proc`` of a machine of 1 GiB: so much can be read before pages are taken back."""

    def __init__(self, proc: Path, free_bytes: float) -> None:
        self._proc = proc
        self.free_bytes = free_bytes
        self.positions = list[int]()
        (proc / "meminfo").write_text("MemTotal: 1048576 kB\n")
        self._show(0)

    def read(self, _: int, buffers: list[bytearray], position: int) -> int:
        self.positions.append(position)
        self.free_bytes -= len(buffers[0])
        self._show(int(max(0, -self.free_bytes) / 4096))
        return len(buffers[0])

    def _show(self, reclaimed_pages: int) -> None:
        (self._proc / "vmstat").write_text(f"pgsteal_kswapd {reclaimed_pages}\npgsteal_direct 0\n")


def test_memory_is_filled_until_pages_are_taken_back(tmp_path: Path) -> None:
    """With other pages each time; those of the last time are in memory already."""
    seen = Memory(tmp_path, free_bytes=500 << 20)
    memory = machine.FullMemory(tmp_path / "new", tmp_path, seen.read)
    memory.fill()
    first = len(seen.positions)
    assert first == (564 << 20) // machine.PIECE_BYTES
    memory.fill()
    assert len(seen.positions) - first == (64 << 20) // machine.PIECE_BYTES
    assert seen.positions == sorted(set(seen.positions))
    memory.close()


def test_memory_that_does_not_fill_is_given_up(tmp_path: Path) -> None:
    seen = Memory(tmp_path, free_bytes=float("inf"))
    memory = machine.FullMemory(tmp_path, tmp_path, seen.read)
    memory.fill()
    memory.close()
    assert len(seen.positions) == 5 * (1 << 28) // machine.PIECE_BYTES


def test_the_hole_has_no_name_that_could_stay_behind(tmp_path: Path) -> None:
    memory = machine.FullMemory(tmp_path / "folder")
    assert list((tmp_path / "folder").iterdir()) == []
    memory.close()


def test_a_host_that_takes_nothing_is_calm_and_one_that_always_takes_is_not_waited_for(
    tmp_path: Path,
) -> None:
    now, stolen, is_greedy = 0.0, 0, False
    stat = tmp_path / "stat"
    stat.write_text("cpu 1 1 1 1 1 1 1 0 0 0")

    def sleep(seconds: float) -> None:
        nonlocal now, stolen
        now += seconds
        stolen += is_greedy
        stat.write_text(f"cpu 1 1 1 1 1 1 1 {stolen} 0 0")

    machine.await_calm(stat, monotonic=lambda: now, sleep=sleep)
    assert 3 <= now < 4
    is_greedy = True
    machine.await_calm(stat, monotonic=lambda: now, sleep=sleep)
    assert 10 <= now - 3 < 12


@pytest.mark.parametrize(
    ("frame", "room", "name"),
    [
        ("append (/x/tidelog/storage/log.py:12)", "storage", "log.append"),
        ("run (/x/broker/tidelog/broker/handlers/fetch.py)", "broker", "fetch.run"),
        ("Event.wait (/lib/asyncio/locks.py:118)", "asyncio", "locks.Event.wait"),
        ("Http2.receive (/x/tidelog/kernel/http2.py:1)", "gRPC", "http2.Http2.receive"),
        ("encode (/x/tidelog/kernel/real/peer_streams.py:1)", "gRPC", "peer_streams.encode"),
        ("<module> (x.py:1)", "other", "x.<module>"),
        ("no file at all", "other", "no file at all"),
    ],
)
def test_a_frame_belongs_to_a_room(frame: str, room: str, name: str) -> None:
    assert place_of(frame) == (room, name)


def test_samples_are_shared_out_by_the_innermost_function() -> None:
    raw = (
        "main (a.py:1);append (tidelog/storage/log.py:12) 30\n"
        "main (a.py:1);append (tidelog/storage/log.py:14) 30\n"
        "main (a.py:1);send (tidelog/kernel/net.py:3) 40\n"
    )
    seen = fold(raw, "produce", 0.5, 0.25)
    assert seen.rooms == {"storage": 0.6, "kernel": 0.4}
    assert seen.functions == {"log.append": 0.6, "net.send": 0.4}
    assert [row.value for row in seen.rows()] == pytest.approx([0.5, 0.25, 60, 40, 60, 40])


def test_a_node_that_ends_is_reported_with_its_last_words() -> None:
    nodes = Nodes("test")
    try:
        nodes.launch(1, [sys.executable, "-c", "print('out of tides')"])
        with pytest.raises(PeerFailed, match="node 1 ended: out of tides"):
            nodes.await_(lambda: False, "a port", 10.0)
    finally:
        home = nodes.home
        nodes.stop()
    assert not home.exists()


def test_a_killed_node_is_gone_and_another_takes_its_place() -> None:
    nodes = Nodes("test")
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    try:
        nodes.launch(1, sleeper)
        [first] = nodes.pids()
        nodes.kill(1)
        assert nodes.pids() == []
        nodes.launch(1, sleeper)
        [second] = nodes.pids()
        assert first != second
    finally:
        nodes.stop()
    assert nodes.pids() == []


def test_nothing_listens_on_port_one() -> None:
    assert not listens(1)


def test_what_the_host_took(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 800 9 10\ncpu0 1 2 3 4 5 6 7 400 9 10\n")
    assert machine.stolen_seconds(stat) == 800 / os.sysconf("SC_CLK_TCK")
    assert machine.stolen_seconds() >= 0
