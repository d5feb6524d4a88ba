"""`make bench-cleaner`: how fast one core compacts a log, in how much memory, and who feels it.

Every record is of one of so many keys, drawn at random, and all of the log is dirty: each record is
read twice, once for the map and once for the rewriting. Speeds are of the records and bytes of the
log, counted once. `--full` takes 1 M and 10 M keys instead of the smaller defaults, `--load NAME`
only the loads of these names. Speeds of compressed logs have no goal: the codec's own decides them.

Who feels it: a node is given several dirty logs, and somebody who produces one record at a time to
another topic with acks=all. Times with no pass and times with a pass take turns, so that both are
of the same moments of this machine; the ratio of their 99th percentiles is what is held to a goal.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.scratch import NoRoom, need_room, scratch
from bench.table import Row, report
from tidelog.kernel.ids import LeaderEpoch, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.real.process_offload import WORKER_ENVIRONMENT
from tidelog.kernel.settings import Settings, TopicConfig
from tidelog.simulation import kafka_messages as messages
from tidelog.storage.cleaner.cleaning import NO_FLOOR, LogCleaner
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.cleaner.worker import look_for_cycles_less_often
from tidelog.storage.log import Appended, Log
from tidelog.storage.recovery import Opening, open_log
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.batch import Codec
from tidelog.wire.column_building import BytesColumn, build_batch_from_columns
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request, parse_response_header
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response
from tidelog.wire.records import Record, build_batch

NOW = TimestampMs(1_700_000_000_000)
TP = TopicPartition("bench", PartitionIndex(0))
MIB = 1 << 20
KEY_BYTES = 12
BATCH_BYTES = 16 * 1024
"""What producers gather by default (``batch.size``)."""
WRITES_PER_KEY = 2
SEGMENT_BYTES = 256 * MIB
TURNS = 3


@dataclass(frozen=True)
class Load:
    keys: int
    value_bytes: int
    codec: Codec

    @property
    def records(self) -> int:
        return self.keys * WRITES_PER_KEY

    @property
    def name(self) -> str:
        codec = "uncompressed" if self.codec is Codec.NONE else self.codec.name.lower()
        return f"{self.keys:,} keys, values of {self.value_bytes} B, {codec}"

    @property
    def log_bytes(self) -> int:
        """More than the log will have."""
        return self.records * (self.value_bytes + KEY_BYTES + 16)

    @property
    def map_bytes(self) -> int:
        """The default, or what holds all keys in one pass."""
        return max(128 * MIB, self.keys * 24 * 10 // 8)


def batches(load: Load, now_ms: int, batch_bytes: int = BATCH_BYTES) -> Iterator[bytes]:
    """One record for each millisecond up to now: a broker takes none from the future."""
    chance = np.random.default_rng(load.keys)
    per_batch = max(1, batch_bytes // (load.value_bytes + KEY_BYTES + 8))
    # Half random, half text: what a compressor finds in ordinary values.
    noise = chance.bytes(load.value_bytes // 2 * per_batch)
    text = (b'{"name":"value","number":12345},' * (1 + load.value_bytes // 32))[: load.value_bytes]
    size = load.value_bytes // 2
    values = BytesColumn.of(
        noise[i * size : (i + 1) * size] + text[size:] for i in range(per_batch)
    )
    starts = np.arange(per_batch, dtype=np.int64) * KEY_BYTES
    lengths = np.full(per_batch, KEY_BYTES, np.int64)
    oldest_ms = now_ms - load.records - per_batch
    for first in range(0, load.records, per_batch):
        drawn = chance.integers(0, load.keys, per_batch)
        digits = drawn[:, None] // 10 ** np.arange(KEY_BYTES - 1, -1, -1) % 10 + ord("0")
        keys = BytesColumn(digits.astype(np.uint8).tobytes(), starts, lengths)
        yield build_batch_from_columns(
            timestamps=oldest_ms + first + np.arange(per_batch, dtype=np.int64),
            keys=keys,
            values=values,
            codec=load.codec,
        )


def fill(log: Log, load: Load) -> None:
    for batch in batches(load, NOW):
        answer = log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW)
        assert isinstance(answer, Appended), answer
    log.roll(log.end_offset, NOW)
    log.advance_high_watermark(log.end_offset)
    log.flush_now()


def clean(log: Log, load: Load) -> tuple[CleaningReport, float]:
    """The report, and the seconds of processor time the pass took."""
    settings = CleanerSettings(map_bytes=load.map_bytes)
    cleaner = LogCleaner(OsDisk(), log, settings, SystemRandom(1))
    plan = cleaner.plan(NOW, None)
    assert plan.is_due, plan
    started = time.process_time()
    cleaning = cleaner.begin(plan, NOW, clean_floor=NO_FLOOR)
    took = time.process_time() - started
    is_going_on = True
    while is_going_on:
        started = time.process_time()
        is_going_on = in_one_go(cleaning.work())
        if is_going_on:
            cleaning.swap()
        took += time.process_time() - started
        log.removal.unlink_due(NOW)  # else the disk has to hold both the old log and the new
    done = cleaning.conclude()
    assert done.outcome is Outcome.CLEANED, done
    return done, took


def opened(directory: Path) -> Log:
    config = TopicConfig.resolve(
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "file.delete.delay.ms": "0",
        },
        Settings(),
    )
    opening = Opening(OsDisk(), str(directory), TP, config, SystemRandom(1), NOW, was_clean=True)
    log = in_one_go(open_log(opening))[0]
    log.advance_high_watermark(log.end_offset)
    return log


def disk_bytes(load: Load, turns: int) -> int:
    """The log, its copy if there is more than one turn, and what a pass writes before a swap."""
    return load.log_bytes * min(turns, 2) + 2 * SEGMENT_BYTES


def bench(work: Path, load: Load, turns: int) -> list[Row]:
    """The median of some passes over copies of the same log; the last is over the log itself."""
    log = opened(work / "filled" / "bench-0")
    fill(log, load)
    log.close()
    times: list[float] = []
    grown = 0
    for turn in range(1, turns + 1):
        if turn < turns:
            shutil.copytree(work / "filled", work / "turn")
        else:
            (work / "filled").rename(work / "turn")
        log = opened(work / "turn" / "bench-0")
        before = resident_bytes()
        forget_peak()
        done, took = clean(log, load)
        times.append(took)
        grown = max(grown, peak_bytes() - before)
        log.close_files()
        shutil.rmtree(work / "turn")
    return load_rows(load, done, median(times), grown)


def load_rows(load: Load, done: CleaningReport, took: float, grown: int) -> list[Row]:
    is_plain = load.codec is Codec.NONE
    records_goal = 1.5 if is_plain and load.value_bytes == 100 else None
    bytes_goal = 150 if is_plain and load.value_bytes == 1000 else None
    room = (load.map_bytes + 64 * MIB) / MIB
    return [
        Row(load.name, done.records_read / took / 1e6, "M records/s", records_goal),
        Row(load.name, done.bytes_read / 1e6 / took, "MB/s", bytes_goal),
        Row(f"{load.name}, kept", done.records_kept / done.records_read * 100, "%"),
        Row(f"{load.name}, memory", grown / MIB, "MiB", room, "lower"),
    ]


def resident_bytes() -> int:
    return status_bytes("VmRSS")


def forget_peak() -> None:
    """What an earlier load took is none of the next one's."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes() -> int:
    return status_bytes("VmHWM")


def status_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name)
    )


# --- who feels it ------------------------------------------------------------------------

PROBE_EVERY_S = 0.002
QUIET_S = 1.5
ROUNDS = 10
DIRTY = Load(75_000, 100, Codec.NONE)
DIRTY_TIMES = 6
"""How often all of it is written to each log."""
DIRTY_BATCH_BYTES = 64 * 1024
IN_FLIGHT = 64


class Client:
    """One connection that sends requests and counts answers; nothing in it takes long."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._sent = 0

    def send(self, key: ApiKey, version: int, request: Any) -> None:
        self._sent += 1
        frame = frame_request(APIS[key], version, self._sent, "bench", kio_bytes(request))
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._answers.read(4))
        return self._answers.read(size)

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        self.send(key, version, request)
        answer = self.receive()
        _, body = parse_response_header(APIS[key], version, answer)
        return decode_response(key, version, body)

    def create(self, topic: str, configs: dict[str, str]) -> None:
        request = messages.create_topic(topic, 1, 1, configs, 30_000)
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, request)
        assert answer.topics[0].error_code == 0, answer
        while not self._is_led(topic):
            time.sleep(0.02)

    def _is_led(self, topic: str) -> bool:
        answer = self.ask(ApiKey.METADATA, 12, messages.metadata([topic]))
        found = answer.topics[0]
        return bool(found.error_code == 0 and found.partitions[0].error_code == 0)

    def configure(self, topic: str, name: str, value: str) -> None:
        request = messages.set_topic_config(topic, name, value)
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert answer.responses[0].error_code == 0, answer

    def produce(self, topic: str, batches: Iterable[bytes]) -> None:
        waiting = 0
        for batch in batches:
            self.send(ApiKey.PRODUCE, 12, messages.produce(topic, 0, batch, -1, 30_000))
            waiting += 1
            if waiting == IN_FLIGHT:
                self.receive()
                waiting -= 1
        for _ in range(waiting):
            self.receive()


class Felt:
    """A node with dirty logs, and how long a record takes to be acknowledged beside them."""

    def __init__(self, data_dir: Path) -> None:
        self._cleaned: set[str] = set()
        settings = {"log.cleaner.backoff.ms": "20"}
        self._cluster = LocalCluster(1, settings=settings, data_dir=data_dir, on_line=self._line)

    def _line(self, node_id: int, line: str) -> None:
        found = re.search(r"(dirty-\d+)-0 was cleaned up to", line)
        if found is not None:
            self._cleaned.add(found[1])

    def measure(self) -> list[Row]:
        with self._cluster:
            client = Client(self._cluster.bootstrap)
            client.create("probed", {})
            names = [f"dirty-{number}" for number in range(ROUNDS + 1)]
            held = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "1",
                "segment.bytes": str(16 * MIB),
            }
            now_ms = int(time.time() * 1000)
            data = list(batches(DIRTY, now_ms, DIRTY_BATCH_BYTES))
            for name in names:
                client.create(name, held)
                client.produce(name, data * DIRTY_TIMES)
            self._clean(client, names[0])  # the process is started, and everything imported
            quiet: list[float] = []
            busy: list[float] = []
            passes_s = 0.0
            for name in names[1:]:
                quiet += self._probe(client, after(QUIET_S))
                started = time.monotonic()
                busy += self._clean(client, name)
                passes_s += time.monotonic() - started
        return self._rows(quiet, busy, passes_s)

    def _clean(self, client: Client, name: str) -> list[float]:
        """Let a log be cleaned; the times of what was produced meanwhile."""
        client.configure(name, "min.cleanable.dirty.ratio", "0.01")
        return self._probe(client, lambda: name in self._cleaned)

    def _probe(self, client: Client, is_over: Callable[[], bool]) -> list[float]:
        record = [Record(0, TimestampMs(int(time.time() * 1000)), b"key", b"x" * 100)]
        batch = build_batch(record)
        took: list[float] = []
        due = time.perf_counter()
        while not is_over():
            due += PROBE_EVERY_S
            time.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            client.produce("probed", [batch])
            took.append(time.perf_counter() - started)
            due = max(due, time.perf_counter() - PROBE_EVERY_S)
        return took

    def _rows(self, quiet: list[float], busy: list[float], passes_s: float) -> list[Row]:
        calm, stirred = percentile(quiet, 0.99), percentile(busy, 0.99)
        records = ROUNDS * DIRTY_TIMES * DIRTY.records
        megabytes = records * (DIRTY.value_bytes + KEY_BYTES + 8) / MIB
        name = "produce, acks=all"
        return [
            Row(f"{name}: p50 without a pass", percentile(quiet, 0.5) * 1000, "ms"),
            Row(f"{name}: p50 beside a pass", percentile(busy, 0.5) * 1000, "ms"),
            Row(f"{name}: p99 without a pass", calm * 1000, "ms"),
            Row(f"{name}: p99 beside a pass", stirred * 1000, "ms"),
            Row(f"{name}: p99 beside a pass, against none", stirred / calm, "×", 1.5, "lower"),
            Row("a pass in a busy node", megabytes / passes_s, "MiB/s"),
            Row("samples without and beside a pass", min(len(quiet), len(busy)), "at least"),
        ]


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# --- all of it ---------------------------------------------------------------------------


def loads(is_full: bool) -> list[Load]:
    keys = {100: (100_000, 500_000), 1000: (50_000,)}
    if is_full:
        keys = dict.fromkeys((100, 1000), (1_000_000, 10_000_000))
    return [
        Load(count, value_bytes, codec)
        for value_bytes, counts in keys.items()
        for count in counts
        for codec in (Codec.NONE, Codec.ZSTD)
    ]


def chosen_loads(is_full: bool, names: Sequence[str]) -> list[Load]:
    """All of them, or those of these names; ``ValueError`` if there is none of a name."""
    known = {load.name: load for load in loads(is_full)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no load {unknown[0]!r}, only: {'; '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())


def as_a_worker() -> None:
    """Go on in the environment that a node gives to the process that cleans its logs."""
    if WORKER_ENVIRONMENT.items() <= os.environ.items():
        look_for_cycles_less_often()
        return
    command = (sys.executable, "-m", "bench.cleaner", *sys.argv[1:])
    os.execve(sys.executable, command, {**os.environ, **WORKER_ENVIRONMENT})


def main() -> int:
    as_a_worker()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="1 M and 10 M keys (an hour, 23 GB)")
    parser.add_argument("--only", choices=("speed", "felt"), help="one half of it")
    parser.add_argument(
        "--load", action="append", default=[], metavar="NAME", help="only loads of these names"
    )
    parser.add_argument("--dir", help="where to write; the default is the system's temporary one")
    options = parser.parse_args()
    try:
        chosen = chosen_loads(options.full, options.load)
    except ValueError as error:
        parser.error(str(error))
    is_felt = options.only != "speed" and not options.load
    if options.only == "felt":
        chosen = []
    turns = 1 if options.full else TURNS
    rows: list[Row] = []
    try:
        with scratch(options.dir) as work:
            need_room(work, max((disk_bytes(load, turns) for load in chosen), default=0))
            for load in chosen:
                rows += bench(work, load, turns)
            if is_felt:
                rows += Felt(work / "node").measure()
    except NoRoom as problem:
        print(problem, file=sys.stderr)
        return 1
    report("cleaner", rows, is_kept=bool(chosen) and is_felt)
    return 0


if __name__ == "__main__":
    sys.exit(main())
