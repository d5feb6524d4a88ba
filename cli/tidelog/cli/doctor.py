"""``tidelog doctor``: looks at a cluster from the client's side, and says what is wrong.

From the outside in: can the address be resolved and dialled, does a node answer there, can the
addresses it tells be dialled too, and only then what the cluster says about itself. What cannot be
looked at because something before it failed is left out; the first problem comes first.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from tidelog.cli.ask import Connection, parse_bootstrap
from tidelog.cli.brokers import BrokerNode, Brokers, ClusterDescription, describe_cluster
from tidelog.cli.configs import Entity, Kind, describe_entity
from tidelog.cli.doctor_checks import (
    INTERNAL_TOPICS,
    Level,
    Reached,
    Verdict,
    judge_address,
    judge_advertised,
    judge_clock,
    judge_disk,
    judge_identity,
    judge_internal,
    judge_partitions,
    judge_quorum,
    judge_versions,
    summary,
)
from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed
from tidelog.cli.features import ask_spoken
from tidelog.cli.log_dirs import describe_directories
from tidelog.cli.node_http import NoHttp, fetch, find_http
from tidelog.cli.quorum import ask_quorum
from tidelog.cli.tables import table
from tidelog.cli.topics import Topic, describe_topics, list_topics
from tidelog.kernel.addresses import SocketAddress

_CONNECT_S: Final = 5.0
_SECOND_MS: Final = 1000.0
_MARKS: Final = {Level.OK: "ok", Level.WARNING: "WARN", Level.PROBLEM: "FAIL"}


def examine(bootstrap: str, *, as_json: bool) -> int:
    """The exit code: 1 if something is broken."""
    verdicts = _examined(bootstrap)
    if as_json:
        rows = [asdict(one) for one in verdicts]
        healthy = not any(one.level is Level.PROBLEM for one in verdicts)
        print(json.dumps({"healthy": healthy, "checks": rows}))
    else:
        print(table(("", "CHECK", "FINDING"), [_row(one) for one in verdicts], bare=True))
        for one in verdicts:
            if one.fix and one.level is not Level.OK:
                print(f"\n{one.text}\n  -> {one.fix}")
        print(f"\n{summary(verdicts)}")
    return PROBLEM if any(one.level is Level.PROBLEM for one in verdicts) else OK


def _examined(bootstrap: str) -> list[Verdict]:
    """What was seen until a node stopped answering is worth telling too."""
    addresses = parse_bootstrap(bootstrap)
    verdicts: list[Verdict] = []
    try:
        for one in verdicts_on(addresses):
            verdicts.append(one)
    except CommandFailed as failure:
        verdicts.append(
            Verdict("examination", Level.PROBLEM, str(failure), "mend this first, then ask again")
        )
    return verdicts


def _row(verdict: Verdict) -> tuple[str, str, str]:
    return _MARKS[verdict.level], verdict.check, verdict.text


def verdicts_on(addresses: Sequence[SocketAddress]) -> Iterator[Verdict]:
    dialled = [reach(address) for address in addresses]
    yield from map(judge_address, dialled)
    first = next((one.address for one in dialled if one.problem is None), None)
    if first is None:
        return
    with Brokers(first) as brokers:
        cluster = brokers.describe()
        yield Verdict("cluster", Level.OK, f"{cluster.cluster_id}, {len(cluster.brokers)} brokers")
        reached = {
            node: (one, reach(SocketAddress(one.host, one.port)))
            for node, one in cluster.live.items()
        }
        yield from judge_advertised(dialled, reached)
        usable = [node for node, (_, one) in reached.items() if one.problem is None]
        yield from _on_nodes(brokers, cluster, usable)
        yield from _on_cluster(brokers, cluster, usable)


def _on_nodes(
    brokers: Brokers, cluster: ClusterDescription, usable: Sequence[int]
) -> Iterator[Verdict]:
    for node in usable:
        connection = brokers.to(node)
        found = describe_cluster(connection).cluster_id
        wrong = judge_identity(node, str(connection.address), cluster.cluster_id, found)
        if wrong is not None:
            yield wrong
            continue
        try:
            describe_entity(brokers, Entity(Kind.BROKER, str(node)), ["node.id"])
        except CommandFailed as failure:
            text = f"{connection.address} does not answer as broker {node} ({failure})"
            fix = f"compare advertised.listeners of the brokers, and port mappings to broker {node}"
            yield Verdict("listeners", Level.PROBLEM, text, fix)
    yield from judge_versions({node: ask_spoken(brokers.to(node)) for node in usable})
    for node in usable:
        yield from _on_clock(brokers, cluster.brokers[node])


def _on_clock(brokers: Brokers, node: BrokerNode) -> Iterator[Verdict]:
    """The Kafka protocol tells no time, HTTP does: in whole seconds, where it is served."""
    try:
        address = find_http(brokers, node)
        before_ms = _now_ms()
        told = fetch(address, "/healthz")
        after_ms = _now_ms()
    except (NoHttp, CommandFailed):
        return
    if told.date_ms is not None:
        skew_ms = told.date_ms + _SECOND_MS / 2 - (before_ms + after_ms) / 2
        what = f"the clock of broker {node.node_id}"
        yield judge_clock(what, skew_ms, after_ms - before_ms + _SECOND_MS)


def _on_cluster(
    brokers: Brokers, cluster: ClusterDescription, usable: Sequence[int]
) -> Iterator[Verdict]:
    try:
        before_ms = _now_ms()
        quorum = ask_quorum(brokers.any)
        after_ms = _now_ms()
    except CommandFailed as failure:
        yield Verdict(
            "quorum", Level.PROBLEM, str(failure), "start more than half of the controllers"
        )
    else:
        yield from judge_quorum(quorum)
        at_ms = quorum.leader.last_caught_up_ms
        if at_ms >= 0:
            skew_ms = at_ms - (before_ms + after_ms) / 2
            what = f"the clock of controller {quorum.leader_id}"
            yield judge_clock(what, skew_ms, after_ms - before_ms)
    topics = describe_topics(brokers.any, list(list_topics(brokers.any)))
    yield from judge_partitions(cluster, topics)
    yield from map(judge_disk, describe_directories(brokers, usable))
    if usable:
        yield from _on_internal_topics(brokers, topics, usable[0], len(cluster.live))


def _on_internal_topics(
    brokers: Brokers, topics: Sequence[Topic], node: int, live: int
) -> Iterator[Verdict]:
    settings = {
        one.name: one.value
        for one in describe_entity(
            brokers, Entity(Kind.BROKER, str(node)), list(INTERNAL_TOPICS.values())
        )
    }
    for topic in topics:
        wanted = settings.get(INTERNAL_TOPICS.get(topic.name, ""))
        if wanted is not None:
            yield judge_internal(topic, int(wanted), live)


def reach(address: SocketAddress) -> Reached:
    """Resolve, dial, and ask whether the Kafka protocol is spoken there."""
    name = str(address)
    try:
        resolved = resolve(address)
    except OSError as error:
        fix = f"check the name {address.host!r}, /etc/hosts and DNS of this machine"
        return Reached(name, (), f"the name does not resolve ({error})", fix)
    try:
        dial(address)
    except ConnectionRefusedError:
        fix = "start the broker, or check the port (listeners)"
        return Reached(name, resolved, "nothing listens there", fix)
    except OSError as error:
        fix = "check firewalls, security groups and published ports between here and there"
        return Reached(name, resolved, f"cannot be reached ({error})", fix)
    try:
        with Connection(name, _CONNECT_S):
            return Reached(name, resolved)
    except CommandFailed:
        fix = "it may be another service, or a TLS or SASL listener; tidelog doctor needs PLAINTEXT"
        return Reached(name, resolved, "something listens, but does not speak Kafka here", fix)


def resolve(address: SocketAddress) -> tuple[str, ...]:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


def dial(address: SocketAddress) -> None:
    socket.create_connection((address.host, address.port), _CONNECT_S).close()


def _now_ms() -> float:
    return time.time_ns() / 1_000_000
