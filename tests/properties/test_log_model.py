"""The log against a dumb list of batches, under every kind of interruption.

``TIDELOG_EXAMPLES`` sets how many runs are made; the default is what CI can afford.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_lab import small_config
from log_world import LogWorld

EXAMPLES = int(os.environ.get("TIDELOG_EXAMPLES", "300"))

values = st.lists(
    st.integers(0, 60).map(lambda size: bytes([size % 251]) * size), min_size=1, max_size=3
)
producers = st.integers(0, 2)


class LogMachine(RuleBasedStateMachine):
    world: LogWorld

    @initialize(seed=st.integers(0, 2**16), is_compacted=st.booleans(), preallocate=st.booleans())
    def begin(self, seed: int, is_compacted: bool, preallocate: bool) -> None:
        policy = ("compact", "delete") if is_compacted else ("delete",)
        config = small_config(cleanup_policy=policy, preallocate=preallocate)
        self.world = LogWorld(config, seed)
        self.may_have_gaps = is_compacted

    # Appending.

    @rule(batch=values, lag=st.integers(-5, 5))
    def append(self, batch: list[bytes], lag: int) -> None:
        self.world.now += 3
        self.world.append(batch, timestamp=self.world.now + lag)

    @rule(batches=st.lists(values, min_size=2, max_size=8))
    def append_many(self, batches: list[list[bytes]]) -> None:
        for batch in batches:
            self.world.append(batch)

    @rule(producer=producers, batch=values)
    def append_idempotent(self, producer: int, batch: list[bytes]) -> None:
        self.world.append_idempotent(producer, batch)

    @rule(producer=producers, back=st.integers(0, 4), refill=st.booleans())
    def append_again(self, producer: int, back: int, refill: bool) -> None:
        self.world.append_again(producer, back, after_refill=refill)

    @rule(producer=producers, batch=values)
    def append_in_transaction(self, producer: int, batch: list[bytes]) -> None:
        self.world.append_idempotent(producer, batch, is_transactional=True)

    @rule(producer=producers, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.world.end_txn(producer, commit=commit)

    @rule(
        groups=st.lists(st.tuples(st.integers(0, 3), values), min_size=1, max_size=4),
        cut=st.sampled_from([0, 0, 5, 40]),
    )
    def append_as_follower(self, groups: list[tuple[int, list[bytes]]], cut: int) -> None:
        if not self.may_have_gaps:
            groups = [(0, batch) for _, batch in groups]
        self.world.append_as_follower(groups, cut=cut)

    # Segments, flushing, checkpoints.

    @rule()
    def roll(self) -> None:
        self.world.roll()

    @rule()
    def begin_epoch(self) -> None:
        self.world.begin_epoch()

    @rule()
    def begin_flush(self) -> None:
        self.world.begin_flush()

    @rule()
    def step_flush(self) -> None:
        self.world.step_flush()

    @rule()
    def finish_flush(self) -> None:
        self.world.finish_flush()

    @rule(
        between=st.lists(
            st.sampled_from(["append", "append", "roll", "truncate", "retain", "step"]), max_size=6
        ),
        power=st.sampled_from([None, True, True, False]),
    )
    def flush_while_others_work(self, between: list[str], power: bool | None) -> None:
        """What a flush vouches for was decided when it began; then perhaps a stop."""
        self.world.begin_flush()
        for what in between:
            match what:
                case "append":
                    self.world.append([b"meanwhile"])
                case "roll":
                    self.world.roll()
                case "truncate":
                    self.world.truncate_to(max(0, self.world.end - 2))
                case "retain":
                    self.retain(300, -1)
                case _:
                    self.world.step_flush()
        while self.world.flush is not None:
            self.world.step_flush()
        if power is not None:
            self.world.restart(by_power_loss=power)

    @rule()
    def commit(self) -> None:
        """Everything flushed and replicated."""
        self.world.finish_flush()
        self.world.advance_high_watermark(self.world.end)

    @rule(back=st.integers(0, 4))
    def advance_high_watermark(self, back: int) -> None:
        self.world.advance_high_watermark(max(self.world.hw, self.world.end - back))

    @rule(which=st.integers(1, 7))
    def write_checkpoints(self, which: int) -> None:
        self.world.write_checkpoints(which)

    @rule()
    def write_back(self) -> None:
        self.world.write_back()

    # Cutting.

    @rule(back=st.integers(0, 12))
    def truncate_to(self, back: int) -> None:
        self.world.truncate_to(max(0, self.world.end - back))

    @rule(ahead=st.integers(-10, 10))
    def restart_at(self, ahead: int) -> None:
        self.world.restart_at(max(0, self.world.end + ahead))

    @rule(ahead=st.integers(1, 8))
    def raise_log_start(self, ahead: int) -> None:
        self.world.raise_log_start(self.world.log_start + ahead)

    @rule(max_bytes=st.sampled_from([-1, 0, 300, 900]), max_ms=st.sampled_from([-1, 0, 10, 10**9]))
    def retain(self, max_bytes: int, max_ms: int) -> None:
        self.world.retain(
            small_config(
                cleanup_policy=self.world.config.cleanup_policy,
                preallocate=self.world.config.preallocate,
                retention_bytes=max_bytes,
                retention_ms=max_ms,
            )
        )

    @rule()
    def unlink_due(self) -> None:
        self.world.unlink_due()

    # Reading.

    @rule(
        at=st.integers(-2, 30),
        limit=st.integers(0, 30),
        max_bytes=st.sampled_from([0, 1, 90, 200, 10**6]),
        whole_first=st.booleans(),
    )
    def read(self, at: int, limit: int, max_bytes: int, whole_first: bool) -> None:
        start = self.world.log_start
        self.world.check_read(
            max(0, start + at), start + at + limit, max_bytes, whole_first=whole_first
        )

    @rule(back=st.integers(0, 30))
    def read_to_the_ends(self, back: int) -> None:
        log = self.world.log
        for limit in (log.end_offset, log.high_watermark, log.last_stable_offset):
            self.world.check_read(max(0, limit - back), limit, 400, whole_first=True)

    @rule()
    def read_all(self) -> None:
        self.world.check_all_reads()

    @rule(back=st.integers(-3, 60))
    def find_by_time(self, back: int) -> None:
        self.world.check_time(self.world.now - back)

    # Stopping.

    @rule(nth=st.integers(1, 12), landed=st.sampled_from([0, 0, 30, 61, 100]), power=st.booleans())
    def crash_soon(self, nth: int, landed: int, power: bool) -> None:
        self.world.crash_at(nth, landed_bytes=landed, loses_power=power)

    @rule()
    def close(self) -> None:
        self.world.close()

    @rule()
    def kill(self) -> None:
        self.world.restart(by_power_loss=False)
        self.world.check()

    @rule()
    def lose_power(self) -> None:
        self.world.restart(by_power_loss=True)
        self.world.check()

    @rule(nth=st.integers(1, 20), power=st.booleans(), again=st.booleans())
    def crash_while_opening(self, nth: int, power: bool, again: bool) -> None:
        self.world.restart_with_crash(nth, by_power_loss=power, again_by_power=again)

    @invariant()
    def order_of_offsets(self) -> None:
        if hasattr(self, "world"):
            log = self.world.log
            assert log.log_start <= log.last_stable_offset <= log.high_watermark <= log.end_offset


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    derandomize=True,
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
