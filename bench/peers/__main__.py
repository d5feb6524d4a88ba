"""`make bench-peers`: the same work for Tidelog and its peers, in turns, on this machine.

    make bench-peers ARGS="--quick"                          a few minutes, kept apart
    make bench-peers ARGS="--only start --peers kafka"       an experiment, a peer
    make bench-peers ARGS="--limits"                         what the machine itself can do
    make bench-peers ARGS="--profile"                        where a node's time goes (py-spy)

Results of several runs merge into bench/results/peers.json; each says when it was measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from bench.peers import doubles, limits, machine, plots, profile
from bench.peers.experiments import (
    EXPERIMENTS,
    FULL,
    QUICK,
    SMALL_LOG_GB,
    Sample,
    Scale,
    SomeFailed,
)
from bench.peers.kafka_client import CONSUMER, PRODUCER, WATCHFUL
from bench.peers.kafka_speakers import Kafka, Tidelog
from bench.peers.nats_peer import Nats
from bench.peers.peer import BUILD, Absence, Durability, Peer, PeerFailed
from bench.peers.rabbitmq_peer import RabbitMQ
from bench.peers.redis_peer import Redis
from bench.peers.results import Results, gather, markdown, print_results
from bench.scratch import ended_by_sigterm
from bench.table import RESULTS, Row, report
from tidelog.testing.local_cluster import ClusterFailed

PEERS: Final[Mapping[str, Callable[[], Peer]]] = {
    "kafka": Kafka,
    "nats": Nats,
    "rabbitmq": RabbitMQ,
    "redis": Redis,
}
DOUBLES: Final = "doubles"
RESULT: Final = RESULTS / "peers.json"
QUICK_RESULT: Final = BUILD / "quick.json"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="short, one round, own result file")
    parser.add_argument("--small", action="store_true", help="recover 0.5 GB instead of 5")
    parser.add_argument("--only", action="append", choices=[*EXPERIMENTS, DOUBLES],
                        metavar="NAME", help=f"one of {', '.join([*EXPERIMENTS, DOUBLES])}; "
                        "may be given again")  # fmt: skip
    parser.add_argument("--peers", default=",".join(PEERS), metavar="A,B",
                        help=f"of {','.join(PEERS)}; Tidelog always runs")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="how often each peer has its turn")
    parser.add_argument("--output", type=Path, help="result file to merge into")
    parser.add_argument("--limits", action="store_true", help="measure the machine instead")
    parser.add_argument("--profile", action="store_true", help="look into Tidelog's nodes instead")
    parser.add_argument("--print", action="store_true", dest="only_print",
                        help="print and draw what is kept, measure nothing")  # fmt: skip
    parser.add_argument("--markdown", action="store_true",
                        help="print what is kept as docs/PERFORMANCE.md has it")  # fmt: skip
    chosen = parser.parse_args(argv)
    if unknown := set(chosen.peers.split(",")) - {*PEERS, ""}:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return chosen


def scale_of(chosen: argparse.Namespace) -> Scale:
    scale = QUICK if chosen.quick else FULL
    if chosen.small:
        scale = replace(scale, log_gb=SMALL_LOG_GB)
    return scale if chosen.rounds is None else replace(scale, rounds=chosen.rounds)


def present(peers: Iterable[Peer], results: Results) -> list[Peer]:
    """Those that can run here; why others cannot is said and kept."""
    found = []
    for peer in peers:
        absence = peer.absence()
        if absence is None:
            found.append(peer)
            results.tell("versions", {peer.name: peer.version()})
            results.tell("settings", {peer.name: _settings(peer)})
        else:
            say(f"{peer.name} is skipped: {absence.reason}; to have it: {absence.remedy}")
            results.tell_absence(peer.name, "all", absence)
    return found


def _settings(peer: Peer) -> dict[str, dict[str, str]]:
    return {one.value: dict(peer.settings(one)) for one in Durability}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def watched(name: str, samples: Iterable[Sample]) -> Iterator[Sample]:
    for sample in samples:
        say(f"{name}: {sample.peer}: {sample.measure}: {sample.value:,.4g} {sample.unit}")
        yield sample


@contextmanager
def watching_host(name: str, results: Results) -> Iterator[None]:
    """What the host gave to others meanwhile is missing in every figure."""
    start, stolen = time.perf_counter(), machine.stolen_seconds()
    yield
    took = (time.perf_counter() - start) * (os.cpu_count() or 1)
    share = (machine.stolen_seconds() - stolen) / took
    say(f"{name}: the host took {share:.1%} of the processor time")
    results.tell("processor time that the host took", {name: share})


def run(name: str, peers: Sequence[Peer], scale: Scale, results: Results) -> str | None:
    """Measure and keep what ran to its end; how it failed, if it did."""
    samples, failed = list[Sample](), None
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        if name == DOUBLES:
            for double, absence in doubles.absences().items():
                results.tell_absence(double, name, absence)
            samples.extend(watched(name, doubles.measure_doubles(scale.rounds)))
        else:
            able = [peer for peer in peers if _is_able(peer, name, results)]
            samples.extend(watched(name, EXPERIMENTS[name](able, scale)))
    except SomeFailed as failure:
        say(f"{name} failed for {failure}")
        failed = f"{name}: {failure}"
        samples = [sample for sample in samples if sample.peer not in failure.names]
    except (PeerFailed, ClusterFailed, KafkaException, OSError) as failure:
        say(f"{name} failed: {failure}")
        return f"{name}: {failure}"
    results.add(gather(name, at, samples))
    return failed


def _is_able(peer: Peer, experiment: str, results: Results) -> bool:
    reason = peer.cannot(experiment)
    if reason is not None:
        say(f"{peer.name} is left out of {experiment}: {reason}")
        results.tell_absence(peer.name, experiment, Absence(reason, "nothing"))
    return reason is None


def report_limits() -> int:
    report("peers_limits", list(limits.measure_limits()))
    return 0


def report_profile() -> int:
    if (absence := profile.absence()) is not None:
        print(f"{absence.reason}; to have it: {absence.remedy}", file=sys.stderr)
        return 1
    rows = list[Row]()
    for seen in profile.measure_profiles(FULL.seconds):
        profile.print_profile(seen)
        rows += seen.rows()
    report("peers_profile", rows)
    return 0


def measured_peers(results: Results) -> list[str]:
    return [peer for peer in PEERS if peer in results.peers()]


def finish(results: Results, output: Path) -> None:
    """Print all there is, and draw it beside the result file."""
    peers = measured_peers(results)
    print_results(results, peers)
    if (absence := plots.absence()) is not None:
        say(f"no plots: {absence.reason}; to have them: {absence.remedy}")
        return
    for path in plots.draw(results, output.parent, peers):
        say(f"drew {path.name}")


def main(argv: Sequence[str]) -> int:
    chosen = parse(argv)
    if chosen.limits:
        return report_limits()
    if chosen.profile:
        return report_profile()
    output = chosen.output or (QUICK_RESULT if chosen.quick else RESULT)
    results = Results.load(output)
    if chosen.markdown:
        print(markdown(results, measured_peers(results)))
        return 0
    if chosen.only_print:
        finish(results, output)
        return 0
    results.tell("machine", machine.describe())
    clients = {"producer": PRODUCER, "consumer": CONSUMER, "producer in failover": WATCHFUL}
    results.tell("settings", {name: dict(one) for name, one in clients.items()})
    wanted: list[Peer] = [Tidelog()]
    wanted += [PEERS[name]() for name in chosen.peers.split(",") if name]
    peers, failures = present(wanted, results), list[str]()
    for name in chosen.only or (*EXPERIMENTS, DOUBLES):
        with watching_host(name, results):
            failure = run(name, peers, scale_of(chosen), results)
        failures += [] if failure is None else [failure]
        results.save(output)
    finish(results, output)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    with ended_by_sigterm():
        sys.exit(main(sys.argv[1:]))
