"""`make bench-cleaner`: how fast one core compacts a log, and in how much memory.

Every record is of one of so many keys, drawn at random, and all of the log is dirty: each record is
read twice, once for the map and once for the rewriting. Speeds are of the records and bytes of the
log, counted once. `--full` takes 1 M and 10 M keys instead of the smaller defaults.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.table import Row, report
from tidelog.kernel.ids import LeaderEpoch, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import Settings, TopicConfig
from tidelog.storage.cleaner.cleaning import NO_FLOOR, LogCleaner
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import Appended, Log
from tidelog.storage.recovery import Opening, open_log
from tidelog.wire.batch import Codec
from tidelog.wire.column_building import BytesColumn, build_batch_from_columns

NOW = TimestampMs(1_700_000_000_000)
TP = TopicPartition("bench", PartitionIndex(0))
MIB = 1 << 20
KEY_BYTES = 12
BATCH_BYTES = 16 * 1024
"""What producers gather by default (``batch.size``)."""
WRITES_PER_KEY = 2


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


def fill(log: Log, load: Load) -> None:
    chance = np.random.default_rng(load.keys)
    per_batch = max(1, BATCH_BYTES // (load.value_bytes + KEY_BYTES + 8))
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
        batch = build_batch_from_columns(
            timestamps=NOW + first + np.arange(per_batch, dtype=np.int64),
            keys=keys,
            values=values,
            codec=load.codec,
        )
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


def bench(work: Path, load: Load) -> list[Row]:
    config = TopicConfig.resolve(
        {"cleanup.policy": "compact", "segment.bytes": str(256 * MIB)}, Settings()
    )
    opening = Opening(OsDisk(), str(work), TP, config, SystemRandom(1), NOW, was_clean=True)
    log = in_one_go(open_log(opening))[0]
    fill(log, load)
    before = resident_bytes()
    done, took = clean(log, load)
    grown = peak_bytes() - before
    log.close_files()
    shutil.rmtree(work)
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


def loads(is_full: bool) -> list[Load]:
    small = (1_000_000, 10_000_000) if is_full else (100_000, 500_000)
    large = (1_000_000,) if is_full else (50_000,)
    return [
        *(Load(keys, 100, codec) for keys in small for codec in (Codec.NONE, Codec.ZSTD)),
        *(Load(keys, 1000, codec) for keys in large for codec in (Codec.NONE, Codec.ZSTD)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="1 M and 10 M keys (minutes, 5 GiB)")
    parser.add_argument("--dir", help="where to write; the default is the system's temporary one")
    options = parser.parse_args()
    rows: list[Row] = []
    work = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.dir))
    try:
        for load in loads(options.full):
            rows += bench(work / "bench-0", load)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report("cleaner", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
