"""`make bench-cleaner`: how fast one core compacts a log, in how much memory, and who feels it.

Every record is of one of so many keys, drawn at random, and all of the log is dirty: each record is
read twice, once for the map and once for the rewriting. Speeds are of the records and bytes of the
log, counted once. `--full` takes 1 M and 10 M keys instead of the smaller defaults.

Who feels it: a node is given several dirty logs, and somebody who produces one record at a time to
another topic with acks=all. Times with no pass and times with a pass take turns, so that both are
of the same moments of this machine; the ratio of their 99th percentiles is what is held to a goal.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

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
    def map_bytes(self) -> int:
        """The default, or what holds all keys in one pass."""
        return max(128 * MIB, self.keys * 24 * 10 // 8)


def batches(load: Load, now_ms: int, batch_bytes: int = BATCH_BYTES) -> Iterator[bytes]:
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
    for first in range(0, load.records, per_batch):
        drawn = chance.integers(0, load.keys, per_batch)
        digits = drawn[:, None] // 10 ** np.arange(KEY_BYTES - 1, -1, -1) % 10 + ord("0")
        keys = BytesColumn(digits.astype(np.uint8).tobytes(), starts, lengths)
        yield build_batch_from_columns(
            timestamps=now_ms + first + np.arange(per_batch, dtype=np.int64),
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
    done = cleaner.begin(plan, NOW, clean_floor=NO_FLOOR).run_here()
    took = time.process_time() - started
    assert done.outcome is Outcome.CLEANED, done
    return done, took


def opened(directory: Path) -> Log:
    config = TopicConfig.resolve(
        {"cleanup.policy": "compact", "segment.bytes": str(256 * MIB)}, Settings()
    )
    opening = Opening(OsDisk(), str(directory), TP, config, SystemRandom(1), NOW, was_clean=True)
    log = in_one_go(open_log(opening))[0]
    log.advance_high_watermark(log.end_offset)
    return log


def bench(work: Path, load: Load, turns: int) -> list[Row]:
    """The median of some passes over copies of the same log."""
    log = opened(work / "filled" / "bench-0")
    fill(log, load)
    log.close()
    times: list[float] = []
    grown = 0
    for _ in range(turns):
        shutil.copytree(work / "filled", work / "turn")
        log = opened(work / "turn" / "bench-0")
        before = resident_bytes()
        done, took = clean(log, load)
        times.append(took)
        grown = max(grown, peak_bytes() - before)
        log.close_files()
        shutil.rmtree(work / "turn")
    shutil.rmtree(work / "filled")
    took = median(times)
    is_small = load.value_bytes == 100 and load.codec is Codec.NONE
    is_large = load.value_bytes == 1000 and load.codec is Codec.NONE
    rows = [
        Row(load.name, done.records_read / took / 1e6, "M records/s", 1.5 if is_small else None),
        Row(load.name, done.bytes_read / MIB / took, "MiB/s", 150 if is_large else None),
        Row(f"{load.name}, kept", done.records_kept / done.records_read * 100, "%"),
    ]
    if is_small:
        room = (load.map_bytes + 64 * MIB) / MIB
        rows.append(Row(f"{load.name}, memory", grown / MIB, "MiB", room, "lower"))
    return rows


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- who feels it ------------------------------------------------------------------------

PROBE_EVERY_S = 0.002
QUIET_S = 1.5
ROUNDS = 4
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
    small = (1_000_000, 10_000_000) if is_full else (100_000, 500_000)
    large = (1_000_000,) if is_full else (50_000,)
    return [
        *(Load(keys, 100, codec) for keys in small for codec in (Codec.NONE, Codec.ZSTD)),
        *(Load(keys, 1000, codec) for keys in large for codec in (Codec.NONE, Codec.ZSTD)),
    ]


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
    parser.add_argument("--full", action="store_true", help="1 M and 10 M keys (minutes, 5 GiB)")
    parser.add_argument("--only", choices=("speed", "felt"), help="one half of it")
    parser.add_argument("--dir", help="where to write; the default is the system's temporary one")
    options = parser.parse_args()
    rows: list[Row] = []
    work = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.dir))
    try:
        for load in loads(options.full) if options.only != "felt" else ():
            rows += bench(work, load, 1 if options.full else TURNS)
        if options.only != "speed":
            rows += Felt(work / "node").measure()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report("cleaner", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
