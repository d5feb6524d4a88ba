"""``tidelog topic``: which topics are meant, what is asked of the cluster, and Kafka's words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scripted_cluster import Answer, ScriptedConnection

from tidelog.cli import topic_changes
from tidelog.cli.failures import WrongUse
from tidelog.cli.topic_text import Only, description, partition_line, topic_line
from tidelog.cli.topics import NO_LEADER, Partition, Topic, describe_topics, select
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32, to_kio_uuid
from tidelog.wire.protocol.responses import ResponseStructs

Run = Callable[..., Any]
TOPIC_ID = "s8epkSQYRDS5Pb-ILwidmg"


# --- which topics -------------------------------------------------------------------------------

THERE = {"__consumer_offsets": True, "a.b": False, "axb": False, "orders": False}


@pytest.mark.parametrize(
    ("wanted", "exclude", "chosen"),
    [
        ([], False, ["__consumer_offsets", "a.b", "axb", "orders"]),
        ([], True, ["a.b", "axb", "orders"]),
        (["orders"], False, ["orders"]),
        (["order"], False, []),
        (["a.b"], False, ["a.b"]),  # a name is that topic, although it matches another one too
        (["a.?b"], False, ["a.b", "axb"]),
        (["orders", "ax."], False, ["axb", "orders"]),
        (["a.b|orders"], False, ["a.b", "axb", "orders"]),
        ([".*"], True, ["a.b", "axb", "orders"]),
        (["__consumer_offsets"], True, []),
    ],
)
def test_names_and_patterns(wanted: list[str], exclude: bool, chosen: list[str]) -> None:
    assert select(THERE, wanted, exclude_internal=exclude) == chosen


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(WrongUse, match="neither a topic nor a regular expression"):
        select(THERE, ["a("])


# --- in Kafka's words ---------------------------------------------------------------------------


def topic(*partitions: Partition, min_isr: int = 1, **configs: str) -> Topic:
    renamed = {name.replace("_", "."): value for name, value in configs.items()}
    return Topic("a.b", TOPIC_ID, False, partitions, renamed, min_isr)


SOUND = Partition(0, 1, 4, (1, 2), (1, 2), (), ())
ALONE = Partition(1, 2, 4, (2, 3), (2,), (3,), (1,))
GONE = Partition(2, NO_LEADER, 4, (3, 1), (), None, None)
MOVING = Partition(3, 1, 4, (1, 2, 3), (1, 2), (), (), adding=(3,), removing=(1,))


def test_lines_are_those_of_kafka_topics() -> None:
    """The first two as kafka-topics 4.3.1 printed them."""
    assert topic_line(topic(SOUND, ALONE, segment_bytes="2000000", retention_ms="1000")) == (
        f"Topic: a.b\tTopicId: {TOPIC_ID}\tPartitionCount: 2\tReplicationFactor: 2\t"
        "Configs: segment.bytes=2000000,retention.ms=1000"
    )
    lines = [partition_line(topic(), one) for one in (SOUND, ALONE, GONE, MOVING)]
    assert lines == [
        "\tTopic: a.b\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: ",
        "\tTopic: a.b\tPartition: 1\tLeader: 2\tReplicas: 2,3\tIsr: 2\tElr: 3\tLastKnownElr: 1",
        "\tTopic: a.b\tPartition: 2\tLeader: none\tReplicas: 3,1\tIsr: \tElr: N/A\t"
        "LastKnownElr: N/A",
        "\tTopic: a.b\tPartition: 3\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\tAdding Replicas: 3\t"
        "Removing Replicas: 1\tElr: \tLastKnownElr: ",
    ]


@pytest.mark.parametrize(
    ("only", "shown"),
    [
        ([Only.UNDER_REPLICATED], [1, 2]),
        ([Only.UNAVAILABLE], [2]),
        ([Only.UNDER_MIN_ISR], [1, 2]),
        ([Only.AT_MIN_ISR], [0, 3]),
        ([Only.AT_MIN_ISR, Only.UNAVAILABLE], [0, 2, 3]),
    ],
)
def test_filters_show_partitions_alone(only: list[Only], shown: list[int]) -> None:
    one = topic(SOUND, ALONE, GONE, MOVING, min_isr=2)
    lines = description([one], only, with_overrides=False)
    assert [line.split("\t")[2] for line in lines] == [f"Partition: {index}" for index in shown]


def test_overrides_show_topics_alone() -> None:
    plain, changed = topic(SOUND), topic(SOUND, retention_ms="5")
    lines = description([plain, changed], [], with_overrides=True)
    assert [line.rpartition("\t")[2] for line in lines] == ["Configs: retention.ms=5"]


# --- a scripted cluster -------------------------------------------------------------------------


class Cluster:
    """Three topics; says what was asked of it, and may be told to answer with errors."""

    def __init__(self) -> None:
        self.errors: list[ErrorCode] = []
        self.connection = ScriptedConnection(
            {
                ApiKey.METADATA: self.metadata,
                ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.partitions,
                ApiKey.DESCRIBE_CONFIGS: self.configs,
                ApiKey.LIST_PARTITION_REASSIGNMENTS: self.reassignments,
                ApiKey.CREATE_TOPICS: self.changed("topics", "CreatableTopicResult"),
                ApiKey.DELETE_TOPICS: self.changed("responses", "DeletableTopicResult"),
                ApiKey.CREATE_PARTITIONS: self.changed("results", "CreatePartitionsTopicResult"),
                ApiKey.INCREMENTAL_ALTER_CONFIGS: self.changed(
                    "responses", "AlterConfigsResourceResponse"
                ),
            }
        )

    def asked(self, name: str) -> list[Any]:
        return [one for one in self.connection.questions if type(one).__name__ == name]

    @staticmethod
    def metadata(request: Any, structs: ResponseStructs) -> Any:
        topics = tuple(
            structs.struct(
                "MetadataResponseTopic",
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=None,
                is_internal=is_internal,
                partitions=(),
            )
            for name, is_internal in reversed(THERE.items())
        )
        return structs.response(
            throttle_time=duration_i32(0), brokers=(), cluster_id="c", controller_id=1,
            topics=topics,
        )  # fmt: skip

    @staticmethod
    def partitions(request: Any, structs: ResponseStructs) -> Any:
        """One partition per page, two per topic; ``axb`` has been deleted meanwhile."""
        pages = [(one.name, index) for one in request.topics for index in (0, 1)]
        cursor = request.cursor
        at = 0 if cursor is None else pages.index((cursor.topic_name, cursor.partition_index))
        name, index = pages[at]
        partition = structs.struct(
            "DescribeTopicPartitionsResponsePartition",
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=(1, 2),
            isr_nodes=(1,),
            eligible_leader_replicas=(2,),
            last_known_elr=(),
            offline_replicas=(),
        )
        gone = name == "axb"
        topic = structs.struct(
            "DescribeTopicPartitionsResponseTopic",
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.NONE,
            name=name,
            topic_id=None if gone else to_kio_uuid(Uuid.parse(TOPIC_ID)),
            is_internal=False,
            partitions=() if gone else (partition,),
            topic_authorized_operations=0,
        )
        following = None
        if at + 1 < len(pages):
            following = structs.struct(
                "Cursor", topic_name=pages[at + 1][0], partition_index=pages[at + 1][1]
            )
        return structs.response(
            throttle_time=duration_i32(0), topics=(topic,), next_cursor=following
        )

    @staticmethod
    def configs(request: Any, structs: ResponseStructs) -> Any:
        def entry(name: str, value: str, source: int) -> Any:
            return structs.struct(
                "DescribeConfigsResourceResult",
                name=name,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=(),
                config_type=1,
                documentation=None,
            )

        entries = (
            entry("retention.ms", "5", 1),
            entry("segment.ms", "6", 5),
            entry("min.insync.replicas", "2", 4),
        )
        results = tuple(
            structs.struct(
                "DescribeConfigsResult",
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=2,
                resource_name=resource.resource_name,
                configs=entries,
            )
            for resource in request.resources
        )
        return structs.response(throttle_time=duration_i32(0), results=results)

    @staticmethod
    def reassignments(request: Any, structs: ResponseStructs) -> Any:
        ongoing = structs.struct(
            "OngoingPartitionReassignment",
            partition_index=1,
            replicas=(1, 2),
            adding_replicas=(2,),
            removing_replicas=(),
        )
        topic = structs.struct("OngoingTopicReassignment", name="orders", partitions=(ongoing,))
        return structs.response(
            throttle_time=duration_i32(0),
            error_code=ErrorCode.NONE,
            error_message=None,
            topics=(topic,),
        )

    def changed(self, field: str, struct: str) -> Answer:
        def answer(request: Any, structs: ResponseStructs) -> Any:
            code = self.errors.pop(0) if self.errors else ErrorCode.NONE
            one = structs.struct(
                struct,
                name="t",
                topic_id=to_kio_uuid(Uuid.parse(TOPIC_ID)),
                resource_type=2,
                resource_name="t",
                error_code=code,
                error_message=None if code == ErrorCode.NONE else f"no: {code.name}",
                topic_config_error_code=0,
                num_partitions=7,
                replication_factor=3,
                configs=None,
            )
            return structs.response(throttle_time=duration_i32(0), **{field: (one,)})

        return answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("tidelog.cli.topic_actions.Connection", lambda bootstrap: made.connection)
    monkeypatch.setattr(topic_changes, "_RETRY_S", 0.0)
    return made


def test_pages_are_put_together(cluster: Cluster) -> None:
    described = describe_topics(cluster.connection, ["orders", "axb", "a.b"])  # type: ignore[arg-type]
    assert [(one.name, len(one.partitions)) for one in described] == [("a.b", 2), ("orders", 2)]
    assert described[0].configs == {"retention.ms": "5", "min.insync.replicas": "2"}
    assert described[0].min_insync_replicas == 2
    assert [one.adding for one in described[1].partitions] == [(), (2,)]
    assert described[0].partitions[0].elr == (2,)


def test_list(tidelog: Run, cluster: Cluster) -> None:
    assert tidelog("topic", "list").out.split() == sorted(THERE)
    assert tidelog("topic", "list", "--exclude-internal", "a.*").out.split() == ["a.b", "axb"]
    assert json.loads(tidelog("topic", "list", "--json", "--topic", "orders").out) == ["orders"]
    assert cluster.asked("MetadataRequest")[0].allow_auto_topic_creation is False


def test_describe(tidelog: Run, cluster: Cluster) -> None:
    shown = tidelog("topic", "describe", "orders")
    assert shown.code == 0
    assert [line.split("\t")[0] for line in shown.out.splitlines()] == ["Topic: orders", "", ""]
    (described,) = json.loads(tidelog("topic", "describe", "orders", "--json").out)
    assert described["partitions"][1]["adding"] == [2]
    only = tidelog("topic", "describe", "orders", "--under-min-isr-partitions")
    assert len(only.out.splitlines()) == 2


@pytest.mark.parametrize("command", [("describe",), ("delete",), ("alter", "--partitions", "9")])
def test_a_topic_that_is_not_there(
    tidelog: Run, cluster: Cluster, command: tuple[str, ...]
) -> None:
    ran = tidelog("topic", *command, "nope")
    assert (ran.code, ran.out) == (1, "")
    said = "Error while executing topic command : Topic 'nope' does not exist as expected\n"
    assert ran.err == said
    assert tidelog("topic", *command, "nope", "--if-exists").code == 0


def test_create_leaves_to_the_cluster_what_was_not_said(tidelog: Run, cluster: Cluster) -> None:
    assert tidelog("topic", "create", "t").out == "Created topic t.\n"
    (asked,) = cluster.asked("CreateTopicsRequest")[0].topics
    assert (asked.num_partitions, asked.replication_factor, asked.assignments) == (-1, -1, ())


def test_create_says_what_was_said(tidelog: Run, cluster: Cluster) -> None:
    ran = tidelog(
        "topic", "create", "t", "--partitions", "4", "--replication-factor", "2",
        "--config", "retention.ms=5", "--config", "cleanup.policy=compact,delete", "--json",
    )  # fmt: skip
    assert json.loads(ran.out) == [
        {"name": "t", "topic_id": TOPIC_ID, "partitions": 7, "replication_factor": 3}
    ]
    (asked,) = cluster.asked("CreateTopicsRequest")[0].topics
    assert (asked.name, asked.num_partitions, asked.replication_factor) == ("t", 4, 2)
    assert {one.name: one.value for one in asked.configs} == {
        "retention.ms": "5",
        "cleanup.policy": "compact,delete",
    }


def test_create_with_an_assignment(tidelog: Run, cluster: Cluster) -> None:
    tidelog("topic", "create", "--topic", "t", "--replica-assignment", "1:2,2:3")
    (asked,) = cluster.asked("CreateTopicsRequest")[0].topics
    assert [one.broker_ids for one in asked.assignments] == [(1, 2), (2, 3)]
    assert (asked.num_partitions, asked.replication_factor) == (-1, -1)


def test_an_existing_topic(tidelog: Run, cluster: Cluster) -> None:
    cluster.errors = [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
    ran = tidelog("topic", "create", "t")
    assert ran.code == 1
    assert ran.err == "Error while executing topic command : no: TOPIC_ALREADY_EXISTS\n"
    ran = tidelog("topic", "create", "t", "--if-not-exists")
    assert (ran.code, ran.out) == (0, "")


def test_one_failure_does_not_keep_the_others(tidelog: Run, cluster: Cluster) -> None:
    cluster.errors = [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    ran = tidelog("topic", "create", "a", "b", "c")
    assert (ran.code, ran.out) == (1, "Created topic a.\nCreated topic c.\n")
    assert "INVALID_TOPIC_EXCEPTION" in ran.err


def test_no_controller_is_waited_for(tidelog: Run, cluster: Cluster) -> None:
    cluster.errors = [ErrorCode.NOT_CONTROLLER] * 3
    assert tidelog("topic", "create", "t").code == 0
    assert len(cluster.asked("CreateTopicsRequest")) == 4
    cluster.errors = [ErrorCode.NOT_CONTROLLER] * 1000
    assert tidelog("topic", "create", "t").code == 1


def test_alter(tidelog: Run, cluster: Cluster) -> None:
    ran = tidelog(
        "topic", "alter", "orders", "--partitions", "4", "--replica-assignment", "1,2,3,1",
        "--config", "retention.ms=6", "--delete-config", "segment.ms",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, "Altered topic orders.\n")
    (asked,) = cluster.asked("CreatePartitionsRequest")[0].topics
    assert (asked.count, [one.broker_ids for one in asked.assignments]) == (4, [(3,), (1,)])
    (resource,) = cluster.asked("IncrementalAlterConfigsRequest")[0].resources
    assert [(one.name, one.config_operation, one.value) for one in resource.configs] == [
        ("retention.ms", 0, "6"),
        ("segment.ms", 1, None),
    ]


def test_delete_by_name_spares_what_the_name_would_match(tidelog: Run, cluster: Cluster) -> None:
    assert tidelog("topic", "delete", "a.b").out == "Deleted topic a.b.\n"
    shown = tidelog("topic", "delete", "a.?b", "--json").out
    assert json.loads(shown) == {"deleted": ["a.b", "axb"]}
    asked = cluster.asked("DeleteTopicsRequest")
    assert [one.topics[0].name for one in asked] == ["a.b", "a.b", "axb"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create",), "name a topic"),
        (("create", "t", "--partitions", "0"), "--partitions"),
        (("create", "t", "--replication-factor", "99999"), "--replication-factor"),
        (("create", "t", "--config", "retention.ms"), "must be name=value"),
        (("create", "t", "--replica-assignment", "1:x"), "--replica-assignment 1:x"),
        (("create", "t", "--replica-assignment", "1:1"), "no node twice"),
        (("create", "t", "--replica-assignment", "1:2,3"), "as many replicas"),
        (("create", "t", "--replica-assignment", "1", "--partitions", "2"), "leave out"),
        (("alter", "t"), "say what to change"),
        (("alter", "t", "--replica-assignment", "1", "--config", "a=b"), "goes with --partitions"),
        (("delete",), "name a topic"),
        (("describe", "a("), "regular expression"),
        (("list", "-b", "nowhere"), "--bootstrap-server"),
        (("list", "--colour"), "No such option"),
    ],
)
def test_wrong_uses(tidelog: Run, arguments: tuple[str, ...], said: str) -> None:
    needs_cluster = arguments[0] == "describe"
    with pytest.MonkeyPatch.context() as patch:
        if needs_cluster:
            connection = Cluster().connection
            patch.setattr("tidelog.cli.topic_actions.Connection", lambda bootstrap: connection)
        ran = tidelog("topic", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
