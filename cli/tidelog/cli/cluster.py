"""The cluster as a whole: who is there, and whether all is well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tidelog.cli.brokers import Brokers, ClusterDescription, fail_on, patiently
from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed
from tidelog.cli.questions import question
from tidelog.cli.quorum import Quorum, ask_quorum
from tidelog.cli.tables import or_dash, table
from tidelog.cli.topics import NO_LEADER, Topic, describe_topics, list_topics
from tidelog.wire.protocol.apis import ApiKey

_SHOWN: int = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and how many of it there are."""

    name: str
    count: int
    text: str


def print_info(bootstrap: str, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        cluster = brokers.describe()
        topics = describe_topics(brokers.any, list(list_topics(brokers.any)))
        controller_id = ask_quorum(brokers.any).leader_id
    partitions = [one for topic in topics for one in topic.partitions]
    led = Counter(one.leader for one in partitions)
    held = Counter(node for one in partitions for node in one.replicas)
    if as_json:
        rows = [
            asdict(one) | {"partitions": held[one.node_id], "leaders": led[one.node_id]}
            for one in cluster.brokers.values()
        ]
        shown = {
            "cluster_id": cluster.cluster_id,
            "controller_id": controller_id,
            "topics": len(topics),
            "partitions": len(partitions),
            "brokers": rows,
        }
        print(json.dumps(shown))
        return
    print(f"Cluster: {cluster.cluster_id}")
    print(f"Controller: {controller_id}")
    print(f"Topics: {len(topics)}, with {len(partitions)} partitions")
    header = ("BROKER", "ADDRESS", "RACK", "STATE", "PARTITIONS", "LEADERS")
    lines = [
        (
            one.node_id, one.address, or_dash(one.rack), "fenced" if one.is_fenced else "live",
            held[one.node_id], led[one.node_id],
        )
        for one in cluster.brokers.values()
    ]  # fmt: skip
    print(table(header, lines))


def check_health(bootstrap: str, *, as_json: bool) -> int:
    """The exit code: 1 if something is wrong."""
    with Brokers(bootstrap) as brokers:
        cluster = brokers.describe()
        topics = describe_topics(brokers.any, list(list_topics(brokers.any)))
        findings = [*broker_findings(cluster), *partition_findings(topics)]
        try:
            findings += quorum_findings(ask_quorum(brokers.any))
        except CommandFailed as failure:
            findings.append(Finding("quorum", 1, str(failure)))
    if as_json:
        shown = {"healthy": not findings, "problems": [asdict(one) for one in findings]}
        print(json.dumps({"cluster_id": cluster.cluster_id} | shown))
    elif findings:
        for one in findings:
            print(one.text)
    else:
        count = sum(len(topic.partitions) for topic in topics)
        print(f"Healthy: {len(cluster.brokers)} brokers, {count} partitions, all in sync.")
    return PROBLEM if findings else OK


def broker_findings(cluster: ClusterDescription) -> list[Finding]:
    fenced = [str(one.node_id) for one in cluster.brokers.values() if one.is_fenced]
    if not fenced:
        return []
    text = f"Brokers that are registered but not serving: {', '.join(fenced)}. Start them again"
    return [Finding("fenced_brokers", len(fenced), f"{text}, or tidelog cluster unregister ID.")]


def partition_findings(topics: Sequence[Topic]) -> list[Finding]:
    offline, short, lacking = [], [], []
    for topic in topics:
        for one in topic.partitions:
            name = f"{topic.name}-{one.index}"
            if one.leader == NO_LEADER:
                offline.append(name)
            elif len(one.isr) < min(topic.min_insync_replicas, one.replication_factor):
                short.append(name)
            if len(set(one.isr) & set(one.replicas)) < one.replication_factor:
                lacking.append(name)
    kinds = (
        ("offline_partitions", offline, "Partitions without a leader, which nobody can use"),
        ("under_min_isr_partitions", short, "Partitions that refuse acks=all"),
        ("under_replicated_partitions", lacking, "Partitions with replicas that lag or are down"),
    )
    return [
        Finding(kind, len(names), f"{text}: {few(names)}.") for kind, names, text in kinds if names
    ]


def few(names: Sequence[str]) -> str:
    """The first ones, and how many more."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def quorum_findings(quorum: Quorum) -> list[Finding]:
    behind = [
        str(one.node_id)
        for one in quorum.voters
        if one.last_caught_up_ms >= 0
        and quorum.leader.last_caught_up_ms - one.last_caught_up_ms > 10_000
    ]
    unheard = [str(one.node_id) for one in quorum.voters if one.last_caught_up_ms < 0]
    slow = [*behind, *(node for node in unheard if node != str(quorum.leader_id))]
    if not slow:
        return []
    text = f"Controllers that do not follow: {', '.join(slow)} of {len(quorum.voters)} voters"
    renewed = [str(one.node_id) for one in quorum.observers if str(one.node_id) in slow]
    fix = (
        f"Node {renewed[0]} has another directory: tidelog quorum remove {renewed[0]}, then add."
        if renewed
        else "Look at their logs, or start them again."
    )
    return [Finding("quorum_lag", len(slow), f"{text}. {fix}")]


def unregister(bootstrap: str, broker_id: int, *, as_json: bool) -> None:
    request = question(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker_id)
    with Brokers(bootstrap) as brokers:
        known = brokers.describe().brokers.get(broker_id)
        if known is not None and not known.is_fenced:
            raise CommandFailed(
                f"broker {broker_id} is alive at {known.address} and would register again; "
                "stop it first"
            )
        fail_on(
            patiently(lambda: brokers.any.ask(request)), f"broker {broker_id} was not unregistered"
        )
    if as_json:
        print(json.dumps({"unregistered": broker_id}))
    else:
        print(f"Broker {broker_id} is no longer registered.")
