"""What a doctor makes of what was seen. Pure: each check gets facts and returns verdicts.

A problem is something that is broken; a warning is something that will break, or that surprises.
Every verdict that is not good says what to do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.cli.brokers import BrokerNode, ClusterDescription
from tidelog.cli.cluster import broker_findings, partition_findings, quorum_findings
from tidelog.cli.log_dirs import Directory
from tidelog.cli.quorum import Quorum
from tidelog.cli.topics import Topic

SKEW_WARNING_MS: Final = 1000
SKEW_PROBLEM_MS: Final = 10_000
FREE_WARNING: Final = 0.15
FREE_PROBLEM: Final = 0.05
INTERNAL_TOPICS: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
_GIB: Final = 1024**3


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Verdict:
    check: str
    level: Level
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Reached:
    """What came of dialling an address."""

    address: str
    resolved: tuple[str, ...] = ()
    problem: str | None = None
    fix: str = ""


def judge_address(reached: Reached) -> Verdict:
    if reached.problem is not None:
        return Verdict(
            "address", Level.PROBLEM, f"{reached.address}: {reached.problem}", reached.fix
        )
    where = ", ".join(reached.resolved)
    suffix = f" ({where})" if where and where not in reached.address else ""
    return Verdict("address", Level.OK, f"{reached.address}{suffix} answers")


def judge_advertised(
    dialled: Sequence[Reached], brokers: Mapping[int, tuple[BrokerNode, Reached]]
) -> list[Verdict]:
    """The addresses that the cluster tells its clients, as this client can use them."""
    came_from_afar = any(not _is_local(one) for one in dialled if one.problem is None)
    verdicts = []
    for node_id, (node, reached) in sorted(brokers.items()):
        name = f"broker {node_id} at {node.address}"
        setting = f"advertised.listeners of broker {node_id}"
        if node.host in ("0.0.0.0", "::", ""):
            text = f"{name} advertises an address that nobody can dial"
            verdicts.append(Verdict("listeners", Level.PROBLEM, text, f"set {setting}"))
        elif reached.problem is not None:
            local = came_from_afar and _is_local(reached)
            hint = "it tells clients its own loopback address; " if local else ""
            fix = f"{hint}set {setting} to what clients can reach" if local else reached.fix
            text = f"{name}: {reached.problem}"
            verdicts.append(Verdict("listeners", Level.PROBLEM, text, fix))
        else:
            verdicts.append(Verdict("listeners", Level.OK, f"{name} answers"))
    return verdicts


def _is_local(reached: Reached) -> bool:
    return bool(reached.resolved) and all(
        ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in reached.resolved
    )


def judge_identity(node_id: int, address: str, expected: str, found: str) -> Verdict | None:
    """Whether who answers at a broker's address belongs to this cluster."""
    if expected == found:
        return None
    text = (
        f"who answers at {address} as broker {node_id} belongs to cluster {found}, not {expected}"
    )
    return Verdict(
        "listeners", Level.PROBLEM, text, f"two clusters share an address; look at broker {node_id}"
    )


def judge_clock(what: str, skew_ms: float, round_trip_ms: float) -> Verdict:
    """Positive: the other clock is ahead. Half a round trip is beyond knowing."""
    certain_ms = max(0.0, abs(skew_ms) - round_trip_ms / 2)
    side = "ahead of" if skew_ms > 0 else "behind"
    if certain_ms < SKEW_WARNING_MS:
        return Verdict("clock", Level.OK, f"{what} agrees with this machine's clock")
    text = f"{what} is {certain_ms / 1000:.1f} s {side} this machine's"
    level = Level.PROBLEM if certain_ms >= SKEW_PROBLEM_MS else Level.WARNING
    return Verdict("clock", level, text, "run a time service (chrony, systemd-timesyncd) on both")


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a broker says it can speak."""

    apis: Mapping[int, tuple[int, int]]
    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]


def judge_versions(spoken: Mapping[int, Spoken]) -> list[Verdict]:
    if not spoken:
        return []
    verdicts = []
    if len({tuple(sorted(one.apis.items())) for one in spoken.values()}) > 1:
        text = f"brokers {', '.join(map(str, sorted(spoken)))} serve different versions of APIs"
        fix = "finish the upgrade: all brokers should run the same release"
        verdicts.append(Verdict("versions", Level.WARNING, text, fix))
    else:
        verdicts.append(Verdict("versions", Level.OK, "all brokers serve the same APIs"))
    for name in sorted({name for one in spoken.values() for name in one.supported}):
        top = min(one.supported[name][1] for one in spoken.values() if name in one.supported)
        level = max(one.finalized.get(name, 0) for one in spoken.values())
        if level < top:
            text = f"feature {name} is at level {level}, and all brokers support {top}"
            fix = f"tidelog features upgrade {name}={top}"
            verdicts.append(Verdict("versions", Level.WARNING, text, fix))
    return verdicts


def judge_partitions(cluster: ClusterDescription, topics: Sequence[Topic]) -> list[Verdict]:
    found = [*broker_findings(cluster), *partition_findings(topics)]
    if not found:
        count = sum(len(topic.partitions) for topic in topics)
        return [Verdict("replication", Level.OK, f"{count} partitions, all replicas in sync")]
    fix = "tidelog topic describe --under-replicated-partitions shows them; start what is down"
    return [Verdict("replication", Level.PROBLEM, one.text, fix) for one in found]


def judge_quorum(quorum: Quorum) -> list[Verdict]:
    found = quorum_findings(quorum)
    if not found:
        text = f"node {quorum.leader_id} leads {len(quorum.voters)} controllers"
        return [Verdict("quorum", Level.OK, text)]
    return [Verdict("quorum", Level.PROBLEM, one.text, "tidelog quorum describe") for one in found]


def judge_disk(directory: Directory) -> Verdict:
    name = f"broker {directory.broker}, {directory.path}"
    if directory.error is not None:
        fix = "look at the broker's log; replace the disk, then start the broker again"
        return Verdict("disk", Level.PROBLEM, f"{name}: {directory.error}", fix)
    if directory.free_bytes is None or not directory.total_bytes:
        return Verdict("disk", Level.WARNING, f"{name}: does not tell how much is free")
    share = directory.free_bytes / directory.total_bytes
    text = f"{name}: {directory.free_bytes / _GIB:.1f} GiB free ({share:.0%})"
    if share >= FREE_WARNING:
        return Verdict("disk", Level.OK, text)
    level = Level.PROBLEM if share < FREE_PROBLEM else Level.WARNING
    fix = "shorten retention (tidelog config alter --topic), move replicas (tidelog reassign), or"
    return Verdict("disk", level, text, f"{fix} add room")


def judge_internal(topic: Topic, wanted: int, brokers: int) -> Verdict:
    """An internal topic that was made while brokers were missing keeps too few replicas."""
    factors = [one.replication_factor for one in topic.partitions]
    least = min(factors, default=0)
    if least >= wanted:
        return Verdict("internal topics", Level.OK, f"{topic.name} has {least} replicas")
    text = f"{topic.name} has partitions with {least} replicas; the setting says {wanted}"
    if brokers < wanted:
        fix = f"there are only {brokers} brokers: add some, or lower {INTERNAL_TOPICS[topic.name]}"
        return Verdict("internal topics", Level.WARNING, text, fix)
    fix = (
        f"tidelog reassign generate {topic.name} --replication-factor {wanted} --plan-only | "
        "tidelog reassign execute -"
    )
    return Verdict("internal topics", Level.WARNING, text, fix)


def summary(verdicts: Sequence[Verdict]) -> str:
    problems = sum(one.level is Level.PROBLEM for one in verdicts)
    warnings = sum(one.level is Level.WARNING for one in verdicts)
    if not problems and not warnings:
        return "All is well."
    return f"{problems} problems, {warnings} warnings."
