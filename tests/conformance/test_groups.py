"""Consumer groups of stock clients: sharing, coming and going, and a coordinator that is killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from group_run import (
    AiokafkaMember,
    CommitWatch,
    ConfluentMember,
    KafkaPythonMember,
    Member,
    OwnerWatch,
    Production,
    Readings,
    are_shared,
    committed_offsets,
    coordinator_of,
    create_topic,
    standing,
    unread,
)
from slow_tests import slow_after
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

MakeMember = Callable[[str, Readings, str, str, str], Member]

CLASSIC = partial(ConfluentMember, partition_assignment_strategy="range")
COOPERATIVE = partial(ConfluentMember, partition_assignment_strategy="cooperative-sticky")
CONSUMER = partial(ConfluentMember, group_protocol="consumer")

GROUPS: dict[str, Sequence[MakeMember]] = {
    "cooperative-sticky": (COOPERATIVE, COOPERATIVE, COOPERATIVE),
    "consumer-protocol": (CONSUMER, CONSUMER, CONSUMER),
    "all-clients": (CLASSIC, KafkaPythonMember, AiokafkaMember),
}


@pytest.mark.parametrize("group", slow_after(1, [*GROUPS]))
def test_nothing_stays_unread_while_members_and_the_coordinator_go(
    cluster: LocalCluster, group: str
) -> None:
    topic, readings = f"read-by-{group}", Readings()
    create_topic(cluster, topic)
    production, watch = Production(cluster.bootstrap, topic), CommitWatch(cluster, group, topic)
    members = [
        make(f"{group}-{number}", readings, cluster.bootstrap, group, topic)
        for number, make in enumerate(GROUPS[group])
    ]
    names = [member.name for member in members]

    def share(some: Sequence[str]) -> None:
        until(
            lambda: are_shared(readings, some),
            lambda: f"{some} share the topic: {standing(cluster, group, readings)}",
        )

    production.start()
    for member in members[:2]:
        member.start()
    share(names[:2])
    owners = OwnerWatch(cluster, group)
    watch.start()
    owners.start()
    members[2].start()
    share(names)
    victim = coordinator_of(cluster, group)
    cluster.kill(victim)
    members[0].leave()
    share(names[1:])
    cluster.start_node(victim)
    cluster.wait_until_serving(60)
    production.finish()
    until(lambda: not unread(production.sent, readings), "everything is read")
    until(lambda: owners.looks > 0, "the group was seen at rest")
    owners.finish()
    assert owners.shared == []
    for member in members[1:]:
        member.leave()
    watch.finish()
    watch.look()
    assert watch.went_back == []
    assert {key: readings.seen[key] for key in production.sent} == production.sent
    ends = {p: max(o for q, o in production.sent if q == p) + 1 for p, _ in production.sent}
    assert committed_offsets(cluster, group, topic) == ends


def test_a_static_member_comes_back_to_its_partitions(cluster: LocalCluster) -> None:
    topic, group, readings = "read-by-statics", "statics", Readings()
    create_topic(cluster, topic)

    def member(name: str, instance: str) -> Member:
        return ConfluentMember(
            name,
            readings,
            cluster.bootstrap,
            group,
            topic,
            group_instance_id=instance,
            session_timeout_ms=30_000,
        )

    first, second = member("a", "one"), member("b", "two")
    first.start()
    second.start()
    until(lambda: are_shared(readings, ("a", "b")), "two members share the topic")
    before = {name: set(parts) for name, parts in readings.owners.items()}
    second.leave()  # a static member does not say so: nothing is taken from it
    again = member("b again", "two")
    again.start()
    until(lambda: readings.owners.get("b again"), "it gets its partitions back")
    assert readings.owners["b again"] == before["b"]
    assert readings.owners["a"] == before["a"]
    for each in (first, again):
        each.leave()


def test_groups_are_listed_described_and_deleted(cluster: LocalCluster) -> None:
    topic, readings = "read-once", Readings()
    create_topic(cluster, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found: dict[str, Member] = {
        "listed-classic": CLASSIC("c", readings, cluster.bootstrap, "listed-classic", topic),
        "listed-consumer": CONSUMER("k", readings, cluster.bootstrap, "listed-consumer", topic),
    }
    for member in found.values():
        member.start()
    until(lambda: are_shared(readings, ("c",)) and are_shared(readings, ("k",)), "both read")
    listed = {one.group_id: one for one in admin.list_consumer_groups().result(30).valid}
    assert listed["listed-classic"].type.name == "CLASSIC"
    assert listed["listed-consumer"].type.name == "CONSUMER"
    described = admin.describe_consumer_groups(list(found))
    for group in found:
        answer = described[group].result(30)
        assert answer.state.name == "STABLE"
        [only] = answer.members
        assert len(only.assignment.topic_partitions) == 6
    for member in found.values():
        member.leave()
    for deleted in admin.delete_consumer_groups(list(found)).values():
        assert deleted.result(30) is None
    left = {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    assert not left & found.keys()


def test_a_group_follows_the_topics_its_expression_matches(cluster: LocalCluster) -> None:
    readings = Readings()
    create_topic(cluster, "matched-1")
    member = CONSUMER("m", readings, cluster.bootstrap, "matching", "^matched-.*")
    member.start()
    production = Production(cluster.bootstrap, "matched-1")
    production.start()
    until(lambda: readings.seen, "the first topic is read")
    production.finish()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("matched-2", 1, 3)])["matched-2"].result(30)
    until(
        lambda: len(admin.describe_consumer_groups(["matching"])["matching"].result(30)
                    .members[0].assignment.topic_partitions) == 7,
        "a new topic that matches is assigned",
    )  # fmt: skip
    member.leave()


def test_the_offsets_topic_has_a_replica_on_every_node(cluster: LocalCluster) -> None:
    coordinator_of(cluster, "any group")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = admin.list_topics("__consumer_offsets", timeout=30).topics["__consumer_offsets"]
    assert len(topic.partitions) == 50
    assert {len(one.replicas) for one in topic.partitions.values()} == {3}


def test_offsets_of_a_deleted_topic_are_forgotten(cluster: LocalCluster) -> None:
    topic, readings = "short-lived", Readings()
    create_topic(cluster, topic)
    production = Production(cluster.bootstrap, topic)
    production.start()
    member = CLASSIC("s", readings, cluster.bootstrap, "short", topic)
    member.start()
    until(lambda: set(committed_offsets(cluster, "short", topic).values()) - {-1}, "commits")
    production.finish()
    member.leave()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    until(
        lambda: set(committed_offsets(cluster, "short", topic).values()) == {-1},
        "its offsets go with it",
    )
