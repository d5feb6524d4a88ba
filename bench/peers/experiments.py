"""What is measured. Peers take turns within each experiment: A, B, A, B, and so on.

Those that no goal names take part in the first round only.

In each turn one peer runs, and none of the others: what they do when idle is not small where two
cores are shared, and would count against whoever is measured. It is started and warmed up in each
turn, because a virtual machine gains for a while. Only in `failover` all run throughout.

An experiment yields samples, one per peer, measure and round. Names of measures are unique over all
experiments, so that results of several runs merge.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from bench.peers import machine
from bench.peers.apart import YIELDING, apart
from bench.peers.peer import BUILD, NODES, PARTITIONS, Durability, Peer, PeerFailed, Produced

SIZES: Final = {"100 B": 100, "1 KB": 1_000, "10 KB": 10_000}
RATE: Final = 1_000
_IN_EVERY_ROUND: Final = ("tidelog", "kafka")
_SETTLE_S: Final = 1.0
_REMOVAL_S: Final = 7.0
"""A second of delay, and Tidelog looks every five seconds for what is to be removed."""
_FLOWING_S: Final = 0.2
_DEADLINE_S: Final = 120.0
_READ_BYTES: Final = 600_000_000
"""Whoever takes more in the same time must not have more to give back."""
_TOP_UP_S: Final = 15.0
_READS: Final = 11
"""Each by a new client: two that read the same may differ by a tenth."""
_READS_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how often."""

    seconds: float = 6.0
    warm_up_s: float = 24.0
    """Kafka's virtual machine gains for about that long, and a cluster of users is warm."""
    rounds: int = 3
    log_gb: float = 5.0
    partitions: tuple[int, ...] = (10, 100, 1_000)
    clients: tuple[int, ...] = (1, 10, 100)
    idle_s: float = 10.0


FULL: Final = Scale()
QUICK: Final = Scale(
    seconds=1.5,
    warm_up_s=3.0,
    rounds=1,
    log_gb=0.2,
    partitions=(10, 100),
    clients=(1, 10),
    idle_s=3.0,
)
SMALL_LOG_GB: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    peer: str
    measure: str
    value: float
    unit: str
    better: Literal["higher", "lower"]


Experiment: TypeAlias = Callable[[Sequence[Peer], Scale], Iterator[Sample]]


def higher(peer: Peer, measure: str, value: float, unit: str) -> Sample:
    return Sample(peer.name, measure, value, unit, "higher")


def lower(peer: Peer, measure: str, value: float, unit: str) -> Sample:
    return Sample(peer.name, measure, value, unit, "lower")


@contextmanager
def running(peers: Sequence[Peer], durability: Durability) -> Iterator[None]:
    with ExitStack() as stack:
        for peer in peers:
            peer.prepare(durability)
            stack.callback(peer.stop)
            peer.start()
        yield


def each_alone(
    peers: Sequence[Peer],
    durability: Durability,
    scale: Scale,
    work: Callable[[Peer], Iterator[Sample]],
) -> Iterator[Sample]:
    """In turns: a peer is started, warmed up, worked with and stopped before the next one."""
    attempts = Attempts()
    for _, peer in turns(peers, scale.rounds):
        yield from attempts.of(peer, partial(_turn, peer, durability, scale, work))
    attempts.tell()


def _turn(
    peer: Peer,
    durability: Durability,
    scale: Scale,
    work: Callable[[Peer], Iterator[Sample]],
) -> Iterator[Sample]:
    settle()
    with running([peer], durability):
        warm_up(peer, scale)
        yield from work(peer)


def turns(peers: Sequence[Peer], rounds: int) -> Iterator[tuple[int, Peer]]:
    """Whoever no goal names has one turn: the differences to those are large."""
    for number in range(rounds):
        for peer in peers:
            if number == 0 or peer.name in _IN_EVERY_ROUND:
                yield number, peer


class SomeFailed(PeerFailed):
    """The experiment ran to its end, without these."""

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        super().__init__("; ".join(f"{name}: {failure!r}" for name, failure in failures.items()))
        self.names = frozenset(failures)


class Attempts:
    """When one peer fails the others go on, and what they have shown is kept."""

    def __init__(self) -> None:
        self._failures: dict[str, Exception] = {}

    def of(self, peer: Peer, work: Callable[[], Iterable[Sample]]) -> Iterator[Sample]:
        """Its samples up to where it fails; who failed before is not asked again."""
        if peer.name in self._failures:
            return
        try:
            yield from work()
        except Exception as failure:  # each peer's client has errors of its own
            print(f"{peer.name} has no more turns: {failure!r}", file=sys.stderr, flush=True)
            self._failures[peer.name] = failure

    def tell(self) -> None:
        """Raise what was held back, when nobody has a turn any more."""
        if self._failures:
            raise SomeFailed(self._failures)


def fill() -> None:
    """Nothing is left to be written out, and memory is full."""
    os.sync()
    _memory().fill()


def settle() -> None:
    """Before anything is measured: what was deleted is removed, too."""
    _memory().fill()  # at once: the host has not got yet what was freed a moment ago
    time.sleep(_REMOVAL_S)
    fill()


def settle_and_calm() -> None:
    """Where a tenth of a second counts: the host leaves this machine alone, too."""
    settle()
    machine.await_calm()
    fill()


@cache
def _memory() -> machine.FullMemory:
    return machine.FullMemory(BUILD)


# --- start and idleness ---------------------------------------------------------------


def measure_start(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    for number, peer in turns(peers, scale.rounds):
        settle()
        peer.prepare(Durability.SYNCED)
        try:
            start = time.perf_counter()
            peer.start()
            peer.client.create("first", 1)
            peer.client.touch("first", 1)
            yield lower(peer, "start to first acknowledgement", time.perf_counter() - start, "s")
            if number == 0:
                yield from _idleness(peer, scale)
        finally:
            peer.stop()


def _idleness(peer: Peer, scale: Scale) -> Iterator[Sample]:
    time.sleep(scale.idle_s)  # what starting set off is over by then
    pids = peer.pids()
    yield lower(peer, "idle memory, largest node", machine.resident_mb(pids), "MB")
    yield lower(peer, "idle memory, all nodes", machine.proportional_mb(pids), "MB")
    yield lower(peer, "idle processor, all nodes", _busy(peer, scale.idle_s), "% of a core")


def _busy(peer: Peer, seconds: float) -> float:
    pids = peer.pids()
    before = machine.processor_seconds(pids)
    time.sleep(seconds)
    return (machine.processor_seconds(pids) - before) / seconds * 100


# --- throughput -------------------------------------------------------------------------


def measure_throughput_synced(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    yield from _throughput(peers, scale, Durability.SYNCED)


def measure_throughput_page_cache(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    yield from _throughput(peers, scale, Durability.PAGE_CACHE)


def _throughput(peers: Sequence[Peer], scale: Scale, durability: Durability) -> Iterator[Sample]:
    def work(peer: Peer) -> Iterator[Sample]:
        for name, size in SIZES.items():
            yield from _one_topic(peer, durability, name, size, scale.seconds)
        yield from _memory_after_load(peer, durability)

    return each_alone(peers, durability, scale, work)


def _memory_after_load(peer: Peer, durability: Durability) -> Iterator[Sample]:
    memory = machine.resident_mb(peer.pids())
    yield lower(peer, f"memory after load, {durability.value}", memory, "MB")


def _one_topic(
    peer: Peer, durability: Durability, name: str, size: int, seconds: float
) -> Iterator[Sample]:
    topic = f"load-{size}"
    peer.client.create(topic, PARTITIONS)
    settle()
    used = machine.processor_seconds(peer.pids())
    done = apart(partial(peer.client.produce, topic, size, seconds), YIELDING)
    used = machine.processor_seconds(peer.pids()) - used
    produced, own = done.result, done.processor_s
    of = f"{name}, {durability.value}"
    yield higher(peer, f"produce {of}", produced.rate * size / 1e6, "MB/s")
    megabytes = produced.records * size / 1e6
    yield lower(peer, f"nodes' processor per MB, {of}", used * 1e3 / megabytes, "ms")
    yield lower(peer, f"client's processor per MB, {of}", own * 1e3 / megabytes, "ms")
    on_disk = machine.disk_bytes(peer.data_dirs(), topic)
    if on_disk:
        share = on_disk / (produced.records * size * NODES)
        yield lower(peer, f"disk bytes per record byte, {of}", share, "")
    records = _top_up(peer, topic, size, produced)
    fill()
    start = time.monotonic()
    for _ in range(_READS):
        read = apart(partial(peer.client.consume, topic, PARTITIONS, records))
        yield higher(peer, f"consume {of}", read.result * size / 1e6, "MB/s")
        if time.monotonic() - start > _READS_S:
            break
    peer.client.delete(topic)


def _top_up(peer: Peer, topic: str, size: int, produced: Produced) -> int:
    """How many records to read. Whoever wrote fewer in his time writes the rest now, unless that
    takes for ever: a reader's first records come at another rate than its last."""
    wanted = _READ_BYTES // size
    missing = wanted - produced.records
    if missing / produced.rate > _TOP_UP_S:
        return produced.records
    if missing > 0:
        apart(partial(peer.client.write, topic, size, missing), YIELDING)
    return wanted


def warm_up(peer: Peer, scale: Scale) -> None:
    """Nothing of it counts."""
    peer.client.create("warm-up", PARTITIONS)
    done = apart(partial(peer.client.produce, "warm-up", 1_000, scale.warm_up_s), YIELDING)
    apart(partial(peer.client.consume, "warm-up", PARTITIONS, done.result.records))
    peer.client.delete("warm-up")


# --- latency ------------------------------------------------------------------------------


def measure_latency_synced(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    yield from _latency(peers, scale, Durability.SYNCED)


def measure_latency_page_cache(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    yield from _latency(peers, scale, Durability.PAGE_CACHE)


def _latency(peers: Sequence[Peer], scale: Scale, durability: Durability) -> Iterator[Sample]:
    def work(peer: Peer) -> Iterator[Sample]:
        return _latencies(peer, durability, scale.seconds)

    return each_alone(peers, durability, scale, work)


def _latencies(peer: Peer, durability: Durability, seconds: float) -> Iterator[Sample]:
    topic = "latency"
    peer.client.create(topic, PARTITIONS)
    settle_and_calm()
    taken = apart(partial(peer.client.latencies, topic, RATE, seconds)).result
    for name, values in (
        ("produce latency", taken.acknowledged),
        ("end to end latency", taken.arrived),
    ):
        for share in (50, 99):
            measure = f"{name} p{share}, {durability.value}"
            yield lower(peer, measure, percentile(values, share / 100) * 1000, "ms")
    peer.client.delete(topic)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# --- faults -------------------------------------------------------------------------------


def measure_failover(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    with running(peers, Durability.PAGE_CACHE):
        for peer in peers:
            peer.client.create("failover", 1)
        attempts = Attempts()
        for _, peer in turns(peers, scale.rounds):
            yield from attempts.of(peer, partial(_failover, peer))
        attempts.tell()


def _failover(peer: Peer) -> Iterator[Sample]:
    _await(partial(peer.is_whole, "failover"), f"{peer.name} to be whole again")
    time.sleep(_SETTLE_S)
    yield lower(peer, "failover gap", _gap_after_kill(peer), "s")


def _gap_after_kill(peer: Peer) -> float:
    """The longest silence of a steady writer whose leader is killed."""
    writer = peer.client.acknowledgements("failover", 0.005)
    _await(lambda: writer.newest() > 0, "the first acknowledgement")
    time.sleep(_SETTLE_S)
    node, killed_at = peer.leader("failover"), time.perf_counter()
    peer.kill(node)

    def is_flowing() -> bool:
        now = time.perf_counter()
        return now - killed_at > 1.0 and now - writer.newest() < _FLOWING_S

    _await(is_flowing, f"{peer.name} to go on after a kill")
    at = writer.end()
    peer.start_node(node)
    return longest_gap(at, killed_at)


def longest_gap(at: Sequence[float], since: float) -> float:
    """Between two neighbours of which the later is after ``since``."""
    return max(later - earlier for earlier, later in pairwise(at) if later > since)


def _await(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise PeerFailed(f"waited {_DEADLINE_S:g} s for {what}")
        time.sleep(0.05)


def measure_recovery(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    attempts = Attempts()
    for peer in peers:
        yield from attempts.of(peer, partial(_recovery, peer, scale))
    attempts.tell()


def _recovery(peer: Peer, scale: Scale) -> Iterator[Sample]:
    with running([peer], Durability.PAGE_CACHE):
        peer.client.create("recovery", PARTITIONS)
        peer.client.write("recovery", 1_000, int(scale.log_gb * 1e6))
        for node in range(1, NODES + 1):
            peer.kill(node)
        settle()
        start = time.perf_counter()
        for node in range(1, NODES + 1):
            peer.start_node(node)
        peer.await_serving()
        peer.client.touch("recovery", PARTITIONS)
        took = time.perf_counter() - start
        yield lower(peer, f"recovery with {scale.log_gb:g} GB a node", took, "s")


# --- growth -------------------------------------------------------------------------------


def measure_partitions(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    def work(peer: Peer) -> Iterator[Sample]:
        for partitions in scale.partitions:
            yield from _many_partitions(peer, partitions, scale)

    once = replace(scale, rounds=1)
    return each_alone(peers, Durability.PAGE_CACHE, once, work)


def _many_partitions(peer: Peer, partitions: int, scale: Scale) -> Iterator[Sample]:
    of, topic = f"{partitions:,} partitions", f"wide-{partitions}"
    settle()
    start = time.perf_counter()
    peer.client.create(topic, partitions)
    peer.client.touch(topic, partitions)
    yield lower(peer, f"create and write each of {of}", time.perf_counter() - start, "s")
    done = apart(partial(peer.client.produce, topic, 1_000, scale.seconds), YIELDING)
    yield higher(peer, f"produce 1 KB to {of}", done.result.rate / 1e3, "MB/s")
    yield lower(peer, f"memory with {of}", machine.resident_mb(peer.pids()), "MB")
    settle_and_calm()
    yield lower(peer, f"idle processor with {of}", _busy(peer, scale.idle_s), "% of a core")
    peer.client.delete(topic)


def measure_clients(peers: Sequence[Peer], scale: Scale) -> Iterator[Sample]:
    def work(peer: Peer) -> Iterator[Sample]:
        for clients in scale.clients:
            yield from _many_clients(peer, clients, scale.seconds)

    return each_alone(peers, Durability.PAGE_CACHE, scale, work)


def _many_clients(peer: Peer, clients: int, seconds: float) -> Iterator[Sample]:
    topic = f"clients-{clients}"
    peer.client.create(topic, PARTITIONS)
    settle()
    done = apart(partial(peer.client.produce, topic, 1_000, seconds, clients), YIELDING)
    yield higher(peer, f"produce 1 KB from {clients:,} clients", done.result.rate / 1e3, "MB/s")
    peer.client.delete(topic)


EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "start": measure_start,
    "throughput-synced": measure_throughput_synced,
    "throughput-page-cache": measure_throughput_page_cache,
    "latency-synced": measure_latency_synced,
    "latency-page-cache": measure_latency_page_cache,
    "failover": measure_failover,
    "partitions": measure_partitions,
    "clients": measure_clients,
    "recovery": measure_recovery,
}
