"""Any life of a compacted log, against a plain list of what was written to it.

``TIDELOG_EXAMPLES`` sets how many lives are lived; the default is what CI can afford.
"""

from __future__ import annotations

import os

from cleaner_world import CleanerWorld, Written
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from log_lab import small_config

from tidelog.wire.batch import Codec

EXAMPLES = int(os.environ.get("TIDELOG_EXAMPLES", "120"))
RETENTION_MS = 1_000

keys = st.sampled_from([b"a", b"b", b"c", b"a longer key", b"k" * 20])
values = st.one_of(st.none(), st.integers(0, 30).map(lambda size: b"v" * size))
records = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
producers = st.integers(0, 2)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP])
floors = st.one_of(st.none(), st.integers(0, 40))


class CompactionMachine(RuleBasedStateMachine):
    world: CleanerWorld

    @initialize(
        seed=st.integers(0, 2**16),
        map_bytes=st.sampled_from([24 * 4, 24 * 8, 1 << 16]),
        segment_bytes=st.sampled_from([450, 600, 2000]),
    )
    def begin(self, seed: int, map_bytes: int, segment_bytes: int) -> None:
        config = small_config(
            cleanup_policy=("compact",),
            internal_segment_bytes=segment_bytes,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=RETENTION_MS,
        )
        self.world = CleanerWorld(config, seed, map_bytes=map_bytes)

    @rule(batch=records, codec=codecs)
    def write(self, batch: list[Written], codec: Codec) -> None:
        self.world.write(batch, codec)

    @rule(batches=st.lists(records, min_size=2, max_size=6))
    def write_much(self, batches: list[list[Written]]) -> None:
        for batch in batches:
            self.world.write(batch)

    @rule(producer=producers, batch=records, codec=codecs)
    def write_idempotent(self, producer: int, batch: list[Written], codec: Codec) -> None:
        self.world.write_as(producer, batch, codec=codec)

    @rule(producer=producers, batch=records)
    def write_in_transaction(self, producer: int, batch: list[Written]) -> None:
        self.world.write_as(producer, batch, is_transactional=True)

    @rule(producer=producers, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.world.end_txn(producer, commit=commit)

    @rule(
        producer=producers,
        batches=st.lists(records, min_size=1, max_size=3),
        commit=st.booleans(),
    )
    def whole_transaction(self, producer: int, batches: list[list[Written]], commit: bool) -> None:
        for batch in batches:
            self.world.write_as(producer, batch, is_transactional=True)
        self.world.end_txn(producer, commit=commit)

    @rule()
    def roll(self) -> None:
        self.world.roll()

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(wait_ms=st.sampled_from([1, 600, 1_500]))
    def wait(self, wait_ms: int) -> None:
        self.world.now += wait_ms

    @rule(floor=floors)
    def clean(self, floor: int | None) -> None:
        self.world.clean(floor=floor)

    @rule(floor=floors)
    def roll_and_clean(self, floor: int | None) -> None:
        self.world.roll()
        self.world.commit()
        self.world.clean(floor=floor)
        self.world.now += 700

    @rule(nth=st.integers(1, 40), landed=st.sampled_from([0, 30, 100]), power=st.booleans())
    def clean_and_crash(self, nth: int, landed: int, power: bool) -> None:
        self.world.roll()
        self.world.commit()
        self.world.clean_and_crash(nth, landed_bytes=landed, by_power=power)

    @rule(power=st.booleans())
    def stop(self, power: bool) -> None:
        self.world.commit()
        self.world.restart(by_power=power)
        self.world.check()


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(
    derandomize=True,
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
